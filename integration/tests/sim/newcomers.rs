//! A newcomer that comes to a server with other clients while one of them faults: who can be saved is, with the real
//! daemon between the simulated driver and server.

use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::lab::watch::wait_for;
use integration::sim::{Sim, error_of, find_event, wait};
use integration::under_test::{Subject, for_each, only_ours};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The bystander's connections are the first and the second.
const NEWCOMERS_OWN: u32 = 3;
const NEWCOMERS_CONTEXT: u32 = 4;

fn once(test: impl Fn(&Subject)) {
    for_each(only_ours().map(|subjects| subjects.into_iter().skip(1).collect()), test);
}

/// More than any test waits for, as a multiple of the daemon's own deadlines.
const ENDLESS: (&str, &str) = ("MPS_TEST_PATIENCE", "100000");

/// A program that has its process's connection on its way to a server that is stopped, and is followed by the daemon; and
/// that server.
fn on_its_way(sim: &Sim, arguments: &[&str]) -> (Process, Pid) {
    drop(sim.lab.ask(&format!("start_server -uid {}\n", nix::unistd::getuid())));
    let server = Pid::from_raw(sim.server());
    sim.lab.wait_log("control.log", &format!("NEW SERVER {server}: Ready"));
    kill(server, Signal::SIGSTOP).expect("the server is there");
    let client = Process::start(&mut sim.command("mps-first-alloc", arguments));
    wait(sim, "the client is followed", || sim.lab.ask("status\n").contains("follows 1 client"));
    (client, server)
}

#[test]
fn a_newcomer_gets_its_context_though_a_look_at_it_does_not_come_back() {
    once(|subject| {
        let sim = Sim::watched(subject, &[("MPS_SIM_UVM_STAY_AGAIN", "1"), ENDLESS]);
        sim.lab.start(&[]);
        let (client, server) = on_its_way(&sim, &[]);
        kill(server, Signal::SIGCONT).expect("the server is there");
        let finished = sim.finish(client);
        assert_eq!(error_of(&finished), None, "{subject}");
        assert!(find_event(&finished.stdout_text(), "allocated").is_some(), "{subject}: {}", finished.stdout_text());
    });
}

fn bystander(sim: &Sim) -> Process {
    sim.start("mps-bystander", &[], "ready")
}

fn code(sim: &Sim, process: Process) -> Option<u64> {
    error_of(&sim.finish(process))
}

/// What becomes of a newcomer when somebody else traps at a step of its way.
fn newcomer_when(subject: &Subject, step: &str, connection: u32) -> Option<u64> {
    let number = connection.to_string();
    let sim = Sim::new(subject, &[("MPS_SIM_FAULT_AT", step), ("MPS_SIM_FAULT_AT_CONNECTION", number.as_str())]);
    sim.lab.start(&[]);
    let victim = bystander(&sim);
    // So late that no earlier word of the server will do: it is asked for each connection.
    let result = error_of(&sim.run("mps-first-alloc", &["--pause-ms", "20"]));
    assert_eq!(code(&sim, victim), Some(719), "{subject}: {step} of {connection}");
    assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{subject}: the next one after {step}");
    // None at all where the only victim had left before the daemon could ask: the server is sound again then.
    let log = sim.lab.log("control.log");
    let starts = log.matches("Starting new server").count();
    assert!(starts <= 2, "{subject}: one server more at the most: {step} of {connection}: {log}");
    result
}

#[test]
fn a_newcomer_is_served_at_whatever_step_of_its_way_the_fault_comes_until_it_has_its_end() {
    once(|subject| {
        for connection in [NEWCOMERS_OWN, NEWCOMERS_CONTEXT] {
            for step in ["status", "told"] {
                assert_eq!(newcomer_when(subject, step, connection), None, "{subject}: {step} of {connection}");
            }
        }
    });
}

#[test]
fn a_newcomer_that_has_its_end_when_the_fault_comes_is_refused_by_its_server() {
    once(|subject| {
        for connection in [NEWCOMERS_OWN, NEWCOMERS_CONTEXT] {
            assert_eq!(newcomer_when(subject, "credentials", connection), Some(807), "{subject}: {connection}");
            // Whether it has its end yet is a matter of microseconds.
            let greeted = newcomer_when(subject, "greeted", connection);
            assert!([None, Some(807)].contains(&greeted), "{subject}: {connection}: {greeted:?}");
        }
    });
}

#[test]
fn a_server_that_hangs_with_a_stopped_victim_keeps_nobody_out_and_loses_nobody() {
    once(|subject| {
        let sim = Sim::started(subject, &[("MPS_SIM_HANG_WITH_STOPPED", "1")]);
        let (stopped, other) = (bystander(&sim), bystander(&sim));
        let hung = sim.server();
        stopped.signal(Signal::SIGSTOP);
        assert_eq!(code(&sim, sim.start("mps-aggressor", &["trap"], "launched")), Some(719), "{subject}");
        // It may have its own connection to the silent server when that falls silent.
        assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{subject}");
        assert!(sim.servers().contains(&hung), "{subject}: it is left to its clients");
        assert!(find_event(&other.output(), "error").is_none(), "{subject}");
        stopped.signal(Signal::SIGCONT);
        assert_eq!((code(&sim, stopped), code(&sim, other)), (Some(719), Some(719)), "{subject}");
        let dir = sim.lab.dir();
        wait_for(dir, dir, LIMIT, "the silent server's end", || !sim.servers().contains(&hung));
        assert_eq!(sim.servers().len(), 1, "{subject}");
    });
}
