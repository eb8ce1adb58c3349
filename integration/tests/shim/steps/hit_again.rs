//! A program that is hit again at a step of its recovery begins again with another copy of the driver.

use super::{REPLAY, Victim, files_held, is_stopped, started, strike, wait};
use integration::lab::LIMIT;
use integration::lab::process::{Finished, Process};
use integration::shim;
use integration::sim::{Sim, error_of, find_event};
use integration::under_test::once;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A program of one fault with this at a step of its recovery, and what is done when it has come there; what it has said when
/// it ends.
fn hit_again(sim: &Sim, at: &str, strike: impl FnOnce(Pid)) -> Finished {
    let arguments = ["--faults", "trap", "--light", "--until-stdin-closes"];
    let mut command = shim::recording(sim.command("mps-replay-probe", &arguments));
    let library = shim::with_steps().to_str().expect("a plain path").to_owned();
    command.envs([("MPS_SHIM_REPLAY", "in-place"), ("LD_PRELOAD", &library), ("MPS_SHIM_TEST_AT", at)]);
    let probe = Process::start_with_input(&mut command);
    strike(probe.pid());
    probe.finish(LIMIT).expect("it ends")
}

/// It has gone on and was not refused for good. Where the driver hears of the hit when the program's calls go on it has work
/// that this costs, of which it is told, and it takes nothing wrong for right.
fn has_gone_on(finished: &Finished, context: &str) {
    let (text, output) = (finished.stderr_text(), finished.stdout_text());
    let refused: Vec<&str> = text.lines().filter(|line| line.contains("not recovered")).collect();
    assert!(refused.is_empty(), "{context}: {finished:?}");
    assert!(text.contains("recovered from CUDA error 719"), "{context}: {finished:?}");
    assert!(!output.contains("\"is_intact\":false"), "{context}: {finished:?}");
    assert_eq!(find_event(&output, "end").is_some(), error_of(finished).is_none(), "{context}: {finished:?}");
}

#[test]
fn a_program_whose_server_dies_at_any_step_of_its_recovery_begins_again_and_goes_on() {
    once(|subject| {
        for step in REPLAY {
            let sim = started(subject);
            let finished = hit_again(&sim, &format!("stop:{step}"), |pid| strike(&sim, pid, Victim::Servers, step));
            has_gone_on(&finished, &format!("{subject}: its servers at {step}"));
        }
    });
}

#[test]
fn a_program_hit_by_a_neighbour_at_any_step_of_its_recovery_begins_again_and_goes_on() {
    once(|subject| {
        for step in REPLAY {
            let context = format!("{subject}: a neighbour at {step}");
            let sim = started(subject);
            let finished = hit_again(&sim, &format!("stop:{step}"), |pid| {
                wait(&sim, &format!("the stop at {step}"), || is_stopped(pid));
                assert!(error_of(&sim.run("mps-aggressor", &["trap"])).is_some(), "{context}");
                kill(pid, Signal::SIGCONT).expect("it is ours");
            });
            has_gone_on(&finished, &context);
        }
    });
}

/// Where each copy is hit, whenever the driver hears of it.
#[test]
fn a_program_whose_copies_are_hit_one_after_the_other_begins_again_seven_times_and_is_refused_then() {
    const COPIES: usize = 8;
    once(|subject| {
        for step in ["copy-hit-early", "copy-hit-late"] {
            for hits in [1, COPIES - 1, COPIES] {
                let context = format!("{subject}: hit {hits} times, {step}");
                let sim = started(subject);
                let finished = hit_again(&sim, &format!("fail:{step}:{hits}"), |_| {});
                let text = finished.stderr_text();
                let begun_again = text.matches("the fresh copy of the driver was hit itself").count();
                assert_eq!(begun_again, hits.min(COPIES - 1), "{context}: {finished:?}");
                if hits < COPIES {
                    has_gone_on(&finished, &context);
                    assert_eq!(error_of(&finished), None, "{context}: {finished:?}");
                    let last = &find_event(&finished.stdout_text(), "end").expect("it ends")["last"];
                    assert_eq!((&last["begun_again"], &last["count"]), (&hits.into(), &1.into()), "{context}: {last}");
                } else {
                    assert!(text.contains("not recovered from CUDA error 719"), "{context}: {finished:?}");
                    assert!(error_of(&finished).is_some() && finished.signal.is_none(), "{context}: {finished:?}");
                }
                assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{context}: the next one is served");
                wait(&sim, &format!("{context}: no descriptor of memory"), || files_held(&sim) == 0);
            }
        }
    });
}
