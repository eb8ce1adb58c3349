//! Programs share memory and an event, and go on with them after faults, under the library that recovers.
//!
//! Scenes are those of `mps-ipc-probe --events`, where each byte is compared and each answer is looked at.

use integration::lab::LIMIT;
use integration::lab::process::run;
use integration::shim;
use integration::sim::{Sim, find_event};
use integration::under_test::once;
use std::process::Command;
use std::time::Duration;

/// How long two dozen scenes may take: a quarter minute where nothing else runs.
const ALL: Duration = LIMIT.saturating_mul(4);

/// Plays scenes, all where none is named.
fn play(mut command: Command, context: &str) {
    let finished = run(&mut command, b"", ALL).expect("the probe runs");
    let text = finished.stdout_text();
    let end = find_event(&text, "end").unwrap_or_else(|| panic!("{context}: {text}\n{}", finished.stderr_text()));
    assert_eq!(end["is_right"], true, "{context}: {text}\n{}", finished.stderr_text());
}

fn command(sim: &Sim, scenes: &[&str], way: &str) -> Command {
    let mut command = shim::recording(sim.command("mps-ipc-probe", &[&["--events"], scenes].concat()));
    command.env("MPS_SHIM_REPLAY", way);
    command
}

const SEEDS: [&str; 3] = ["at_random:2", "at_random:3", "at_random:4"];

#[test]
fn what_programs_share_is_right_in_any_order() {
    once(|subject| play(command(&Sim::new(subject, &[]), &SEEDS, "in-place"), &format!("{subject} without MPS")));
}

/// There each one's fault is the others' too, whenever they hear of it.
#[test]
fn programs_share_events_on_one_server() {
    const SCENES: [&str; 4] =
        ["without_faults", "owner_is_killed_when_it_is_done", "at_random_together:5", "at_random_together:7"];
    once(|subject| play(command(&Sim::started(subject, &[]), &SCENES, "in-place"), &format!("{subject} under MPS")));
}

/// The first record is held in one stream, so that it comes when the last of eight in the other one can. What others see of it is
/// written late.
#[test]
fn a_records_number_is_not_taken_back_by_an_earlier_one_of_another_stream() {
    once(|subject| {
        let sim = Sim::new(subject, &[("MPS_SIM_SLOW_WRITE", "9:2:200")]);
        play(command(&sim, &["numbers_are_not_taken_back"], "in-place"), &subject.to_string());
    });
}

#[test]
fn programs_share_events_and_go_on_with_spare_copies() {
    once(|subject| {
        let (sim, other) = (Sim::new(subject, &[]), Sim::started(subject, &[]));
        for scene in ["owner_goes_on_with_a_spare_copy", "peer_goes_on_with_a_spare_copy"] {
            let mut command = command(&sim, &[scene], "spare");
            shim::asked_by_tests(&mut command).env("MPS_SHIM_TEST_SPARE", other.lab.pipe_dir());
            play(command, &format!("{subject}: {scene}"));
        }
    });
}

#[test]
fn programs_share_events_through_faults_and_ends() {
    once(|subject| play(command(&Sim::new(subject, &[]), &[], "in-place"), &format!("{subject} without MPS")));
}

/// As above, where the daemon gives each of them a server for a spare copy.
#[test]
fn programs_share_events_on_one_server_with_spare_copies() {
    const SCENES: [&str; 2] = ["without_faults", "at_random_together:3"];
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        play(command(&sim, &SCENES, "spare"), &format!("{subject} with spare copies"));
    });
}
