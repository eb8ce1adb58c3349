//! Namespaces, and what is shared through them.

use crate::doctor::Outcome;
use crate::doctor::machine::{Machine, read};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// The first pid namespace has this inode on every Linux (`PROC_PID_INIT_INO` in `include/linux/proc_ns.h`).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// The first user namespace (`PROC_USER_INIT_INO`).
const FIRST_USER_NAMESPACE: u64 = 0xEFFF_FFFD;
/// Writable for everybody, and nobody removes another's files.
const STICKY_FOR_ALL: u32 = 0o1777;
const MODE_BITS: u32 = 0o7777;
/// Container runtimes give 64 MiB unless they are told otherwise.
const LITTLE_SHM: u64 = 1 << 30;

pub(super) fn pid_namespace(machine: &Machine) -> Outcome {
    match machine.namespace("pid") {
        None => Outcome::unknown("the namespace can't be read"),
        Some(FIRST_PID_NAMESPACE) => Outcome::ok("the machine's first"),
        Some(inode) => own_pid_namespace(machine, inode),
    }
}

/// What can be known of clients outside of it.
fn own_pid_namespace(machine: &Machine, inode: u64) -> Outcome {
    let what = format!("{} is in a pid namespace of its own ({inode})", machine.judged_name());
    let proc = machine.config.as_ref().map_or("", |config| config.witness.proc.as_str());
    if proc.is_empty() {
        return Outcome::warning(
            what,
            "clients outside of it have no pid for the daemon: they can't be named, watched, signalled or saved from each \
             other's death, are placed by their user alone, and are terminated only by the daemon's owner, where a server \
             has no other such client",
            "give the daemon's container the host's pids (hostPID: true, --pid=host), or the machine's /proc to know them \
             by (witness.proc)",
        );
    }
    let is_there = machine.root.join(proc.trim_start_matches('/')).join("self/fdinfo").is_dir();
    if !is_there {
        return Outcome::problem(
            format!("{what}, and witness.proc = \"{proc}\" does not show it"),
            "clients outside of it are known by nothing and placed by their user alone",
            "mount the machine's /proc there (hostPath: /proc, -v /proc:/host/proc:ro)",
        );
    }
    Outcome::warning(
        format!("{what}; clients outside of it are known by {proc}"),
        "they are placed, named and listed by numbers in place of pids; they can't be signalled, and are terminated only \
         where a server has no other such client",
        "give the daemon's container the host's pids (hostPID: true, --pid=host)",
    )
}

pub(super) fn user_namespace(machine: &Machine) -> Outcome {
    match machine.namespace("user") {
        None => Outcome::unknown("the namespace can't be read"),
        Some(FIRST_USER_NAMESPACE) => Outcome::ok("the machine's first"),
        Some(inode) => Outcome::warning(
            format!("{} is in a user namespace of its own ({inode})", machine.judged_name()),
            "users outside of it are all user 65534 for the daemon and share a server; its rights are void outside",
            "run the daemon outside of user namespaces",
        ),
    }
}

pub(super) fn mount_namespace(machine: &Machine) -> Outcome {
    let Some(pid) = machine.daemon_pid else {
        return Outcome::note("no daemon to compare with", "", "");
    };
    let relative = machine.pipe_directory.strip_prefix("/").unwrap_or(&machine.pipe_directory);
    let theirs = machine.proc(pid.to_string()).join("root").join(relative);
    match (fs::metadata(&machine.pipe_directory), fs::metadata(&theirs)) {
        (Ok(ours), Ok(theirs)) if (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()) => {
            Outcome::ok("the daemon has the same pipe directory")
        }
        (Ok(_), Ok(_)) => Outcome::warning(
            format!("{} is another folder for the daemon", machine.pipe_directory.display()),
            "programs here may meet another daemon than this one, or none",
            "mount the daemon's folder here; one that was made anew after the mount has to be mounted again",
        ),
        (_, Err(error)) => Outcome::unknown(format!("the daemon's folders can't be looked at: {error}")),
        (Err(error), Ok(_)) => Outcome::unknown(format!("{}: {error}", machine.pipe_directory.display())),
    }
}

pub(super) fn shm(machine: &Machine) -> Outcome {
    let path = machine.dev("shm");
    let Ok(found) = fs::metadata(&path) else {
        return Outcome::problem(
            "/dev/shm is missing",
            "servers and clients can't share host memory, and don't start",
            "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
        );
    };
    let mode = found.permissions().mode() & MODE_BITS;
    if mode != STICKY_FOR_ALL {
        return Outcome::problem(
            format!("/dev/shm has mode {mode:04o}"),
            "programs of other users can't share host memory with their server",
            "chmod 1777 /dev/shm",
        );
    }
    let own_mounts = read(&machine.judged().join("mounts")).unwrap_or_default();
    let is_tmpfs = own_mounts.lines().any(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        matches!(words.as_slice(), [_, "/dev/shm", "tmpfs", ..])
    });
    match (machine.space)(&path) {
        Ok(space) if space.total < LITTLE_SHM => Outcome::warning(
            format!("/dev/shm has {} MiB", space.total >> 20),
            "page-locked host memory of all clients lies there; larger allocations fail",
            "use the host's (a mount of /dev/shm, --ipc=host) or a larger one (--shm-size)",
        ),
        Ok(space) if !is_tmpfs => Outcome::note(
            format!("/dev/shm is no tmpfs, {} MiB", space.total >> 20),
            "host memory that lies on a disk is slow",
            "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
        ),
        Ok(space) => Outcome::ok(format!("{} MiB", space.total >> 20)),
        Err(error) => Outcome::unknown(error),
    }
}
