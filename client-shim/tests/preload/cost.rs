//! What a call costs that only passes through.

use std::io::Write;

use crate::lab::{Lab, run};

/// What the library may add to a call, in picoseconds.
const MOST: i64 = 30_000;
/// The same where the program is to be recovered.
const MOST_REPLAYING: i64 = 100_000;

#[test]
fn a_call_that_passes_through_costs_a_few_nanoseconds() {
    let lab = Lab::new();
    let program = lab.compile("cost.c", "cost", &[]);
    let picoseconds = |output: &str| output.trim().parse::<i64>().expect("a number");
    let plain = picoseconds(&run(&mut lab.plain(&program)).stdout);
    for (keep, replay) in [("memory", ""), ("state", ""), ("state", "in-place")] {
        let mut command = lab.preloaded(&program);
        command.env("MPS_SHIM_KEEP", keep).env("MPS_SHIM_REPLAY", replay);
        let kept = picoseconds(&run(&mut command).stdout);
        let how = format!("MPS_SHIM_KEEP={keep} MPS_SHIM_REPLAY={replay}");
        // Not `println!`, which the test harness hides when the test passes.
        writeln!(std::io::stderr(), "a call takes {plain} ps, with {how} {kept} ps").unwrap();
        let most = if replay.is_empty() { MOST } else { MOST_REPLAYING };
        assert!(kept - plain < most, "{how}: {plain} ps became {kept} ps");
    }
}
