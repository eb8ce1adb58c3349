//! Functions of the driver's private tables of which nobody knows what they take.

use super::replay::{finished, is_whole};
use integration::shim;
use integration::sim::Sim;
use integration::under_test::once;

#[test]
fn a_private_table_among_the_drivers_variables_leaves_them_as_they_were() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let arguments = ["--light", "--private", "count"];
        let finished = finished(&mut shim::recording(sim.command("mps-replay-probe", &arguments)));
        is_whole(&finished, 0, &format!("{subject}"));
    });
}
