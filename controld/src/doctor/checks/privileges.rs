//! Rights of the daemon's process.

use crate::core::picture::{CAP_KILL, CAP_SYS_PTRACE, CAP_SYSLOG};
use crate::doctor::Outcome;
use crate::doctor::machine::{Machine, read};

pub(super) fn user(machine: &Machine) -> Outcome {
    // Real, effective, saved and file system user.
    let effective = machine.status("Uid").and_then(|ids| ids.split_whitespace().nth(1)?.parse::<u32>().ok());
    match effective {
        None => Outcome::unknown("/proc tells no user"),
        Some(0) => Outcome::ok("root"),
        Some(uid) => Outcome::warning(
            format!("{} is user {uid}", machine.judged_name()),
            "servers run as the users of their clients, so other users' programs get none and wait",
            "start the daemon as root, or use it for this one user",
        ),
    }
}

pub(super) fn ptrace(machine: &Machine) -> Outcome {
    const COSTS: &str = "no UVM event names their culprits, and one that is killed in a kernel takes the others along";
    // The security module Yama lets nobody look into processes that are not its children, from 1 on.
    let yama = read(&machine.proc("sys/kernel/yama/ptrace_scope")).and_then(|text| text.trim().parse::<u8>().ok());
    match (machine.has_capability(CAP_SYS_PTRACE), yama.unwrap_or(0)) {
        (None, _) => Outcome::unknown("/proc tells no capabilities"),
        (_, 3..) => Outcome::warning(
            "kernel.yama.ptrace_scope is 3: nobody may look into clients",
            COSTS,
            "set kernel.yama.ptrace_scope to 2 or less, which takes a restart of the machine",
        ),
        (Some(true), _) => Outcome::ok("CAP_SYS_PTRACE"),
        (Some(false), 0) => Outcome::warning(
            format!("{} lacks CAP_SYS_PTRACE: it may not look into clients of other users", machine.judged_name()),
            COSTS,
            "give it CAP_SYS_PTRACE, or run the clients with libmps_client_shim.so and MPS_SHIM_FAULTS=tell",
        ),
        (Some(false), scope) => Outcome::warning(
            format!(
                "{} lacks CAP_SYS_PTRACE, and kernel.yama.ptrace_scope is {scope}: it may not look into any client",
                machine.judged_name()
            ),
            COSTS,
            "give it CAP_SYS_PTRACE, or run the clients with libmps_client_shim.so and MPS_SHIM_FAULTS=tell",
        ),
    }
}

pub(super) fn kill(machine: &Machine) -> Outcome {
    match machine.has_capability(CAP_KILL) {
        None => Outcome::unknown("/proc tells no capabilities"),
        Some(true) => Outcome::ok("CAP_KILL"),
        Some(false) => Outcome::warning(
            format!("{} lacks CAP_KILL", machine.judged_name()),
            "servers and clients of other users can't be ended when they hang",
            "give it CAP_KILL",
        ),
    }
}

pub(super) fn kmsg(machine: &Machine) -> Outcome {
    const COSTS: &str = "Xid lines of the kernel, which tell hardware faults from those of programs, are not seen";
    let path = match &machine.config {
        Ok(config) if config.witness.kmsg.is_empty() => {
            return Outcome::note("witness.kmsg is empty", COSTS, "set it to /dev/kmsg");
        }
        Ok(config) => config.witness.kmsg.clone(),
        Err(_) => "/dev/kmsg".to_owned(),
    };
    let below_dev = path.strip_prefix("/dev/").unwrap_or(&path);
    if !machine.dev(below_dev).exists() {
        let advice = "give the daemon's container the device";
        return Outcome::warning(format!("{path} is missing here"), COSTS, advice);
    }
    let is_restricted = read(&machine.proc("sys/kernel/dmesg_restrict")).is_some_and(|text| text.trim() != "0");
    match machine.has_capability(CAP_SYSLOG) {
        Some(false) if is_restricted => Outcome::warning(
            format!("{} lacks CAP_SYSLOG, and kernel.dmesg_restrict is on", machine.judged_name()),
            COSTS,
            "give it CAP_SYSLOG",
        ),
        Some(true) => Outcome::ok("CAP_SYSLOG"),
        Some(false) => Outcome::ok("kernel.dmesg_restrict is off"),
        None => Outcome::unknown("/proc tells no capabilities"),
    }
}
