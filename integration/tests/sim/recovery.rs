//! Which lost contexts can be cured in place: as measured on an H200 (`cuDevicePrimaryCtxReset` and a new context).

use integration::lab::process::Process;
use integration::sim::{Sim, error_of, find_event};
use integration::under_test::{for_each, subjects};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// So late that a server dies before it has told its clients of a fault; its culprit does not wait for that.
const LATE: &[(&str, &str)] =
    &[("MPS_SIM_FAULT_MS", "3600000"), ("MPS_SIM_OWN_FAULT_MS", "5"), ("MPS_SIM_OWN_MEMORY_FAULT_MS", "15")];

/// A bystander that works until it loses its context, and makes so many steps with the next one.
fn resetting(sim: &Sim, steps: &str) -> Process {
    sim.start("mps-bystander", &["--reset", "--steps-after-reset", steps], "ready")
}

fn lost_code(output: &str) -> Option<u64> {
    find_event(output, "lost")?.get("code")?.as_u64()
}

#[test]
fn after_the_servers_death_a_reset_brings_the_program_to_a_new_server() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let process = resetting(&sim, "100");
        let server = sim.server();
        kill(Pid::from_raw(server), Signal::SIGKILL).expect("it runs");
        let finished = sim.finish(process);
        let output = finished.stdout_text();
        assert_eq!((lost_code(&output), error_of(&finished)), (Some(806), None), "{subject}: {output}");
        let recovered = find_event(&output, "recovered").expect("it says so");
        if subject.ours {
            // The vendor may send a client to a server that has died and that it has not missed yet: 805.
            assert_eq!(recovered["tries"].as_u64(), Some(1), "{subject}: {output}");
        }
        let end = find_event(&output, "end").expect("it ended well");
        assert_eq!((end["steps"].as_u64(), end["is_intact"].as_bool()), (Some(100), Some(true)), "{subject}");
        assert_ne!(sim.server(), server, "{subject}");
    });
}

#[test]
fn a_fault_that_has_reached_the_programs_own_channel_sticks_to_the_process() {
    for_each(subjects(), |subject| {
        for (kind, number) in [("oob", 700), ("trap", 719)] {
            let sim = Sim::started(subject, &[]);
            let process = resetting(&sim, "1000000");
            let aggressor = sim.run("mps-aggressor", &[kind]);
            assert_eq!(error_of(&aggressor), Some(number), "{subject}");
            let finished = sim.finish(process);
            let output = finished.stdout_text();
            assert_eq!((lost_code(&output), error_of(&finished)), (Some(number), Some(number)), "{subject}: {output}");
            assert_eq!(find_event(&output, "recovered"), None, "{subject}: {output}");
        }
    });
}

#[test]
fn a_server_killed_before_it_spreads_a_fault_saves_from_a_trap_and_not_from_a_memory_fault() {
    for_each(subjects(), |subject| {
        for (kind, is_saved) in [("trap", true), ("oob", false)] {
            let sim = Sim::started(subject, LATE);
            let process = resetting(&sim, "100");
            let aggressor = sim.run("mps-aggressor", &[kind]);
            let pid = find_event(&aggressor.stdout_text(), "error").and_then(|line| line["pid"].as_i64());
            // The server has read of the fault by then.
            let gone = format!("Client process {} disconnected", pid.expect("it says its pid"));
            sim.lab.wait_log("server.log", &gone);
            kill(Pid::from_raw(sim.server()), Signal::SIGKILL).expect("it runs");
            let finished = sim.finish(process);
            let output = finished.stdout_text();
            assert_eq!(lost_code(&output), Some(806), "{subject}: {kind}: {output}");
            let expected = if is_saved { None } else { Some(700) };
            assert_eq!(error_of(&finished), expected, "{subject}: {kind}: {output}");
        }
    });
}

#[test]
fn without_mps_a_programs_own_fault_sticks_to_it_too() {
    for_each(subjects(), |subject| {
        let sim = Sim::new(subject, &[]);
        let faulted = sim.run("mps-aggressor", &["trap", "--then-reset"]);
        assert_eq!(error_of(&faulted), Some(719), "{subject}: {}", faulted.stdout_text());
        assert_eq!(find_event(&faulted.stdout_text(), "recovered"), None, "{subject}");
        assert_eq!(lost_code(&faulted.stdout_text()), Some(719), "{subject}");
        assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{subject}: the next one is unharmed");
    });
}
