//! Random CUDA programs under the library, and those that have once shown a wrong byte.

use integration::lab::LIMIT;
use integration::lab::process::{Finished, run};
use integration::lab::stage::is_long;
use integration::shim;
use integration::sim::Sim;
use integration::under_test::{Subject, once};
use serde_json::Value;

/// Operations of the fixed share, of that with spare copies, and of the long variant.
const SHARE: u64 = 20_000;
const SPARE_SHARE: u64 = 5_000;
const LONG_SHARE: u64 = 1_000_000;

fn checked(subject: &Subject, replay: &str, arguments: &[&str]) -> (Finished, Vec<Value>) {
    // The simulated driver tells of a program's own faults at once, since nobody looks at how late it does.
    let at_once = [("MPS_SIM_DEVICES", "2"), ("MPS_SIM_OWN_FAULT_MS", "0"), ("MPS_SIM_OWN_MEMORY_FAULT_MS", "0")];
    let sim = Sim::new(subject, &at_once);
    let mut command = shim::recording(sim.command("mps-checker", arguments));
    command.env("MPS_SHIM_REPLAY", replay).env_remove("MPS_SHIM_REPORT");
    // Without a daemon a spare copy stands where the program does, on the GPU itself.
    command.env("MPS_SHIM_TEST_SPARE", sim.lab.pipe_dir());
    let finished = run(&mut command, b"", LIMIT * if is_long() { 60 } else { 1 }).expect("the checker runs");
    let lines = finished.stdout_text().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    (finished, lines)
}

#[test]
fn programs_that_have_shown_a_mistake_show_it_no_more() {
    once(|subject| {
        let (finished, lines) = checked(subject, "in-place", &["--cases"]);
        let cases: Vec<&Value> = lines.iter().filter(|line| line["event"] == "case").collect();
        assert!(!cases.is_empty(), "{subject}: {finished:?}");
        let wrong: Vec<_> = cases.iter().filter(|case| !case["found"].is_null()).collect();
        assert!(wrong.is_empty(), "{subject}: {wrong:#?}");
    });
}

fn is_right(replay: &str, share: u64) {
    once(|subject| {
        let share = if is_long() { LONG_SHARE } else { share }.to_string();
        let (finished, lines) =
            checked(subject, replay, &["--operations", &share, "--jobs", "2", "--shrinkings", "60"]);
        let end = lines.iter().find(|line| line["event"] == "end").unwrap_or_else(|| panic!("{subject}: {finished:?}"));
        assert_eq!((&end["found"], finished.code), (&0.into(), Some(0)), "{subject}: {finished:?}");
        assert_eq!(end["by_spare"].as_u64().is_some_and(|count| count > 0), replay == "spare", "{subject}: {end}");
    });
}

#[test]
fn no_random_program_gets_a_wrong_byte() {
    is_right("in-place", SHARE);
}

/// Faults come at any point of a copy's making, following and switch.
#[test]
fn no_random_program_gets_a_wrong_byte_by_a_spare_copy() {
    is_right("spare", SPARE_SHARE);
}
