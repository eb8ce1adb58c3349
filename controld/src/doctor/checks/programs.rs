//! Programs by name.

use crate::doctor::Outcome;
use crate::doctor::machine::Machine;
use crate::io::server_process::find_server;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Both control programs' name.
const CONTROL_PROGRAM: &str = "nvidia-cuda-mps-control";

pub(super) fn server_program(machine: &Machine) -> Outcome {
    match find_server(machine.server_binary.as_deref(), machine.search_path.as_deref()) {
        Ok(path) => Outcome::ok(path.display().to_string()),
        Err(error) => Outcome::problem(
            error.to_string(),
            "clients wait for a server that never comes",
            "install the driver's package with nvidia-cuda-mps-server, or name it in MPS_SERVER_BINARY",
        ),
    }
}

pub(super) fn path(machine: &Machine) -> Outcome {
    let Some(search_path) = &machine.search_path else {
        return Outcome::unknown("there is no PATH");
    };
    let first =
        std::env::split_paths(search_path).map(|folder| folder.join(CONTROL_PROGRAM)).find(|path| path.is_file());
    let own = &machine.own_program;
    match first {
        None => Outcome::note(
            format!("{CONTROL_PROGRAM} is in no folder of PATH"),
            "scripts, the device plugin and the container toolkit find it by name, and don't",
            format!("install {} as /usr/bin/{CONTROL_PROGRAM}", own.display()),
        ),
        Some(first) if is_same(&first, own) => Outcome::ok(format!("{}, this program", first.display())),
        Some(first) => Outcome::warning(
            format!("{} comes first, and is not this program ({})", first.display(), own.display()),
            "whoever starts the daemon by name, as the device plugin and the container toolkit do, gets that one",
            "put this one in its place: see Install in the README",
        ),
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}
