//! A server that a fault has spoilt is buried when those who recover have their contexts, and not before.
//!
//! A debug build keeps the recovering thread before its contexts until the test says that it may go on. By the configuration
//! the server is to be ended as soon as the fault is known, so that nothing but the hold keeps it.

use super::replay::is_whole;
use integration::lab::LIMIT;
use integration::lab::process::{Process, run};
use integration::shim;
use integration::sim::{Sim, error_of, wait};
use integration::under_test::{Subject, once};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn go(sim: &Sim) -> PathBuf {
    sim.lab.dir().join("go")
}

/// All of what the daemon has told so far, in order.
fn told(sim: &Sim) -> Vec<Value> {
    let answer = sim.lab.ask("events --json\n");
    answer.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).collect()
}

fn is(event: &Value, name: &str) -> bool {
    event["event"] == name
}

/// Where one of these is among the events, and the event.
fn first(sim: &Sim, name: &str) -> Option<(usize, Value)> {
    let all = told(sim);
    let at = all.iter().position(|event| is(event, name))?;
    Some((at, all[at].clone()))
}

/// When the last line with this was written to a log of the daemon's folder, as the line says.
fn written(sim: &Sim, log: &str, what: &str) -> String {
    let text = sim.lab.log(log);
    let line = text.lines().rfind(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what} in {text}"));
    line.chars().skip(1).take("2026-11-26 13:54:18.671".len()).collect()
}

/// A daemon that ends a spoilt server at once, unless it waits for so many seconds for those who recover.
fn bench(subject: &Subject, hold: u32) -> Sim {
    let sim = Sim::watched(subject, &[]);
    sim.config(&format!("[faults]\nvictims_timeout = 0\n[replay]\nburial_hold = {hold}\n"));
    sim.lab.start(&[]);
    sim
}

/// A program that has met a neighbour's fault, and stands still before it has its contexts again.
fn before_its_contexts(sim: &Sim) -> Process {
    let arguments = ["--light", "--at-once", "--seconds", "600", "--recoveries", "1"];
    let mut command = shim::recording(sim.command("mps-replay-probe", &arguments));
    command.env("MPS_SHIM_REPLAY", "in-place");
    shim::asked_by_tests(&mut command).env("MPS_SHIM_TEST_AT", "hold:copy-initialised");
    let program = Process::start(command.env("MPS_SHIM_TEST_GO", go(sim)));
    sim.wait_event(&program, "ready");
    // Its own error, or that of its server's end.
    assert!(error_of(&sim.run("mps-aggressor", &["oob"])).is_some());
    wait(sim, "the step", || go(sim).with_extension("held").exists());
    program
}

fn goes_on(sim: &Sim, program: Process, subject: &Subject) {
    fs::write(go(sim), "").expect("the folder is ours");
    is_whole(&program.finish(LIMIT).expect("it ends"), 1, &subject.to_string());
}

#[test]
fn a_spoilt_server_is_ended_when_who_recovers_has_its_contexts() {
    once(|subject| {
        let sim = bench(subject, 3600);
        let program = before_its_contexts(&sim);
        let pid = program.pid().as_raw();
        wait(&sim, "the culprit's end", || first(&sim, "client-ended").is_some());
        for name in ["server-exited", "burial-held", "funeral-ended"] {
            assert_eq!(first(&sim, name), None, "{subject}");
        }
        goes_on(&sim, program, subject);
        wait(&sim, "the server's end", || first(&sim, "server-exited").is_some());
        let (at, held) = first(&sim, "burial-held").expect("it was held back");
        let wanted = [&held["clients"], &held["back"], &held["reason"]];
        assert_eq!(wanted, [&Value::from(1), &Value::from(1), &Value::from("over")], "{subject}: {held}");
        let (ended, _) = first(&sim, "server-exited").expect("it was there");
        assert!(at < ended, "{subject}: {at} {ended}");
        // The server's own line: the daemon may hear of the context from the program before it has it from the server.
        let active = written(&sim, "server.log", &format!("Status of client {{PID: {pid}, Context ID: 1}} is ACTIVE"));
        let buried = written(&sim, "control.log", "was not buried for");
        assert!(active <= buried, "{subject}: {active} {buried}");
        let metrics = sim.lab.ask("metrics\n");
        assert!(metrics.contains("mps_burial_hold_seconds_count{reason=\"over\"} 1\n"), "{metrics}");
        let page = sim.lab.ask("get_fault_events 1 --json\n");
        assert!(page.contains("burial-held"), "{subject}: it belongs to the fault: {page}");
    });
}

#[test]
fn the_copies_of_a_culprit_that_has_ended_stay_open_as_long() {
    once(|subject| {
        let sim = bench(subject, 3600);
        let program = before_its_contexts(&sim);
        wait(&sim, "the culprit's end", || first(&sim, "funeral-begun").is_some());
        goes_on(&sim, program, subject);
        wait(&sim, "their end", || first(&sim, "funeral-ended").is_some());
        let (_, funeral) = first(&sim, "funeral-ended").expect("it was there");
        assert_eq!(funeral["reason"], "recovered", "{subject}: {funeral}");
    });
}

#[test]
fn nobody_is_waited_for_longer_than_the_operator_wants() {
    for (hold, reason) in [(0, None), (1, Some("timed-out"))] {
        once(|subject| {
            let sim = bench(subject, hold);
            let program = before_its_contexts(&sim);
            wait(&sim, "the server's end", || first(&sim, "server-exited").is_some());
            let held = first(&sim, "burial-held").map(|(_, held)| held["reason"].clone());
            assert_eq!(held, reason.map(Value::from), "{subject}");
            goes_on(&sim, program, subject);
        });
    }
}

/// A program of the same user, on the server in the spoilt one's place, wants more than there is.
#[test]
fn an_allocation_that_finds_no_memory_has_what_is_held_let_go_of() {
    // The simulated driver says so when the process may have no such addresses: 60 TiB, of ten that it may have.
    const TOO_MUCH_MIB: &str = "62914560";
    const LIMITED: &str = "ulimit -v 10737418240 && exec \"$0\" \"$@\"";
    const OUT_OF_MEMORY: u64 = 2;
    once(|subject| {
        let sim = bench(subject, 3600);
        let program = before_its_contexts(&sim);
        wait(&sim, "the culprit's end", || first(&sim, "funeral-begun").is_some());
        let allocating = shim::recording(sim.command("mps-first-alloc", &["--mib", TOO_MUCH_MIB]));
        let mut command = Command::new("sh");
        command.args(["-c", LIMITED]).arg(allocating.get_program()).args(allocating.get_args());
        command.envs(allocating.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let finished = run(command.env("MPS_SHIM_REPLAY", "in-place"), b"", LIMIT).expect("it runs");
        assert_eq!(error_of(&finished), Some(OUT_OF_MEMORY), "{subject}: {finished:?}");
        let (_, held) = first(&sim, "burial-held").unwrap_or_else(|| panic!("{subject}: {finished:?}"));
        assert_eq!((&held["reason"], &held["back"]), (&"memory".into(), &0.into()), "{subject}: {held}");
        let (_, funeral) = first(&sim, "funeral-ended").expect("and with it the culprit's");
        assert_eq!(funeral["reason"], "recovered", "{subject}: {funeral}");
        goes_on(&sim, program, subject);
    });
}

#[test]
fn an_earlier_library_that_says_nothing_is_not_waited_for() {
    once(|subject| {
        let sim = bench(subject, 3600);
        // What is not recovered says nothing, as no earlier library does.
        let mut command =
            shim::recording(sim.command("mps-replay-probe", &["--light", "--seconds", "600", "--recoveries", "1"]));
        let program = Process::start(&mut command);
        sim.wait_event(&program, "ready");
        assert!(error_of(&sim.run("mps-aggressor", &["oob"])).is_some(), "{subject}");
        wait(&sim, "the server's end", || first(&sim, "server-exited").is_some());
        assert_eq!(first(&sim, "burial-held"), None, "{subject}");
        drop(program);
    });
}
