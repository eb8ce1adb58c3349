//! A daemon that takes the simulated driver's memory, and what it has open when it has none.

use integration::lab::escrow::{Shim, TAKES_MEMORY_FILES};
use integration::lab::stage::Stage;
use integration::lab::sudden_death::{AtRest, steady};

pub(crate) const ROOT: u32 = 0;
pub(crate) const OTHER: u32 = 1000;

/// Starts one.
pub(crate) fn start(stage: &mut Stage) {
    stage.launch(&[], &[TAKES_MEMORY_FILES]);
    stage.wait_up();
}

/// The same, which dies at a point.
pub(crate) fn start_armed(stage: &mut Stage, point: &str) {
    stage.launch(&[], &[TAKES_MEMORY_FILES, ("MPS_TEST_KILL_AT", point)]);
    stage.wait_for("the door", || Shim::silent(stage.pipe_dir()).is_ok());
}

/// What an idle daemon and its holder have open.
pub(crate) fn idle() -> AtRest {
    let mut counts = [0; 2];
    Stage::run(|stage| {
        start(stage);
        counts = steady(stage);
    });
    counts
}
