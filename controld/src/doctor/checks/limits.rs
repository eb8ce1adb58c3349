//! Limits of the daemon's process and abilities of the kernel.

use super::devices::open_descriptors;
use crate::doctor::Outcome;
use crate::doctor::machine::{Machine, read};

/// What the vendor's documentation asks for with many clients.
const ENOUGH_FILES: u64 = 16_384;
/// Descriptors that one client costs the daemon: a connection for its process and one for a context, its process
/// descriptor, a queue of UVM events, copies of two UVM descriptors, and as much again for what is being handed over.
const FILES_PER_CLIENT: u64 = 8;
/// What many systems give everybody.
const ENOUGH_LOCKED: u64 = 8 << 20;

/// A limit's soft and hard value; `None` is unlimited.
type Limit = (Option<u64>, Option<u64>);

fn limit(machine: &Machine, name: &str) -> Option<Limit> {
    let text = read(&machine.judged().join("limits"))?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = rest.split_whitespace();
    let mut value = || match words.next()? {
        "unlimited" => Some(None),
        number => Some(Some(number.parse().ok()?)),
    };
    Some((value()?, value()?))
}

pub(super) fn open_files(machine: &Machine) -> Outcome {
    // The daemon raises its soft limit to the hard one.
    let Some((_, hard)) = limit(machine, "Max open files") else {
        return Outcome::unknown("/proc tells no limits");
    };
    let Some(hard) = hard else { return Outcome::ok("unlimited") };
    let clients = hard / FILES_PER_CLIENT;
    if hard < ENOUGH_FILES {
        return Outcome::warning(
            format!("{hard}, room for some {clients} clients"),
            "further clients wait until others have left",
            format!("set LimitNOFILE={ENOUGH_FILES} or ulimit -Hn {ENOUGH_FILES} before the daemon starts"),
        );
    }
    let used = machine.daemon_pid.map(|_| format!(", {} in use", open_descriptors(machine))).unwrap_or_default();
    Outcome::ok(format!("{hard}, room for some {clients} clients{used}"))
}

pub(super) fn locked_memory(machine: &Machine) -> Outcome {
    match limit(machine, "Max locked memory") {
        None => Outcome::unknown("/proc tells no limits"),
        Some((None, _)) => Outcome::ok("unlimited"),
        Some((Some(bytes), _)) if bytes >= ENOUGH_LOCKED => Outcome::ok(format!("{} KiB", bytes >> 10)),
        Some((Some(bytes), _)) => Outcome::note(
            format!("{} KiB", bytes >> 10),
            "servers inherit it; CUDA's page-locked memory does not count, that of RDMA and mlock does",
            "set LimitMEMLOCK=infinity for the daemon when servers run beside RDMA",
        ),
    }
}

pub(super) fn kernel(machine: &Machine) -> Outcome {
    let release = read(&machine.proc("sys/kernel/osrelease")).unwrap_or_default();
    let release = release.trim();
    let mut numbers = release.split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return Outcome::unknown("/proc/sys/kernel/osrelease can't be read");
    };
    let version = (major, minor);
    if version < (5, 6) {
        return Outcome::warning(
            format!("{release}: no pidfd_getfd, which is there since 5.6"),
            "no UVM event names culprits, and a client that is killed in a kernel takes the others along, unless the \
             client shim is preloaded",
            "use a newer kernel, or the client shim",
        );
    }
    if version < (6, 5) {
        return Outcome::note(
            format!("{release}: no SO_PEERPIDFD, which is there since 6.5"),
            "a client that ends while it connects may be taken for another with its pid",
            "",
        );
    }
    if version < (6, 15) {
        return Outcome::note(
            format!("{release}: no exit status of other processes, which is there since 6.15"),
            "how a client ended, by a signal or for want of memory, is often not known",
            "",
        );
    }
    Outcome::ok(release.to_owned())
}
