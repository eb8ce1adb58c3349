//! Peers that are stuck, slow or rude hold up nobody.

use integration::lab::peer::{Arriving, Peer};
use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage};
use integration::lab::{LIMIT, client::Connection};
use nix::sys::signal::{Signal, kill};
use remps_proto::mps::handshake::Role;
use std::time::{Duration, Instant};

const ROOT: u32 = 0;
/// What others may notice at most.
const SOON: Duration = Duration::from_millis(100);

/// How long a command takes over a connection that is open already; the start of a program is not the daemon's time.
fn command_time(stage: &Stage) -> Duration {
    let began = Instant::now();
    let ui = Connection::greeted(&stage.pipe_dir().join("control"), Role::UI).expect("greeted");
    let line = b"get_default_active_thread_percentage\n\0";
    ui.send(&(line.len() as u64).to_le_bytes()).and_then(|()| ui.send(line)).expect("sent");
    let answer = ui.receive().expect("answered").bytes;
    assert!(answer.ends_with(b"100.0"), "{answer:?}");
    began.elapsed()
}

fn client_time(stage: &Stage) -> Duration {
    let began = Instant::now();
    Peer::attach(stage.pipe_dir(), LIMIT).expect("served");
    began.elapsed()
}

/// Measures until one is soon enough, since the machine may be busy with something else. Whoever is held up is so by all.
fn best(mut measure: impl FnMut() -> Duration) -> Duration {
    let began = Instant::now();
    let mut best = measure();
    while best >= SOON && began.elapsed() < LIMIT {
        best = best.min(measure());
    }
    best
}

fn nobody_waits(stage: &Stage, whom: &str) {
    let (command, client) = (best(|| command_time(stage)), best(|| client_time(stage)));
    assert!(command < SOON && client < SOON, "{whom}: a command took {command:?}, a client {client:?}");
}

#[test]
fn peers_that_stop_anywhere_in_the_handshake_hold_up_nobody() {
    Stage::run(|stage| {
        stage.start(&[]);
        let _client = Program::attached(stage, ROOT);
        let path = stage.pipe_dir().join("control");
        let open = || Connection::open(&path).expect("it listens");
        // Never says anything; credentials only; half a role; a client that takes nothing; a server without hello.
        let silent: Vec<_> = (0..50).map(|_| open()).collect();
        let credentials: Vec<_> = (0..50)
            .map(|_| {
                let peer = open();
                peer.send_credentials().expect("sent");
                peer
            })
            .collect();
        let half: Vec<_> = (0..50)
            .map(|_| {
                let peer = open();
                peer.send_credentials().and_then(|()| peer.send(&[2, 0])).expect("sent");
                peer
            })
            .collect();
        let servers: Vec<_> = (0..50).map(|_| Connection::greeted(&path, Role::SERVER).expect("greeted")).collect();
        nobody_waits(stage, "stuck peers");
        drop((silent, credentials, half, servers));
        nobody_waits(stage, "stuck peers that left");
    });
}

#[test]
fn a_session_that_never_reads_its_answers_holds_up_nobody() {
    Stage::run(|stage| {
        stage.start(&[]);
        let _client = Program::attached(stage, ROOT);
        let path = stage.pipe_dir().join("control");
        let sessions: Vec<_> = (0..20)
            .map(|_| {
                let session = Connection::greeted(&path, Role::UI).expect("greeted");
                let line = b"device_query\n\0";
                for _ in 0..20 {
                    session.send(&(line.len() as u64).to_le_bytes()).and_then(|()| session.send(line)).expect("room");
                }
                session
            })
            .collect();
        // One that stops after the length of its command, and one that announces the largest.
        let session = Connection::greeted(&path, Role::UI).expect("greeted");
        session.send(&u64::MAX.to_le_bytes()).expect("sent");
        nobody_waits(stage, "sessions that do not read");
        drop(sessions);
    });
}

#[test]
fn a_server_that_hangs_in_a_request_holds_up_only_those_who_ask_it() {
    Stage::run(|stage| {
        stage.script("MPS_SIM_HANG_REQUEST=0x11\n");
        stage.start(&[]);
        let client = Program::attached(stage, 1000);
        let server = stage.only(Part::Server);
        stage.script("");
        let _other = Program::attached(stage, ROOT);
        let asks = Connection::greeted(&stage.pipe_dir().join("control"), Role::UI).expect("greeted");
        let line = format!("get_server_status {server}\n\0");
        asks.send(&(line.len() as u64).to_le_bytes()).and_then(|()| asks.send(line.as_bytes())).expect("sent");
        nobody_waits(stage, "a server that hangs in a request");
        // Who asked is told in the end.
        let answer = asks.receive().expect("answered in time").bytes;
        assert!(String::from_utf8_lossy(&answer).contains("does not answer"), "{answer:?}");
        drop(client);
    });
}

#[test]
fn a_server_that_hangs_before_its_hello_holds_up_only_its_own_user() {
    for place in ["start", "role", "hello"] {
        Stage::run(|stage| {
            stage.config("start_timeout = 2\nkill_timeout = 0.5\n");
            stage.script(&format!("MPS_SIM_HANG={place}\n"));
            stage.start(&[]);
            let waits = Program::start(stage, 1000);
            stage.wait_for("its server", || stage.pids(Part::Server).len() == 1);
            let hung = stage.only(Part::Server);
            stage.wait_for("its behaviour read", || {
                std::fs::read_to_string(format!("/proc/{hung}/wchan")).is_ok_and(|wchan| wchan != "0")
            });
            stage.script("");
            let _other = Program::attached(stage, ROOT);
            nobody_waits(stage, place);
            // It is given up, and its user served by another one.
            waits.expect("attached");
            stage.lab().wait_gone(hung);
        });
    }
}

#[test]
fn a_server_that_does_not_read_holds_up_only_its_own_user() {
    Stage::run(|stage| {
        stage.start(&[]);
        let _client = Program::attached(stage, 1000);
        let server = stage.only(Part::Server);
        let _other = Program::attached(stage, ROOT);
        kill(server, Signal::SIGSTOP).expect("it is ours");
        let _waiting: Vec<_> = (0..10).map(|_| Program::start(stage, 1000)).collect();
        let asks: Vec<_> = (0..10)
            .map(|_| {
                let ui = Connection::greeted(&stage.pipe_dir().join("control"), Role::UI).expect("greeted");
                let line = b"ps\n\0";
                ui.send(&(line.len() as u64).to_le_bytes()).and_then(|()| ui.send(line)).expect("sent");
                ui
            })
            .collect();
        nobody_waits(stage, "a stopped server");
        kill(server, Signal::SIGCONT).expect("it is ours");
        for ui in asks {
            assert!(!ui.receive().expect("answered").bytes.is_empty());
        }
    });
}

#[test]
fn a_client_that_stops_in_its_handshake_holds_up_other_users_not_at_all() {
    Stage::run(|stage| {
        stage.start(&[]);
        let _user = Program::attached(stage, 1000);
        let _root = Program::attached(stage, ROOT);
        // It has said its role, and then takes nothing.
        let stuck = Arriving::connect(stage.pipe_dir(), LIMIT).expect("greeted");
        let command = best(|| command_time(stage));
        assert!(command < SOON, "a command took {command:?}");
        let mut other = Program::attached(stage, 1000);
        other.ping();
        // Its own server waits for it, as the vendor's does, until the daemon finishes the handshake for it.
        drop(stuck);
        Peer::attach(stage.pipe_dir(), LIMIT).expect("served");
    });
}

#[test]
fn clients_behind_one_that_stops_in_its_handshake_are_all_served() {
    Stage::run(|stage| {
        stage.script("MPS_SIM_INIT_MS=500\n");
        stage.start(&[]);
        // The first of all is handed over, and then does nothing with what it has.
        let stuck = Arriving::connect(stage.pipe_dir(), LIMIT).expect("greeted");
        stage.wait_for("the first client", || stage.daemon().output().contains("NEW CLIENT"));
        let pipe_dir = stage.pipe_dir().to_owned();
        std::thread::scope(|scope| {
            let behind: Vec<_> = (0..40).map(|_| scope.spawn(|| Peer::attach(&pipe_dir, LIMIT)?.ping())).collect();
            for client in behind {
                client.join().expect("no panic").expect("served in the end");
            }
        });
        drop(stuck);
    });
}
