//! `[replay]`: what the daemon's configuration has for programs under the library that say nothing themselves.

use super::replay::{events, is_whole};
use integration::lab::LIMIT;
use integration::lab::process::{Finished, Process};
use integration::shim;
use integration::sim::{Sim, error_of};
use integration::under_test::once;
use nix::sys::signal::{Signal, kill};
use remps_proto::shim::DEFAULTS_NAME;
use std::os::unix::fs::MetadataExt;

const SPARE: &str = "[replay]\nkeep = \"state\"\nrecover = \"spare\"\n";
/// In which way a recovery was made, as `mps_shim.h` has it.
const COLD: u64 = 0;
const NO_SPARE: u64 = 2;

/// A program with these variables that a neighbour's fault hits.
fn is_hit(sim: &Sim, variables: &[(&str, &str)]) -> Finished {
    let arguments = ["--recoveries", "1", "--seconds", "600"];
    let mut command = sim.command("mps-replay-probe", &arguments);
    command.env("LD_PRELOAD", shim::library()).envs(variables.iter().copied());
    let program = Process::start(&mut command);
    sim.wait_event(&program, "ready");
    assert_eq!(error_of(&sim.run("mps-aggressor", &["oob"])), Some(700));
    program.finish(LIMIT).expect("it ends")
}

fn ways(finished: &Finished) -> Vec<u64> {
    events(finished, "recovered").iter().filter_map(|line| line["recovery"]["way"].as_u64()).collect()
}

#[test]
fn a_program_that_says_nothing_gets_what_the_daemon_is_set_to_and_its_own_word_wins() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let file = sim.lab.pipe_dir().join(DEFAULTS_NAME);
        // Without a spare server, so that which way is taken does not hang on how fast a spare copy is made.
        sim.config(&format!("[domains]\nspares = false\n{SPARE}"));
        sim.lab.start(&[]);
        assert_eq!(std::fs::metadata(&file).expect("it is there").mode() & 0o777, 0o644);
        let status = sim.lab.ask("status\n");
        assert!(status.contains("Programs with the preload library: keep state, recover spare"), "{status}");
        let finished = is_hit(&sim, &[]);
        is_whole(&finished, 1, &subject.to_string());
        assert_eq!(ways(&finished), [NO_SPARE], "{subject}: {finished:?}");
        let finished = is_hit(&sim, &[("MPS_SHIM_REPLAY", "in-place")]);
        is_whole(&finished, 1, &subject.to_string());
        assert_eq!(ways(&finished), [COLD], "{subject}: {finished:?}");
        for own in [("MPS_SHIM_REPLAY", "0"), ("MPS_SHIM_KEEP", "0"), ("MPS_SHIM_KEEP", "memory")] {
            let finished = is_hit(&sim, &[own]);
            assert!(error_of(&finished).is_some() && ways(&finished).is_empty(), "{subject}: {own:?}: {finished:?}");
            assert!(!finished.stderr_text().contains("needs MPS_SHIM_KEEP"), "{subject}: {own:?}: {finished:?}");
        }
        // A successor with another configuration takes it away, and so does the daemon's end.
        let daemon = sim.lab.running_daemon();
        kill(daemon, Signal::SIGKILL).expect("it runs");
        sim.lab.wait_gone(daemon);
        sim.config("");
        sim.lab.start(&[]);
        assert!(!file.exists(), "{subject}: nothing is set");
        let finished = is_hit(&sim, &[]);
        assert!(error_of(&finished).is_some(), "{subject}: {finished:?}");
    });
}

#[test]
fn a_daemon_that_ends_takes_what_it_has_for_programs_along() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let file = sim.lab.pipe_dir().join(DEFAULTS_NAME);
        sim.config(SPARE);
        sim.lab.start(&[]);
        assert!(file.exists(), "{subject}");
        let daemon = sim.lab.running_daemon();
        let _ = sim.lab.ask("quit\n");
        sim.lab.wait_gone(daemon);
        assert!(!file.exists(), "{subject}");
    });
}
