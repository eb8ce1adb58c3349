//! Peers that are stuck, slow or rude hold up nobody.

use integration::lab::as_user::as_user;
use integration::lab::commands::{send, session};
use integration::lab::peer::{Arriving, Peer};
use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage};
use integration::lab::watch::wait_for;
use integration::lab::{LIMIT, client::Connection};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use remps_proto::mps::handshake::Role;
use std::os::fd::AsFd;

const ROOT: u32 = 0;
/// The daemon gives those who are stuck up after seconds. Whoever is held up by them is served after that, in every try;
/// a machine that stands still for so long does it in one.
const TRIES: usize = 5;

fn asked(stage: &Stage, line: &str) -> Connection {
    let ui = session(stage.pipe_dir()).expect("greeted");
    send(&ui, line).expect("sent");
    ui
}

fn a_command_is_answered(stage: &Stage) {
    let answer = asked(stage, "get_default_active_thread_percentage").receive().expect("answered").bytes;
    assert!(answer.ends_with(b"100.0"), "{answer:?}");
}

/// A command is answered and a client is served.
fn somebody_is_served(stage: &Stage) {
    a_command_is_answered(stage);
    Peer::attach(stage.pipe_dir(), LIMIT).expect("served");
}

fn shows(connection: &impl AsFd, flags: PollFlags) -> bool {
    let mut set = [PollFd::new(connection.as_fd(), flags)];
    poll(&mut set, PollTimeout::ZERO).expect("it can be asked");
    set[0].any() == Some(true)
}

/// Whether the daemon has not closed a connection.
fn is_open(connection: &Connection) -> bool {
    !shows(connection, PollFlags::empty())
}

/// Whether nothing has come over a connection, its end included.
fn is_silent(connection: &Connection) -> bool {
    !shows(connection, PollFlags::POLLIN)
}

/// Has others served beside those who are stuck; `test` says whether these were stuck still when the others had been
/// served.
fn hold_up_nobody(whom: &str, test: impl Fn(&mut Stage) -> bool) {
    for _ in 0..TRIES {
        let mut in_order = None;
        Stage::run(|stage| in_order = Some(test(stage)));
        if in_order != Some(false) {
            return;
        }
    }
    panic!("{whom}: in {TRIES} tries nobody was served before they were given up");
}

#[test]
fn peers_that_stop_anywhere_in_the_handshake_hold_up_nobody() {
    hold_up_nobody("stuck peers", |stage| {
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
        somebody_is_served(stage);
        // Half a role is refused at once.
        let in_order = silent.iter().chain(&credentials).chain(&servers).all(is_open);
        drop((silent, credentials, half, servers));
        somebody_is_served(stage);
        in_order
    });
}

#[test]
fn a_session_that_never_reads_its_answers_holds_up_nobody() {
    hold_up_nobody("sessions that do not read", |stage| {
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
        somebody_is_served(stage);
        sessions.iter().all(is_open)
    });
}

#[test]
fn a_server_that_hangs_in_a_request_holds_up_only_those_who_ask_it() {
    hold_up_nobody("a server that hangs in a request", |stage| {
        stage.script("MPS_SIM_HANG_REQUEST=0x11\n");
        stage.start(&[]);
        let client = Program::attached(stage, 1000);
        let server = stage.only(Part::Server);
        stage.script("");
        let _other = Program::attached(stage, ROOT);
        let asks = asked(stage, &format!("get_server_status {server}"));
        somebody_is_served(stage);
        let in_order = is_silent(&asks);
        // Who asked is told in the end.
        let answer = asks.receive().expect("answered in time").bytes;
        assert!(String::from_utf8_lossy(&answer).contains("does not answer"), "{answer:?}");
        drop(client);
        in_order
    });
}

/// A client whose server hangs at a place; the server has read that it shall.
fn waits_for_hung_server(stage: &mut Stage, config: &str, place: &str) -> (Program, nix::unistd::Pid) {
    stage.config(config);
    stage.script(&format!("MPS_SIM_HANG={place}\n"));
    stage.start(&[]);
    let waits = Program::start(stage, 1000);
    // It says so when it has read how it shall behave, wherever it hangs then.
    stage.wait_for("its behaviour read", || stage.daemon().output().contains("] Startup"));
    let hung = stage.only(Part::Server);
    stage.script("");
    (waits, hung)
}

#[test]
fn a_server_that_hangs_before_its_hello_holds_up_only_its_own_user() {
    for place in ["start", "role", "hello"] {
        Stage::run(|stage| {
            let (waits, hung) = waits_for_hung_server(stage, "start_timeout = 3600\n", place);
            let _other = Program::attached(stage, ROOT);
            somebody_is_served(stage);
            assert!(stage.pids(Part::Server).contains(&hung), "it is not given up: {place}");
            // Its end is its own user's first server less.
            kill(hung, Signal::SIGKILL).expect("it is ours");
            waits.expect("attached");
        });
        Stage::run(|stage| {
            // It is given up, and its user served by another one.
            let (waits, hung) = waits_for_hung_server(stage, "start_timeout = 2\nkill_timeout = 0.5\n", place);
            waits.expect("attached");
            stage.lab().wait_gone(hung);
        });
    }
}

#[test]
fn a_server_that_does_not_read_holds_up_only_its_own_user() {
    hold_up_nobody("a stopped server", |stage| {
        stage.start(&[]);
        let _client = Program::attached(stage, 1000);
        let server = stage.only(Part::Server);
        let _other = Program::attached(stage, ROOT);
        kill(server, Signal::SIGSTOP).expect("it is ours");
        let _waiting: Vec<_> = (0..10).map(|_| Program::start(stage, 1000)).collect();
        let asks: Vec<_> = (0..10).map(|_| asked(stage, "ps")).collect();
        somebody_is_served(stage);
        let in_order = asks.iter().all(is_silent);
        kill(server, Signal::SIGCONT).expect("it is ours");
        for ui in asks {
            assert!(!ui.receive().expect("answered").bytes.is_empty());
        }
        in_order
    });
}

#[test]
fn a_client_that_stops_in_its_handshake_holds_up_other_users_not_at_all() {
    hold_up_nobody("a client in its handshake", |stage| {
        stage.start(&[]);
        let _user = Program::attached(stage, 1000);
        let _root = Program::attached(stage, ROOT);
        // It has said its role, and then takes nothing.
        let stuck = Arriving::connect(stage.pipe_dir(), LIMIT).expect("greeted");
        stage.wait_for("its hand-over", || shows(stuck.socket(), PollFlags::POLLIN));
        let pipe_dir = stage.pipe_dir();
        std::thread::scope(|scope| {
            // Its own server waits for it, as the vendor's does, until the daemon finishes the handshake for it.
            let behind = scope.spawn(|| Peer::attach(pipe_dir, LIMIT)?.ping());
            a_command_is_answered(stage);
            Program::attached(stage, 1000).ping();
            let in_order = !behind.is_finished();
            drop(stuck);
            behind.join().expect("no panic").expect("served in the end");
            in_order
        })
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

/// Anybody may say that he is a server; until a server's hello that is no more than to say nothing.
#[test]
fn who_only_says_that_he_is_a_server_has_no_more_connections_than_who_says_nothing() {
    /// More than one user may have without a role.
    const MANY: usize = 600;
    const SOMEBODY: u32 = 4321;
    Stage::run(|stage| {
        stage.start(&[]);
        let path = stage.pipe_dir().join("control");
        let open = || Connection::greeted(&path, Role::SERVER).expect("it listens");
        let connections: Vec<_> = as_user(SOMEBODY, || (0..MANY).map(|_| open()).collect());
        let (first, last) = (&connections[0], &connections[MANY - 1]);
        let dir = stage.lab().dir();
        wait_for(dir, dir, LIMIT, "the last one is refused", || !is_open(last));
        assert!(is_open(first), "the first one still has time for its hello");
        somebody_is_served(stage);
    });
}
