//! Device files and the modes of GPUs.

use crate::core::{ComputeMode, GpuPlace, Grouping, Sharing};
use crate::doctor::Outcome;
use crate::doctor::machine::{Gpu, Machine, numbers_in};
use crate::witness::gpus;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;

/// Reading and writing for everybody.
const FOR_ALL: u32 = 0o006;

pub(super) fn devices(machine: &Machine) -> Outcome {
    let gpus = gpu_files(machine);
    let names = ["nvidiactl", "nvidia-uvm"].into_iter().map(str::to_owned).chain(gpus.iter().cloned());
    let names: Vec<String> = names.collect();
    let missing: Vec<&str> = names.iter().filter(|name| !machine.dev(name).exists()).map(String::as_str).collect();
    if !missing.is_empty() {
        return Outcome::problem(
            format!("missing in /dev: {}", missing.join(", ")),
            "no server starts",
            "nvidia-modprobe -c 0 -u makes them; a container gets them from the NVIDIA runtime",
        );
    }
    if gpus.is_empty() {
        return Outcome::problem(
            "/dev has no GPU (nvidia0, nvidia1, …)",
            "no server starts",
            "nvidia-smi makes them; a container gets them from the NVIDIA runtime",
        );
    }
    for name in ["nvidiactl", "nvidia-uvm"] {
        if let Err(error) = (machine.open)(&machine.dev(name)) {
            return Outcome::problem(
                format!("/dev/{name} can't be opened: {error}"),
                "no server starts from here",
                "grant the device to this user or to the container's control group",
            );
        }
    }
    let is_closed = |name: &&String| {
        fs::metadata(machine.dev(name)).is_ok_and(|found| found.permissions().mode() & FOR_ALL != FOR_ALL)
    };
    let closed: Vec<&str> = names.iter().filter(is_closed).map(String::as_str).collect();
    if !closed.is_empty() {
        return Outcome::warning(
            format!("not for everybody: {}", closed.join(", ")),
            "servers, which run as their clients' users, start for some users only",
            "set NVreg_DeviceFileMode=0666 for the module nvidia, unless that is meant",
        );
    }
    let count = format!("nvidiactl, nvidia-uvm, {} GPU{}", gpus.len(), if gpus.len() == 1 { "" } else { "s" });
    let named = named_gpus(machine);
    if gpus.len() > 1 && named.is_empty() {
        return Outcome::note(
            format!("{count}, whose names /proc/driver/nvidia does not tell"),
            "a fault on one GPU counts as a fault on all",
            "a container gets that folder from the NVIDIA runtime; witness.gpus in mps-control.toml says where it is",
        );
    }
    Outcome::ok(if named.is_empty() { count } else { format!("{count}: {}", named.join(" ")) })
}

/// The GPUs by their UUIDs, each with its MIG instances.
fn named_gpus(machine: &Machine) -> Vec<String> {
    let name = |place: GpuPlace| match &place.instances[..] {
        [] => place.uuid,
        instances => {
            let numbers: Vec<String> = instances.iter().map(|number| format!("gi{number}")).collect();
            format!("{} (MIG {})", place.uuid, numbers.join(" "))
        }
    };
    // Where the daemon looks, too.
    let Ok(configured) = machine.config.as_ref().map(|config| config.witness.gpus.as_str()) else {
        return Vec::new();
    };
    if configured.is_empty() {
        return Vec::new();
    }
    gpus::list(&machine.root.join(configured.trim_start_matches('/'))).into_iter().map(name).collect()
}

/// `nvidia0`, `nvidia1`, … of `/dev`.
fn gpu_files(machine: &Machine) -> Vec<String> {
    let of_folder = fs::read_dir(machine.dev("")).into_iter().flatten().flatten();
    let mut names: Vec<String> = of_folder
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.strip_prefix("nvidia").is_some_and(|number| number.parse::<u32>().is_ok()))
        .collect();
    names.sort();
    names
}

pub(super) fn uvm_tools(machine: &Machine) -> Outcome {
    const COSTS: &str = "nobody names the culprit of a memory fault with certainty, except the patched module";
    let is_wanted = machine.config.as_ref().is_ok_and(|config| config.witness.uvm);
    match (machine.open)(&machine.dev("nvidia-uvm-tools")) {
        Ok(()) if is_wanted => Outcome::ok("can be opened"),
        Ok(()) => Outcome::note("can be opened, and is not used", COSTS, "set witness.uvm = true in mps-control.toml"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Outcome::warning(
            "/dev/nvidia-uvm-tools is missing",
            COSTS,
            "nvidia-modprobe -u makes it; give it to the daemon's container, which needs no more than this one file",
        ),
        Err(error) => Outcome::warning(
            format!("/dev/nvidia-uvm-tools can't be opened: {error}"),
            COSTS,
            "grant it to the daemon's user or to its container's control group",
        ),
    }
}

/// GPUs whose field reads as given, such as `0, 3`.
fn indices(gpus: &[Gpu], fits: impl Fn(&Gpu) -> bool) -> Option<String> {
    let found: Vec<&str> = gpus.iter().filter(|gpu| fits(gpu)).map(|gpu| gpu.index.as_str()).collect();
    (!found.is_empty()).then(|| found.join(", "))
}

/// The GPUs by compute mode, from the management library or else from the driver's tool: index and mode.
fn modes(machine: &Machine) -> Result<Vec<(String, ComputeMode)>, &str> {
    let looked = machine.look.iter().flatten();
    let told: Vec<_> = looked.filter_map(|gpu| Some((gpu.index.to_string(), ComputeMode(gpu.mode?)))).collect();
    if !told.is_empty() {
        return Ok(told);
    }
    let mode = |gpu: &Gpu| match gpu.compute_mode.as_str() {
        "Exclusive_Process" => ComputeMode::EXCLUSIVE_PROCESS,
        "Prohibited" => ComputeMode::PROHIBITED,
        _ => ComputeMode::DEFAULT,
    };
    let gpus = machine.gpus.as_ref().map_err(String::as_str)?;
    Ok(gpus.iter().map(|gpu| (gpu.index.clone(), mode(gpu))).collect())
}

pub(super) fn compute_mode(machine: &Machine) -> Outcome {
    let modes = match modes(machine) {
        Ok(modes) => modes,
        Err(why) => return Outcome::unknown(why),
    };
    let named = |fits: &dyn Fn(ComputeMode) -> bool| {
        let found: Vec<&str> = modes.iter().filter(|(_, mode)| fits(*mode)).map(|(index, _)| index.as_str()).collect();
        (!found.is_empty()).then(|| found.join(", "))
    };
    if let Some(prohibited) = named(&|mode| mode == ComputeMode::PROHIBITED) {
        return Outcome::problem(
            format!("PROHIBITED on GPU {prohibited}"),
            "no CUDA program and no server can use it",
            "nvidia-smi -c DEFAULT or -c EXCLUSIVE_PROCESS",
        );
    }
    let Some(exclusive) = named(&ComputeMode::is_exclusive) else {
        return Outcome::ok("DEFAULT: servers of several domains can share a GPU, and programs can pass MPS by");
    };
    let manages = machine.config.as_ref().is_ok_and(|config| config.policy.gpus.manages());
    if manages && machine.daemon_pid.is_none() {
        return Outcome::ok(format!("EXCLUSIVE_PROCESS on GPU {exclusive}, and DEFAULT while a daemon runs"));
    }
    let wants_several = machine.config.as_ref().is_ok_and(|config| {
        let (policy, group) = (&config.policy, config.policy.grouping());
        let standby = group.standby || policy.domains.overrides.iter().any(|(_, own)| own.group.standby);
        let by = group.by != Grouping::Uid || group.max_clients.is_some();
        policy.sharing != Sharing::Single && (standby || by || policy.sharing == Sharing::PerUser)
    });
    if !wants_several {
        return Outcome::ok(format!("EXCLUSIVE_PROCESS on GPU {exclusive}: one server, and nobody passes it by"));
    }
    let advice = if manages {
        "the log says why the mode is not DEFAULT while the daemon runs"
    } else {
        "[gpu] compute_mode = \"manage\" in mps-control.toml, nvidia-smi -c DEFAULT, or sharing = \"single\" or \
         \"multi-user\""
    };
    Outcome::warning(
        format!("EXCLUSIVE_PROCESS on GPU {exclusive}, which takes one server at a time"),
        "two servers can't both have contexts: domains don't run side by side, none stands by, and one that replaces a \
         faulty server starts when that has ended",
        advice,
    )
}

pub(super) fn persistence(machine: &Machine) -> Outcome {
    let gpus = match &machine.gpus {
        Ok(gpus) => gpus,
        Err(why) => return Outcome::unknown(why),
    };
    let remark = indices(gpus, |gpu| gpu.mig == "Enabled").map(|mig| format!("; MIG is on for GPU {mig}"));
    let remark = remark.unwrap_or_default();
    match indices(gpus, |gpu| gpu.persistence == "Disabled") {
        Some(off) => Outcome::note(
            format!("off for GPU {off}{remark}"),
            "the first client after a pause waits for the GPU to be initialised, and limits and clocks are reset",
            "run nvidia-persistenced",
        ),
        None => Outcome::ok(format!("on{remark}")),
    }
}

/// Descriptors that the judged process has open, as a sign of how it fares.
pub(super) fn open_descriptors(machine: &Machine) -> usize {
    numbers_in(&machine.judged().join("fd")).len()
}
