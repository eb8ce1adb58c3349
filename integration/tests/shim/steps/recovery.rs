//! Whoever is killed at any step of a recovery, nothing torn is taken for good.

use super::{Victim, armed, files_held, started, strike, wait};
use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::shim;
use integration::sim::{error_of, find_event};
use integration::under_test::once;

/// Steps of a program that is recovered in place.
pub(super) const REPLAY: [&str; 19] = [
    "gate-closed",
    "threads-out",
    "dead-unmapped",
    "name-freed",
    "copy-found",
    "copy-loaded",
    "copy-leads",
    "copy-initialised",
    "contexts-again",
    "memory-again",
    "objects-again",
    "private-led",
    "handles-renamed",
    "generation-known",
    "gate-open",
    "burial-begun",
    "dead-silenced",
    "dead-amputated",
    "renewal-told",
];
/// Steps of one whose server has ended, and nobody says so.
pub(super) const UNPROVEN: [&str; 1] = ["dead-cut-early"];

fn replay(victim: Victim) {
    once(|subject| {
        for step in REPLAY {
            let context = format!("{victim:?} at {step}");
            let sim = started(subject);
            let mut command = shim::recording(
                sim.command("mps-replay-probe", &["--faults", "trap", "--light", "--until-stdin-closes"]),
            );
            command.env("MPS_SHIM_REPLAY", "in-place").envs(armed(victim, step, 1));
            // The last step is one of a thread of the library, which the program's end would forestall.
            let probe = Process::start_with_input(&mut command);
            strike(&sim, probe.pid(), victim, step);
            let finished = probe.finish(LIMIT).expect("it ends");
            let output = finished.stdout_text();
            assert!(find_event(&output, "wrong").is_none(), "{context}: {finished:?}");
            match victim {
                Victim::Program => assert_eq!(finished.signal, Some(9), "{context}: {finished:?}"),
                Victim::Servers | Victim::Daemon => {
                    // Either it goes on with every byte right, or it ends with an error and takes nothing for good.
                    let end = find_event(&output, "end");
                    let is_whole = end.is_some_and(|end| end["is_intact"] == true);
                    assert_eq!(is_whole, error_of(&finished).is_none(), "{context}: {finished:?}");
                    assert_eq!(finished.signal, None, "{context}: {finished:?}");
                }
            }
            assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{context}: the next one is served");
            wait(&sim, &format!("{context}: no descriptor of memory"), || files_held(&sim) == 0);
        }
    });
}

#[test]
fn a_program_killed_at_any_step_of_its_recovery_leaves_its_neighbours_unharmed() {
    replay(Victim::Program);
}

#[test]
fn a_server_killed_at_any_step_of_a_recovery_costs_the_program_no_torn_byte() {
    replay(Victim::Servers);
}

#[test]
fn a_daemon_killed_at_any_step_of_a_recovery_costs_the_program_no_torn_byte() {
    replay(Victim::Daemon);
}
