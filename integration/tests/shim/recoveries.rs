//! What a recovery took, as the operator reads it: in the journal, the metrics, the events of its fault and the status.

use integration::lab::LIMIT;
use integration::lab::process::{Process, run};
use integration::shim;
use integration::sim::{Sim, error_of, wait};
use integration::under_test::once;
use nix::sys::signal::{Signal, kill};
use serde_json::Value;

/// What the library says when a copy is ready.
const STANDS: &str = "a spare copy of the driver stands";

fn objects(answer: &str) -> Vec<Value> {
    answer.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The events of the newest fault that the daemon has a verdict on.
fn events_of_fault(sim: &Sim) -> Vec<Value> {
    let number = |fault: &Value| fault["number"].as_u64();
    let newest = objects(&sim.lab.ask("get_fault_list --json\n")).iter().filter_map(number).next_back();
    newest.map_or_else(Vec::new, |fault| objects(&sim.lab.ask(&format!("get_fault_events {fault} --json\n"))))
}

/// A program that is recovered from a neighbour's fault, as it is set: what the operator reads of it is checked against
/// what the program itself is told.
fn recovers(replay: &str, spares: bool, way: &str) {
    once(|subject| {
        let sim = Sim::watched(subject, &[]);
        sim.config(&format!("[domains]\nspares = {spares}\n"));
        sim.lab.start(&[]);
        // After one recovery it goes on, until it is killed: whoever ends at once may take its word along.
        let arguments = ["--recoveries", "2", "--seconds", "600"];
        let mut command = shim::recording(sim.command("mps-replay-probe", &arguments));
        let program = Process::start(command.env("MPS_SHIM_REPLAY", replay).env("MPS_SHIM_LOG", "1"));
        sim.wait_event(&program, "ready");
        if replay == "spare" && spares {
            wait(&sim, "a spare copy", || program.errors().contains(STANDS));
            wait(&sim, "the daemon knows", || sim.lab.ask("status\n").contains("ready"));
        }
        let pid = program.pid().as_raw();
        assert_eq!(error_of(&sim.run("mps-aggressor", &["oob"])), Some(700), "{subject}");
        let is_its = |event: &&Value| event["event"] == "client-recovered" && event["process"]["pid"] == pid;
        let told = || objects(&sim.lab.ask("events --json\n")).iter().find(is_its).cloned();
        wait(&sim, "the word of the library", || told().is_some());
        let event = told().expect("it was there");
        assert_eq!((&event["way"], &event["number"]), (&way.into(), &1.into()), "{subject}: {event}");
        let total = event["total_ms"].as_f64().expect("a time");
        let steps = event["steps_ms"].as_object().expect("steps");
        let sum: f64 = steps.values().filter_map(Value::as_f64).sum();
        assert!(total > 0.0 && sum > 0.0 && sum <= total + 0.001, "{subject}: {event}");
        assert_eq!(event["switch_ms"]["lead"].is_f64(), way == "spare", "{subject}: {event}");
        wait(&sim, "the events of its fault", || events_of_fault(&sim).iter().any(|event| is_its(&event)));
        let metrics = sim.lab.ask("metrics\n");
        let label = way.replace('-', "_");
        assert!(metrics.contains(&format!("mps_client_recovery_seconds_count{{way=\"{label}\"}} 1\n")), "{metrics}");
        assert!(metrics.contains("mps_client_recovery_step_seconds_total{"), "{metrics}");
        sim.wait_event(&program, "recovered");
        kill(program.pid(), Signal::SIGKILL).expect("it runs");
        let finished = program.finish(LIMIT).expect("it ends");
        let output = finished.stdout_text();
        let line = objects(&output).into_iter().find(|line| line["event"] == "recovered").expect("its own word");
        let total_us = line["recovery"]["total_us"].as_f64().expect("a time");
        assert!((total_us - total * 1e3).abs() < 0.5, "{subject}: {line} is told as {event}");
    });
}

#[test]
fn what_a_recovery_with_the_spare_copy_took_reaches_the_operator() {
    recovers("spare", true, "spare");
}

#[test]
fn what_a_recovery_without_a_spare_copy_took_reaches_the_operator_and_why() {
    recovers("spare", false, "no-spare");
    recovers("in-place", true, "cold");
}

#[test]
fn why_a_program_is_not_recovered_reaches_the_operator() {
    once(|subject| {
        let sim = Sim::watched(subject, &[]);
        sim.lab.start(&[]);
        let arguments = ["--faults", "oob", "--light", "--linker"];
        let mut command = shim::recording(sim.command("mps-replay-probe", &arguments));
        // It ends at once with its error.
        let finished = run(command.env("MPS_SHIM_REPLAY", "in-place"), b"", LIMIT).expect("the probe runs");
        assert_eq!(error_of(&finished), Some(700), "{subject}: {finished:?}");
        let told =
            || objects(&sim.lab.ask("events --json\n")).into_iter().find(|of| of["event"] == "client-unrecovered");
        wait(&sim, "the word of the library", || told().is_some());
        let event = told().expect("it was there");
        assert!(event["reason"].as_str().is_some_and(|reason| reason.contains("cuLinkCreate")), "{subject}: {event}");
        assert_eq!((&event["error"], &event["final"]), (&700.into(), &false.into()), "{subject}: {event}");
        let metrics = sim.lab.ask("metrics\n");
        assert!(metrics.contains("mps_client_recoveries_refused_total{final=\"no\"} 1\n"), "{metrics}");
        wait(&sim, "the events of its fault", || {
            events_of_fault(&sim).iter().any(|event| event["event"] == "client-unrecovered")
        });
    });
}
