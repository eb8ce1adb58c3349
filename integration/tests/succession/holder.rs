//! The holder's death, both deaths, the hand-over by SIGUSR1, and a daemon that is restarted again and again.

use integration::lab::LIMIT;
use integration::lab::client::Connection;
use integration::lab::peer::Peer;
use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage, limit_descriptors, long_or};
use integration::lab::sudden_death::{died, never_killed, nothing_leaks, settled, steady};
use nix::sys::signal::{Signal, kill};
use remps_proto::mps::handshake::Role;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const ROOT: u32 = 0;

fn kill_holder(stage: &Stage) {
    let old = stage.only(Part::Holder);
    kill(old, Signal::SIGKILL).expect("it is ours");
    stage.wait_for("another holder", || {
        let holders = stage.pids(Part::Holder);
        !holders.is_empty() && !holders.contains(&old)
    });
}

#[test]
fn a_killed_holder_is_replaced_and_the_new_one_has_everything() {
    let baseline = never_killed(&[ROOT]);
    Stage::run(|stage| {
        stage.start(&[]);
        let mut first = Program::attached(stage, ROOT);
        let server = stage.only(Part::Server);
        for _ in 0..3 {
            kill_holder(stage);
        }
        first.ping();
        let mut second = Program::attached(stage, ROOT);
        stage.kill_daemon();
        stage.start(&[]);
        first.ping();
        second.does("context", "context");
        assert_eq!(stage.servers(), [server]);
        first.leave();
        second.leave();
        nothing_leaks(stage, baseline, "a killed holder");
    });
}

#[test]
fn a_daemon_that_gets_no_holder_goes_on_and_ends_when_it_is_told_to() {
    Stage::run(|stage| {
        stage.start(&[]);
        let mut client = Program::attached(stage, ROOT);
        let server = stage.only(Part::Server);
        let daemon = stage.daemon().pid();
        let lose = || {
            // What is open for a moment only would leave room for a holder when it is closed.
            limit_descriptors(daemon, steady(stage)[0]);
            let said = || stage.daemon().output().matches("The holder process can't be started").count();
            let before = said();
            kill(stage.only(Part::Holder), Signal::SIGKILL).expect("it is ours");
            stage.wait_for("what stands in its way", || said() > before);
        };
        lose();
        client.ping();
        limit_descriptors(daemon, 4096);
        let mut second = Program::attached(stage, ROOT);
        assert_eq!(stage.servers(), [server]);
        second.ping();
        lose();
        client.leave();
        second.leave();
        stage.daemon().signal(Signal::SIGTERM);
        assert_eq!(stage.take_daemon().finish(LIMIT).expect("it ends").code, Some(0));
        stage.wait_for("everything gone", || stage.processes().is_empty());
    });
}

#[test]
fn a_daemon_that_dies_while_it_replaces_the_holder_loses_no_more_than_the_holder_had() {
    for point in ["holder-replaced", "everything-held"] {
        Stage::run(|stage| {
            stage.launch(&[], &[("MPS_TEST_KILL_AT", point)]);
            stage.wait_for("the socket", || stage.pipe_dir().join("control").exists());
            let mut client = Program::attached(stage, ROOT);
            let server = stage.only(Part::Server);
            kill(stage.only(Part::Holder), Signal::SIGKILL).expect("it is ours");
            died(stage, point);
            stage.start(&[]);
            if point == "everything-held" {
                client.ping();
                assert_eq!(stage.servers(), [server]);
            }
            Program::visits(stage, ROOT);
            settled(stage, 1);
        });
    }
}

#[test]
fn after_both_have_died_the_next_daemon_starts_afresh() {
    Stage::run(|stage| {
        stage.start(&[]);
        let _client = Program::attached(stage, ROOT);
        let server = stage.only(Part::Server);
        // First the holder and at once the daemon, before it can start another one.
        stage.daemon().signal(Signal::SIGSTOP);
        let holder = stage.only(Part::Holder);
        kill(holder, Signal::SIGKILL).expect("it is ours");
        stage.kill_daemon();
        // Until it has closed its files, whoever connects reaches a listener that nobody will ever answer.
        stage.lab().wait_gone(holder);
        // Nobody holds its control connection any longer.
        stage.lab().wait_gone(server);
        stage.start(&[]);
        Program::visits(stage, ROOT);
        settled(stage, 1);
        assert_eq!(stage.pids(Part::Holder).len(), 1);
    });
}

#[test]
fn a_signal_hands_everything_over_to_another_daemon() {
    let baseline = never_killed(&[ROOT]);
    Stage::run(|stage| {
        stage.start(&[]);
        assert_eq!(stage.ask("set_default_client_priority 1\n"), "");
        let mut first = Program::attached(stage, ROOT);
        let server = stage.only(Part::Server);
        stage.daemon().signal(Signal::SIGUSR1);
        let finished = stage.take_daemon().finish(LIMIT).expect("it ends");
        assert_eq!(finished.code, Some(0));
        assert!(stage.pipe_dir().join("control").exists());
        // It arrives in between.
        let mut second = Program::start(stage, ROOT);
        first.ping();
        stage.start(&[]);
        second.expect("attached");
        first.ping();
        second.ping();
        assert_eq!(stage.servers(), [server]);
        assert_eq!(stage.ask("get_default_client_priority\n"), "1\n");
        first.leave();
        second.leave();
        nothing_leaks(stage, baseline, "a hand-over");
    });
}

#[test]
fn a_daemon_that_ends_waits_for_its_clients_and_hands_nothing_over() {
    Stage::run(|stage| {
        stage.config("drain_timeout = 3600\n");
        stage.start(&[]);
        let mut first = Program::attached(stage, ROOT);
        let server = stage.only(Part::Server);
        let said = |stage: &Stage, text| stage.wait_for(text, || stage.daemon().output().contains(text));
        stage.daemon().signal(Signal::SIGTERM);
        said(stage, "A signal to end: ");
        stage.daemon().signal(Signal::SIGUSR1);
        said(stage, "A signal to hand over is refused: the daemon ends");
        first.ping();
        first.leave();
        let finished = stage.take_daemon().finish(LIMIT).expect("it ends");
        assert_eq!(finished.code, Some(0));
        stage.lab().wait_gone(server);
        assert!(!stage.pipe_dir().join("control").exists());
    });
}

#[test]
fn twenty_deaths_in_a_row_under_load_cost_nobody_anything() {
    let baseline = never_killed(&[ROOT]);
    Stage::run(|stage| {
        stage.start(&[]);
        let mut steady = Program::attached(stage, ROOT);
        let server = stage.only(Part::Server);
        let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
        let pipe_dir = stage.pipe_dir().to_owned();
        std::thread::scope(|scope| {
            let arrivals: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        while !over.load(Ordering::Relaxed) {
                            Peer::attach(&pipe_dir, LIMIT)?.ping()?;
                            served.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok::<(), std::io::Error>(())
                    })
                })
                .collect();
            for round in 0..long_or(100, 20) {
                let before = served.load(Ordering::Relaxed);
                stage.kill_daemon();
                stage.start(&[]);
                stage.wait_for("more clients served", || served.load(Ordering::Relaxed) >= before + 4 + round % 5);
                steady.ping();
            }
            over.store(true, Ordering::Relaxed);
            for arrival in arrivals {
                arrival.join().expect("no thread panics").expect("no client sees an error");
            }
        });
        assert_eq!(stage.servers(), [server]);
        steady.leave();
        nothing_leaks(stage, baseline, "twenty deaths");
    });
}

#[test]
fn a_holder_that_hangs_is_replaced_and_nobody_loses_anything() {
    Stage::run(|stage| {
        // As long as a daemon waits for it outside of tests.
        stage.launch(&[], &[("MPS_TEST_PATIENCE", "1")]);
        stage.wait_up();
        let mut client = Program::attached(stage, ROOT);
        let hung = stage.only(Part::Holder);
        let session = Connection::greeted(&stage.pipe_dir().join("control_privileged"), Role::UI).expect("greeted");
        let command = |line: &[u8]| {
            session.send(&(line.len() as u64).to_le_bytes()).and_then(|()| session.send(line)).expect("sent");
            session.receive().expect("answered").bytes
        };
        assert!(command(b"get_default_active_thread_percentage\n\0").ends_with(b"100.0"));
        kill(hung, Signal::SIGSTOP).expect("it is ours");
        // Each of these is told to the holder, which soon has no room left.
        for value in 0..1000 {
            let line = format!("set_default_active_thread_percentage {}\n\0", 1 + value % 99);
            assert!(!command(line.as_bytes()).is_empty());
        }
        stage.lab().wait_gone(hung);
        client.does("context", "context");
        stage.kill_daemon();
        stage.start(&[]);
        client.ping();
        assert_eq!(stage.ask("get_default_active_thread_percentage\n"), "10.0\n");
    });
}

#[test]
fn when_no_daemon_comes_back_newcomers_no_longer_wait_and_servers_live_on() {
    Stage::run(|stage| {
        stage.config("successor_wait = 0.3\n");
        stage.start(&[]);
        let mut client = Program::attached(stage, ROOT);
        stage.kill_daemon();
        stage.wait_for("the socket gone", || !stage.pipe_dir().join("control").exists());
        client.ping();
        // A late daemon takes the server back.
        let server = stage.only(Part::Server);
        stage.start(&[]);
        client.ping();
        client.does("context", "context");
        assert_eq!(stage.servers(), [server]);
    });
}
