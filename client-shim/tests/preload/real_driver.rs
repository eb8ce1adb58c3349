//! The same lookups against NVIDIA's driver library, where the machine has one. A GPU is not needed: without one
//! `cuInit` fails in the driver, after all that matters here.

use std::{io::Write, process::Command};

use crate::lab::{Lab, Ran, run};

/// `lookup <way>` with whatever driver the machine has, if it has one.
fn look_up(lab: &Lab, way: &str, set_up: impl FnOnce(&mut Command)) -> Option<Ran> {
    let lookup = lab.lookup();
    let real_driver = |command: &mut Command| {
        match std::env::var_os("LD_LIBRARY_PATH") {
            Some(path) => command.env("LD_LIBRARY_PATH", path),
            None => command.env_remove("LD_LIBRARY_PATH"),
        };
    };
    let mut probe = lab.plain("python3");
    real_driver(&mut probe);
    let script = "import ctypes\ntry: ctypes.CDLL('libcuda.so.1'); print('there')\nexcept OSError as e: print(e)";
    let there = run(probe.args(["-c", script])).stdout;
    if there.trim() != "there" {
        // Not `println!`, which the test harness hides when the test passes.
        writeln!(std::io::stderr(), "Skipped({})", there.trim()).unwrap();
        return None;
    }
    let mut command = lab.preloaded(lookup);
    real_driver(&mut command);
    command.arg(way).env("MPS_SHIM_LOG", "1");
    set_up(&mut command);
    Some(run(&mut command))
}

#[test]
fn every_lookup_of_the_real_driver_reaches_the_hook() {
    let lab = Lab::new();
    for way in ["dlsym", "default", "program", "v1", "v2", "v1-v1", "v1-v2"] {
        let Some(ran) = look_up(&lab, way, |_| {}) else { return };
        assert!(ran.stdout.starts_with("cuInit "), "{way}: {ran:?}");
        assert!(ran.said(&["cuInit: reached"]), "{way}: {ran:?}");
    }
}

#[test]
fn the_real_driver_is_not_initialised_without_a_daemon_that_is_required() {
    let lab = Lab::new();
    let Some(ran) = look_up(&lab, "v1-v2", |command| {
        command.env("MPS_SHIM_REQUIRE", "1");
    }) else {
        return;
    };
    assert_eq!(ran.stdout, "cuInit 805\n");
}

#[test]
fn the_real_drivers_other_functions_keep_their_addresses() {
    let lab = Lab::new();
    let Some(ran) = look_up(&lab, "unhooked", |_| {}) else { return };
    assert!(ran.stdout.starts_with("unhooked same "), "{ran:?}");
}
