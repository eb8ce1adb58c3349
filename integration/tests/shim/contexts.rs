//! Memory that is kept ends with its context, as the driver's own does, and a fault elsewhere leaves a program no worse
//! off than without the library.

use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::shim;
use integration::sim::{Sim, error_of, find_event};
use integration::under_test::once;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn keeping(sim: &Sim, arguments: &[&str]) -> Process {
    let process = Process::start(&mut shim::recording(sim.command("mps-bystander", arguments)));
    sim.wait_event(&process, "ready");
    process
}

#[test]
fn a_context_that_is_reset_after_the_servers_death_leaves_nothing_behind() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        // So many steps that the first context never gets there, and few enough for the second.
        let process = keeping(&sim, &["--reset", "--steps", "6000"]);
        kill(Pid::from_raw(sim.server()), Signal::SIGKILL).expect("it runs");
        let finished = process.finish(LIMIT).expect("it ends");
        let output = finished.stdout_text();
        assert_eq!(error_of(&finished), None, "{subject}: {output}");
        let end = find_event(&output, "end").expect("it ended well");
        assert_eq!((end["steps"].as_u64(), end["is_intact"].as_bool()), (Some(6000), Some(true)), "{subject}");
        let errors = finished.stderr_text();
        let report = errors.lines().find_map(|line| serde_json::from_str::<Value>(line).ok()).expect("a report");
        // One allocation, one module and two kernels of the second context; those of the first went with it.
        assert_eq!(
            (&report["kept"]["blocks"], &report["kept"]["slabs"]),
            (&1.into(), &1.into()),
            "{subject}: {report}"
        );
        let recorded = ["modules", "functions"].map(|kind| report["recorded"][kind].as_u64());
        assert_eq!(recorded, [Some(1), Some(2)], "{subject}: {report}");
    });
}

#[test]
fn a_fault_elsewhere_is_the_same_error_as_without_the_library() {
    once(|subject| {
        for (kind, number) in [("oob", 700), ("trap", 719)] {
            let sim = Sim::started(subject, &[]);
            let process = keeping(&sim, &[]);
            assert_eq!(error_of(&sim.run("mps-aggressor", &[kind])), Some(number), "{subject}");
            let finished = process.finish(LIMIT).expect("it ends");
            assert_eq!(error_of(&finished), Some(number), "{subject}: {}", finished.stdout_text());
            let errors = finished.stderr_text();
            let report = errors.lines().find_map(|line| serde_json::from_str::<Value>(line).ok()).expect("a report");
            assert_eq!(report["kept"]["descriptors"], 1, "{subject}: its memory is still held: {report}");
        }
    });
}
