//! The preloaded library around programs of the lab.

pub mod heir;

use crate::under_test::{build, target_dir};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The library, built once in each test process in the profile that users build; or the one that
/// `MPS_SHIM_UNDER_TEST` names, which may be built faster.
///
/// # Panics
/// When it does not build.
#[must_use]
pub fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            if let Some(given) = std::env::var_os("MPS_SHIM_UNDER_TEST") {
                return given.into();
            }
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let target = target_dir();
            let built = Command::new(cargo)
                .args(["build", "--quiet", "--package", "remps-client-shim", "--profile", "shim", "--target-dir"])
                .arg(&target)
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .stdin(Stdio::null())
                .output()
                .expect("a test runs under cargo");
            assert!(built.status.success(), "the library does not build:\n{}", String::from_utf8_lossy(&built.stderr));
            target.join("shim/libmps_client_shim.so")
        })
        .clone()
}

/// The library with the named steps at which tests stop or kill a program: it has them in the profile for debugging alone.
/// Built once in each test process.
///
/// # Panics
/// When it does not build.
#[must_use]
pub fn with_steps() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            build("remps-client-shim", &[]).unwrap_or_else(|skipped| panic!("{skipped}"));
            target_dir().join("debug/libmps_client_shim.so")
        })
        .clone()
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
