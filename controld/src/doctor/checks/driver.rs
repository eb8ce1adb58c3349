//! The driver: its kernel module, its library, and our patch of it.

use crate::doctor::Outcome;
use crate::doctor::machine::{Machine, read};
use crate::io::server_version::{of_kernel_module, of_library};
use remps_proto::admin::Personality;
use std::ops::RangeInclusive;

/// Where the module tells its version.
const VERSION_FILE: &str = "driver/nvidia/version";

/// Releases whose wire and answers were seen; others are played as the next of these.
const KNOWN_RELEASES: RangeInclusive<u32> = 535..=599;

fn kernel_version(machine: &Machine) -> Option<String> {
    of_kernel_module(&machine.proc(VERSION_FILE))
}

pub(super) fn driver(machine: &Machine) -> Outcome {
    let Some(version) = kernel_version(machine) else {
        return Outcome::problem(
            "the NVIDIA kernel module is not loaded, or not visible here",
            "no CUDA program runs",
            "modprobe nvidia; in a container, start it with the NVIDIA runtime",
        );
    };
    let is_open = read(&machine.proc(VERSION_FILE)).is_some_and(|text| text.contains("Open Kernel Module"));
    let kind = if is_open { "open" } else { "proprietary" };
    let major = version.split('.').next().and_then(|number| number.parse().ok());
    if !major.is_some_and(|major| KNOWN_RELEASES.contains(&major)) {
        let played = Personality::from_driver_version(&version).map(|release| release.to_string()).unwrap_or_default();
        return Outcome::warning(
            format!("{version} ({kind} kernel module), a release that this program does not know"),
            format!("answers are those of release {played}, and the servers' protocol may be another"),
            "MPS_PERSONALITY chooses another release to play; look for a newer version of this program",
        );
    }
    Outcome::ok(format!("{version}, {kind} kernel module"))
}

pub(super) fn library(machine: &Machine) -> Outcome {
    let Some(library) = of_library(machine.library_folders.iter().cloned()) else {
        return Outcome::warning(
            "libcuda.so.1 is in none of the usual folders, or its file has no version in its name",
            "servers, which load it, do not start unless the loader finds it elsewhere",
            "install the driver's libraries, or name their folder in LD_LIBRARY_PATH",
        );
    };
    match kernel_version(machine) {
        None => {
            Outcome::note(format!("{} ({}); there is no module to compare", library.version, library.source), "", "")
        }
        Some(kernel) if kernel != library.version => Outcome::problem(
            format!("{} ({}) against module {kernel}", library.version, library.source),
            "CUDA programs and servers fail with error 803 or 804, unless the library is a compatibility package",
            "install one release of both, and load its module again",
        ),
        Some(_) => Outcome::ok(format!("{}, as the module", library.version)),
    }
}

pub(super) fn patched_module(machine: &Machine) -> Outcome {
    const WITHOUT: &str = "a memory fault of one client ends all clients of its server";
    let parameter = |name: &str| read(&machine.sys("module/nvidia_uvm/parameters").join(name));
    let Some(mode) = parameter("uvm_mps_mode") else {
        return Outcome::note("not installed", WITHOUT, "see uvm-fault-isolation(4) for what it does and needs");
    };
    let has_device = machine.dev("nvidia-uvm-mps").exists();
    match mode.trim() {
        "2" if has_device => Outcome::ok("isolates"),
        "1" if has_device => Outcome::note("observes only", WITHOUT, "load nvidia-uvm with uvm_mps_mode=2"),
        "1" | "2" => Outcome::warning(
            "loaded, but /dev/nvidia-uvm-mps is missing here",
            "its notices reach no daemon of this machine or container",
            "give the daemon's container the device",
        ),
        "0" => Outcome::note("loaded and off", WITHOUT, "load nvidia-uvm with uvm_mps_mode=1 or 2"),
        other => Outcome::unknown(format!("uvm_mps_mode is {other}")),
    }
}
