//! `doctor` on this machine, whatever it lacks, with daemons in every state.

use integration::lab::LIMIT;
use integration::lab::process::ended_within;
use integration::sim::Sim;
use integration::under_test::{for_each, only_ours};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;

/// The findings by name, and the exit status.
fn examine(sim: &Sim) -> (Vec<Value>, Option<i32>) {
    let finished = sim.lab.run(&["doctor", "--json"], b"");
    assert_eq!(finished.stderr_text(), "");
    let report: Value = serde_json::from_slice(&finished.stdout).expect("it is JSON");
    (report["findings"].as_array().expect("there are findings").clone(), finished.code)
}

#[track_caller]
fn assert_finding(findings: &[Value], id: &str, severity: &str, says: &str) {
    let finding = findings.iter().find(|finding| finding["id"] == id).expect("every check has one");
    assert_eq!(finding["severity"], severity, "{finding}");
    assert!(finding["what"].as_str().expect("a text").contains(says), "{finding}");
}

#[test]
fn it_finds_a_daemon_that_answers_and_judges_that_daemons_rights() {
    for_each(only_ours(), |subject| {
        let sim = Sim::started(subject, &[]);
        let client = sim.start("mps-bystander", &[], "ready");
        let (findings, _) = examine(&sim);
        assert_finding(&findings, "daemon", "ok", "1 server");
        assert_finding(&findings, "mount-namespace", "ok", "same pipe directory");
        assert_finding(&findings, "stale-files", "ok", "none");
        assert_finding(&findings, "server-program", "ok", "nvidia-cuda-mps-server");
        drop(client);
    });
}

#[test]
fn without_a_daemon_it_says_what_programs_do() {
    for_each(only_ours(), |subject| {
        let sim = Sim::new(subject, &[]);
        let (findings, _) = examine(&sim);
        assert_finding(&findings, "daemon", "warning", "no daemon");
        assert_finding(&findings, "mount-namespace", "note", "no daemon");
    });
}

#[test]
fn a_daemon_that_is_stopped_or_killed_is_a_problem_that_ends_with_status_1() {
    for_each(only_ours(), |subject| {
        let sim = Sim::started(subject, &[]);
        let daemon = sim.lab.running_daemon();
        kill(daemon, Signal::SIGSTOP).expect("it runs");
        let (findings, status) = examine(&sim);
        assert_finding(&findings, "daemon", "problem", "does not answer");
        assert_eq!(status, Some(1), "{subject}");
        kill(daemon, Signal::SIGKILL).expect("it runs");
        assert!(ended_within(daemon, LIMIT), "{subject}");
        let (findings, status) = examine(&sim);
        assert_finding(&findings, "daemon", "problem", "kept for a new one");
        assert_eq!(status, Some(1), "{subject}");
    });
}

#[test]
fn a_bad_configuration_is_found_before_the_daemon_meets_it() {
    for_each(only_ours(), |subject| {
        let sim = Sim::new(subject, &[]);
        let path = sim.lab.dir().join("c.toml");
        std::fs::write(&path, "[faults]\nculprit = 1\nbogus = 2\n").expect("the bench's folder is ours");
        let run = |arguments: &[&str]| sim.lab.finish(sim.lab.command(arguments).env("MPS_CONTROL_CONFIG", &path), b"");
        let report = run(&["doctor", "--json"]);
        let report: Value = serde_json::from_slice(&report.stdout).expect("it is JSON");
        assert_finding(report["findings"].as_array().expect("findings"), "config", "problem", "line 3: faults.bogus");
        let started = run(&["-d"]);
        assert_eq!((started.code, started.stdout_text().as_str()), (Some(1), ""), "{subject}");
        let checked = run(&["--check-config"]);
        assert_eq!((checked.code, &checked.stderr), (Some(1), &started.stderr), "the same words: {checked:?}");
        assert_eq!(checked.stderr_text().lines().count(), 2, "{checked:?}");
        std::fs::write(&path, "[faults]\nculprit = \"terminate\"\n").expect("the bench's folder is ours");
        let checked = run(&["--check-config"]);
        assert_eq!((checked.code, checked.stderr_text().as_str()), (Some(0), ""), "{checked:?}");
        assert!(checked.stdout_text().contains("line 2"), "{checked:?}");
    });
}

#[test]
fn a_file_with_a_key_that_was_a_setting_once_is_named_by_the_log_and_by_doctor_and_does_no_harm() {
    for_each(only_ours(), |subject| {
        let sim = Sim::new(subject, &[]);
        sim.config("[faults]\nsettle_time = 0.5\n");
        sim.lab.start(&[]);
        let named = "line 2: faults.settle_time: no longer a setting; the value is 0.012 because";
        sim.lab.wait_log("control.log", named);
        let (findings, _) = examine(&sim);
        assert_finding(&findings, "config", "warning", named);
    });
}
