//! The preloaded library on a real GPU: the same programs as on the simulated driver, with the machine's own driver and
//! in the environment that the tests were started in, with or without MPS.

use integration::lab::process::{Finished, run};
use integration::shim;
use integration::sim::{error_of, find_event};
use integration::under_test::{self, Skipped};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The driver's kernel module says its version here. A device node says nothing: it may be left over.
const MODULE: &str = "/proc/driver/nvidia/version";
/// Eight victims at once wait for each other in the driver for more than a second; this is far above.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs `test` where there is a GPU, or says why not.
fn on_a_gpu(test: impl FnOnce()) {
    if Path::new(MODULE).exists() {
        test();
    } else {
        Skipped(format!("there is no {MODULE}")).report();
    }
}

fn program(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(under_test::program(name));
    // cargo puts its build folder there, in which the simulated driver lies.
    command.args(arguments).env_remove("LD_LIBRARY_PATH");
    command
}

fn finished(mut command: Command) -> Finished {
    run(&mut command, b"", LIMIT).expect("it runs")
}

fn facts(finished: &Finished) -> Value {
    assert_eq!(error_of(finished), None, "{finished:?}");
    let mut facts = find_event(&finished.stdout_text(), "facts").unwrap_or_else(|| panic!("no facts: {finished:?}"));
    for varying in ["pid", "t_ms"] {
        facts.as_object_mut().expect("a line is an object").remove(varying);
    }
    facts
}

#[test]
fn a_program_on_a_gpu_sees_no_difference() {
    on_a_gpu(|| {
        let native = facts(&finished(program("mps-memory-probe", &[])));
        let kept = finished(shim::recording(program("mps-memory-probe", &[])));
        assert_eq!(facts(&kept), native, "{}", kept.stderr_text());
    });
}

#[test]
fn memory_on_a_gpu_outlives_a_programs_own_fault_and_its_sudden_death() {
    on_a_gpu(|| {
        let library = shim::library().into_os_string().into_string().expect("the build folder's path is text");
        for (kind, lost) in [("own-trap", Some(719)), ("own-oob", Some(700)), ("killed", None)] {
            let survived = finished(program("mps-survivor", &[kind, "--library", &library]));
            let output = survived.stdout_text();
            let adopted = find_event(&output, "adopted").unwrap_or_else(|| panic!("{kind}: {survived:?}"));
            assert_eq!(
                (adopted["lost"].as_u64(), &adopted["by"]["is_intact"]),
                (lost, &true.into()),
                "{kind}: {adopted}"
            );
        }
    });
}
