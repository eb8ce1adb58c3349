//! The preloaded library around programs of the lab.

pub mod heir;

use crate::under_test::built_library;
use std::path::PathBuf;
use std::process::Command;

/// The library, or another build of it that `MPS_SHIM_UNDER_TEST` names: the one that is released, for example.
#[must_use]
pub fn library() -> PathBuf {
    std::env::var_os("MPS_SHIM_UNDER_TEST").map_or_else(with_steps, PathBuf::from)
}

/// The library with the named steps at which tests stop or kill a program: only a build for debugging has them.
#[must_use]
pub fn with_steps() -> PathBuf {
    built_library("libmps_client_shim.so")
}

/// The program with a build of the library that has what only tests ask for (`MPS_SHIM_TEST_…`), whichever is under test.
pub fn asked_by_tests(command: &mut Command) -> &mut Command {
    command.env("LD_PRELOAD", with_steps())
}

/// The program with all that it has kept or noted, and a report on standard error.
#[must_use]
pub fn recording(command: Command) -> Command {
    let mut command = keeping(command);
    command.env("MPS_SHIM_KEEP", "state");
    command
}

/// The program with its memory kept, and a report on standard error.
#[must_use]
pub fn keeping(mut command: Command) -> Command {
    command.env("LD_PRELOAD", library()).env("MPS_SHIM_KEEP", "memory").env("MPS_SHIM_REPORT", "stderr");
    command
}
