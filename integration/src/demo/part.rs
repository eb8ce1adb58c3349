//! One executable, many programs: the demonstration copies its own file under the names of the programs that it needs,
//! and each copy is the program that it is called.
//!
//! So all of it is built in one pass by the one command that starts the demonstration, and what runs is this source and
//! never an older build that lies about. The code of each program is the library that its own binary calls.

use crate::{programs, server_sim, vendor_sim};
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

/// Our daemon and its command line.
pub(super) const CONTROL: &str = "nvidia-cuda-mps-control";
/// The simulated server.
pub(super) const SERVER: &str = "nvidia-cuda-mps-server";
/// The simulated daemon of NVIDIA's.
pub(super) const VENDOR: &str = "mps-vendor-sim";
/// A client that works until it is told to stop.
pub(super) const BYSTANDER: &str = "mps-bystander";
/// A client that does one wrong or long thing.
pub(super) const AGGRESSOR: &str = "mps-aggressor";
/// A client that makes one allocation.
pub(super) const FIRST_ALLOCATION: &str = "mps-first-alloc";
/// A client that is recovered in place.
pub(super) const REPLAY: &str = "mps-replay-probe";
/// A client whose state outlives it.
pub(super) const HEIR: &str = "mps-heir";
/// Every one.
pub(super) const ALL: [&str; 8] = [CONTROL, SERVER, VENDOR, BYSTANDER, AGGRESSOR, FIRST_ALLOCATION, REPLAY, HEIR];

/// What the kernel puts behind the name of a program that was replaced while it runs, as an upgrade does.
const REPLACED: &str = " (deleted)";

/// Plays the program that this executable is called; `None` when it is called something else.
pub(super) fn play() -> Option<ExitCode> {
    let own = std::env::current_exe().ok()?;
    let name = own.file_name()?.to_str()?;
    // By its file and not by its first argument: the daemon starts itself as /proc/self/exe.
    let name = name.strip_suffix(REPLACED).unwrap_or(name);
    let arguments = || std::env::args_os().skip(1).map(text);
    Some(match name {
        CONTROL => remps_controld::run_program(),
        SERVER => server_sim::run(),
        VENDOR => vendor_sim::run(),
        BYSTANDER => programs::bystander::run(arguments()),
        AGGRESSOR => programs::aggressor::run(arguments()),
        FIRST_ALLOCATION => programs::first_alloc::run(arguments()),
        REPLAY => programs::replay_probe::run(arguments()),
        HEIR => programs::heir::run(arguments()),
        _ => return None,
    })
}

fn text(argument: OsString) -> String {
    OsStr::to_string_lossy(&argument).into_owned()
}
