//! Random CUDA programs under the library, and those that have once shown a wrong byte.

use integration::lab::LIMIT;
use integration::lab::process::{Finished, run};
use integration::lab::stage::is_long;
use integration::shim;
use integration::sim::Sim;
use integration::under_test::{Subject, once};
use serde_json::Value;

/// Operations of the fixed share, and of the long variant.
const SHARE: u64 = 20_000;
const LONG_SHARE: u64 = 1_000_000;

fn checked(subject: &Subject, arguments: &[&str]) -> (Finished, Vec<Value>) {
    // The simulated driver tells of a program's own faults at once, since nobody looks at how late it does.
    let at_once = [("MPS_SIM_DEVICES", "2"), ("MPS_SIM_OWN_FAULT_MS", "0"), ("MPS_SIM_OWN_MEMORY_FAULT_MS", "0")];
    let sim = Sim::new(subject, &at_once);
    let mut command = shim::recording(sim.command("mps-checker", arguments));
    command.env("MPS_SHIM_REPLAY", "in-place").env_remove("MPS_SHIM_REPORT");
    let finished = run(&mut command, b"", LIMIT * if is_long() { 60 } else { 1 }).expect("the checker runs");
    let lines = finished.stdout_text().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    (finished, lines)
}

#[test]
fn programs_that_have_shown_a_mistake_show_it_no_more() {
    once(|subject| {
        let (finished, lines) = checked(subject, &["--cases"]);
        let cases: Vec<&Value> = lines.iter().filter(|line| line["event"] == "case").collect();
        assert!(!cases.is_empty(), "{subject}: {finished:?}");
        let wrong: Vec<_> = cases.iter().filter(|case| !case["found"].is_null()).collect();
        assert!(wrong.is_empty(), "{subject}: {wrong:#?}");
    });
}

#[test]
fn no_random_program_gets_a_wrong_byte() {
    once(|subject| {
        let share = if is_long() { LONG_SHARE } else { SHARE }.to_string();
        let (finished, lines) = checked(subject, &["--operations", &share, "--jobs", "2", "--shrinkings", "60"]);
        let end = lines.iter().find(|line| line["event"] == "end").unwrap_or_else(|| panic!("{subject}: {finished:?}"));
        assert_eq!((&end["found"], finished.code), (&0.into(), Some(0)), "{subject}: {finished:?}");
    });
}
