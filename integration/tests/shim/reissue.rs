//! Work that a neighbour's fault has cost is done again where that is known to be right, and told as lost everywhere else.

use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::shim;
use integration::sim::{Sim, error_of, find_event};
use integration::under_test::{Subject, once};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A program that was recovered once, with this at the end of its work: its line of the recovery.
fn recovered(subject: &Subject, kernel: &str, is_reissuing: bool) -> Value {
    let sim = Sim::started(subject, &[]);
    let arguments = ["--idle", "--tail", kernel, "--recoveries", "1", "--seconds", "600"];
    let mut command = shim::recording(sim.command("mps-replay-probe", &arguments));
    command.env("MPS_SHIM_REPLAY", "in-place").env("MPS_SHIM_REISSUE", if is_reissuing { "1" } else { "0" });
    let probe = Process::start(&mut command);
    // Asked for before, since the first kernel takes 1.5 s and no longer.
    let server = Pid::from_raw(sim.server());
    sim.wait_event(&probe, "tail");
    // Under its work, of which nothing but the first kernel can have begun.
    kill(server, Signal::SIGKILL).expect("it runs");
    let finished = probe.finish(LIMIT).expect("it ends");
    assert_eq!(error_of(&finished), None, "{subject}: {finished:?}");
    let output = finished.stdout_text();
    assert_eq!(find_event(&output, "end").expect("it ended well")["is_intact"], true, "{subject}: {output}");
    let line = find_event(&output, "recovered").expect("it was recovered");
    assert_eq!(line["is_told_right"], true, "{subject}: {line}");
    line
}

#[test]
fn copies_sets_and_idempotent_kernels_are_done_again_and_the_program_is_unaware() {
    once(|subject| {
        let line = recovered(subject, "spin", true);
        let recovery = &line["recovery"];
        assert_eq!((&line["told"], recovery["reissued"].as_u64()), (&Value::Null, Some(4)), "{subject}: {line}");
        let lost = (recovery["lost_streams"].as_u64(), recovery["lost_work"].as_u64(), recovery["in_doubt"].as_u64());
        assert_eq!(lost, (Some(0), Some(0), Some(0)), "{subject}: {line}");
    });
}

#[test]
fn a_kernel_that_nobody_has_said_to_be_idempotent_is_lost_with_all_that_was_with_it() {
    once(|subject| {
        for (kernel, is_reissuing) in [("increment", true), ("spin", false)] {
            let line = recovered(subject, kernel, is_reissuing);
            let recovery = &line["recovery"];
            assert_eq!(
                (line["told"].as_u64(), recovery["reissued"].as_u64()),
                (Some(806), Some(0)),
                "{subject}: {line}"
            );
            assert_eq!((recovery["lost_streams"].as_u64(), recovery["lost_work"].as_u64()), (Some(1), Some(4)));
            assert!(recovery["in_doubt"].as_u64() > Some(0), "{subject}: {line}");
            assert_eq!(recovery["in_doubt"], recovery["ranges_in_doubt"], "{subject}: {line}");
        }
    });
}
