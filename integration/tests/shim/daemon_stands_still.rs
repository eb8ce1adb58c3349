//! A daemon that stands still, as under a debugger or on a machine that has too much to do, keeps nobody from going on with
//! a spare copy.

use super::replay::{events, is_whole};
use super::spare::{BY_THE_SPARE, has_a_spare};
use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::shim;
use integration::sim::{Sim, find_event, wait};
use integration::under_test::once;
use nix::sys::signal::{Signal, kill};

/// Until the culprit does wrong, in which the daemon is stopped.
const BEFORE_THE_FAULT_MS: &str = "5000";
/// Less than the library waits for an answer of the daemon's, which are five seconds, and more than a machine with two cores
/// and other tests on it takes.
const SOON_US: u64 = 3_000_000;
/// What the daemon has not said, as `mps_shim.h` has it.
const UNKNOWN_PART: u64 = 0;

#[test]
fn a_program_goes_on_with_its_spare_copy_while_the_daemon_stands_still() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let arguments = ["--recoveries", "1", "--seconds", "600", "--light"];
        let mut command = shim::recording(sim.command("mps-replay-probe", &arguments));
        let program = Process::start(command.env("MPS_SHIM_REPLAY", "spare").env("MPS_SHIM_LOG", "1"));
        sim.wait_event(&program, "ready");
        has_a_spare(&sim, &program);
        wait(&sim, "the daemon knows", || sim.lab.ask("status\n").contains("ready"));
        let culprit = Process::start(&mut sim.command("mps-aggressor", &["oob", "--after-ms", BEFORE_THE_FAULT_MS]));
        sim.wait_event(&culprit, "ready");
        let daemon = sim.lab.running_daemon();
        kill(daemon, Signal::SIGSTOP).expect("it is ours");
        assert!(find_event(&culprit.output(), "launched").is_none(), "{subject}: this machine is too slow");
        let finished = program.finish(LIMIT);
        kill(daemon, Signal::SIGCONT).expect("it is ours");
        let finished = finished.expect("it ends");
        is_whole(&finished, 1, &subject.to_string());
        let recovered = events(&finished, "recovered").pop().expect("one");
        let recovery = &recovered["recovery"];
        assert_eq!(recovery["way"].as_u64(), Some(BY_THE_SPARE), "{subject}: {recovered}");
        assert_eq!(recovery["part"].as_u64(), Some(UNKNOWN_PART), "{subject}: {recovered}");
        assert!(recovery["total_us"].as_u64().is_some_and(|total| total < SOON_US), "{subject}: {recovered}");
        let _its_error = culprit.finish(LIMIT).expect("it ends");
        wait(&sim, "the daemon goes on", || sim.lab.ask("status\n").starts_with("Daemon "));
    });
}
