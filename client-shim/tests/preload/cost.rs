//! Calls that only pass through, many of them, whatever the library keeps. What one costs is for the benchmark to say
//! (`integration::bench`), which runs the same program.

use crate::lab::{Lab, run};

#[test]
fn a_call_that_passes_through_has_the_drivers_answer_every_time() {
    let lab = Lab::new();
    let program = lab.compile("cost.c", "cost", &[]);
    let is_a_number = |output: &str| assert!(output.trim().parse::<i64>().is_ok(), "{output:?}");
    is_a_number(&run(lab.plain(&program).arg("5")).stdout);
    for (keep, replay) in [("memory", ""), ("state", ""), ("state", "in-place")] {
        let mut command = lab.preloaded(&program);
        command.arg("5").env("MPS_SHIM_KEEP", keep).env("MPS_SHIM_REPLAY", replay);
        // It ends with an error when one of its calls has another answer than the driver's.
        is_a_number(&run(&mut command).stdout);
    }
}
