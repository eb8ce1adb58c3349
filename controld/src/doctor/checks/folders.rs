//! The folders of sockets and logs.

use crate::doctor::Outcome;
use crate::doctor::machine::{Machine, read};
use crate::io::folder::way::{OTHERS_WRITE, STICKY, is_trusted};
use crate::io::runtime_dir::CONTROL_PRIVILEGED;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// A Unix socket's path has room for this many bytes and the final zero.
const LONGEST_SOCKET_PATH: usize = 107;
/// Everybody may pass through.
const SEARCHABLE: u32 = 0o001;
/// File systems over a network, on which a socket connects nobody.
const NETWORK_SYSTEMS: [&str; 9] = ["nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "9p"];
/// Room that two logs of the default size and the journal need.
const ENOUGH_ROOM: u64 = 256 << 20;
/// Less than this is gone with the next fault.
const NO_ROOM: u64 = 8 << 20;

pub(super) fn pipe_directory(machine: &Machine) -> Outcome {
    let path = &machine.pipe_directory;
    let shown = path.display();
    let length = path.join(CONTROL_PRIVILEGED).as_os_str().as_bytes().len();
    if length > LONGEST_SOCKET_PATH {
        return Outcome::problem(
            format!("{shown}: its sockets' paths have {length} bytes, and {LONGEST_SOCKET_PATH} fit"),
            "the daemon does not start",
            "choose a shorter CUDA_MPS_PIPE_DIRECTORY",
        );
    }
    let Ok(found) = fs::metadata(path) else {
        let parent = path.parent().unwrap_or(Path::new("/"));
        if parent.is_dir() {
            return Outcome::note(format!("{shown} is not there; the daemon makes it"), "", "");
        }
        return Outcome::problem(
            format!("{shown} is not there, nor the folder that it is to be in"),
            "the daemon makes one folder and not its parents, so it does not start",
            format!("mkdir -p {}", parent.display()),
        );
    };
    if !found.is_dir() {
        let advice = "remove it, or choose another CUDA_MPS_PIPE_DIRECTORY";
        return Outcome::problem(format!("{shown} is no folder"), "the daemon does not start", advice);
    }
    if let Some(kind) = file_system(machine, path).filter(|kind| NETWORK_SYSTEMS.contains(&kind.as_str())) {
        return Outcome::problem(
            format!("{shown} is on {kind}"),
            "a socket there connects nobody on other machines, and often nobody on this one",
            "choose a CUDA_MPS_PIPE_DIRECTORY on this machine, such as /run/nvidia-mps",
        );
    }
    if !is_trusted(found.uid()) && nix::unistd::geteuid().is_root() {
        return Outcome::problem(
            format!("{shown} belongs to user {}", found.uid()),
            "he could put himself in the daemon's place, so a daemon of root does not start there",
            "remove it, give it to root, or choose another CUDA_MPS_PIPE_DIRECTORY",
        );
    }
    let mode = found.permissions().mode();
    if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
        return Outcome::warning(
            format!("{shown} has mode {:04o}", mode & 0o7777),
            "every user who may write to it can put himself in the daemon's place",
            format!("chmod go-w {shown}; a daemon whose directory it is does so when it starts"),
        );
    }
    if mode & SEARCHABLE == 0 {
        return Outcome::warning(
            format!("{shown} has mode {:04o}", mode & 0o7777),
            "programs of other users don't find the daemon, and run without MPS and without its limits",
            format!("chmod o+x {shown}, unless that is meant"),
        );
    }
    Outcome::ok(shown.to_string())
}

/// The type of the file system that a path is on, by the longest mount point above it.
fn file_system(machine: &Machine, path: &Path) -> Option<String> {
    let mounts = read(&machine.proc("self/mounts"))?;
    let entries = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let above = entries.filter(|(point, _)| path.starts_with(point));
    // Of two mounts on one point the later one is seen.
    above.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind.to_owned())
}

pub(super) fn log_directory(machine: &Machine) -> Outcome {
    let path = &machine.log_directory;
    let shown = path.display();
    // What is not there yet is made, so the room is that of the folder that it will be in.
    let Some(existing) = path.ancestors().find(|folder| folder.is_dir()) else {
        return Outcome::unknown(format!("{shown} can't be looked at"));
    };
    if path.exists() && !path.is_dir() {
        let costs = "the daemon runs without logs and without its journal";
        return Outcome::warning(format!("{shown} is no folder"), costs, "choose another CUDA_MPS_LOG_DIRECTORY");
    }
    let space = match (machine.space)(existing) {
        Ok(space) => space,
        Err(error) => return Outcome::unknown(format!("{}: {error}", existing.display())),
    };
    let free = space.free >> 20;
    if space.free < NO_ROOM {
        return Outcome::problem(
            format!("{shown} has {free} MiB free"),
            "what happens from now on is not recorded",
            "make room; log_size_mib in mps-control.toml bounds the logs",
        );
    }
    if space.free < ENOUGH_ROOM {
        return Outcome::warning(
            format!("{shown} has {free} MiB free"),
            "logs and journal of their full size don't fit",
            "make room, or lower log_size_mib and observe.journal_size_mib",
        );
    }
    if !path.exists() {
        return Outcome::note(format!("{shown} is not there; the daemon makes it, {free} MiB free"), "", "");
    }
    Outcome::ok(format!("{shown}, {free} MiB free"))
}
