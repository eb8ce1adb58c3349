//! The driver: its kernel module, its library, and our patch of it.

use crate::doctor::Outcome;
use crate::doctor::machine::{Machine, read};
use crate::io::server_version::{of_kernel_module, of_library};
use remps_proto::admin::Personality;
use remps_proto::notice::Mode;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::Path;

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
    const TURN_ON: &str = "load nvidia-uvm with uvm_mps_mode=1 or 2";
    let parameter = |name: &str| read(&machine.sys("module/nvidia_uvm/parameters").join(name));
    let Some(asked) = parameter("uvm_mps_mode") else {
        return match hooked_package(machine) {
            Some(package) => Outcome::warning(
                format!("{package} is to be built with it, and the module that is loaded has it not"),
                WITHOUT,
                "see what DKMS's make.log says of hooks, build and install it with --force, and load nvidia-uvm anew",
            ),
            None => Outcome::note("not installed", WITHOUT, "see uvm-fault-isolation(4) for what it does and needs"),
        };
    };
    let device = machine.dev("nvidia-uvm-mps");
    let loaded = asked.trim().parse().map(Mode);
    match (machine.fault_mode)(&device) {
        _ if loaded == Ok(Mode::OFF) && !device.exists() => Outcome::note("loaded and off", WITHOUT, TURN_ON),
        Err(error) if error.kind() == ErrorKind::NotFound => Outcome::warning(
            "loaded, but /dev/nvidia-uvm-mps is missing here",
            "its notices reach no daemon of this machine or container",
            "give the daemon's container the device",
        ),
        // What it was loaded with says nothing of what it has been told since, and of what it has refused.
        Err(error) => Outcome::unknown(format!("loaded with uvm_mps_mode={}; what it does now: {error}", asked.trim())),
        Ok(Mode::ISOLATE) => Outcome::ok("isolates"),
        Ok(Mode::OBSERVE) if loaded == Ok(Mode::ISOLATE) => Outcome::warning(
            "observes only, though loaded to isolate",
            WITHOUT,
            "see the kernel's messages: a driver that it was not tested on needs uvm_mps_untested; else who has set it",
        ),
        Ok(Mode::OBSERVE) => Outcome::note("observes only", WITHOUT, "load nvidia-uvm with uvm_mps_mode=2"),
        Ok(Mode::OFF) => Outcome::note("loaded and off", WITHOUT, TURN_ON),
        Ok(Mode(other)) => Outcome::unknown(format!("its mode is {other}")),
    }
}

/// The DKMS package that is to be built with the hooks of the patched module.
fn hooked_package(machine: &Machine) -> Option<String> {
    let files = std::fs::read_dir(machine.root.join("etc/dkms")).ok()?;
    let of = |path: &Path| read(path).filter(|text| text.contains("nvidia-uvm-mps/dkms/prebuild"));
    let mut paths = files.filter_map(|file| Some(file.ok()?.path()));
    let path = paths.find(|path| path.extension() == Some("conf".as_ref()) && of(path).is_some())?;
    Some(path.file_stem()?.to_string_lossy().into_owned())
}
