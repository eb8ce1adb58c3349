//! Finds a client's UVM descriptors, and copies them.
//!
//! A CUDA process has two `/dev/nvidia-uvm` files open: the one that is its GPU address space, and one that holds its
//! CPU address space for the driver (`UVM_INITIALIZE` and `UVM_MM_INITIALIZE`). While copies of both are open elsewhere
//! the page tables of a client that dies in the middle of a kernel stay, and the kernel ends without harm to the
//! others of its server; its GPU memory stays as long.
//!
//! # How they are found, and what a hostile client can do about it
//! By the entries of `/proc/PID/fd`. A client may have anything there: files of a file system of its own that never
//! answers, FIFOs, another device under the same name, a million descriptors. So
//! - everything here runs on blocking threads, of which a bounded number are in use at a time ([`super::Uvm`]);
//! - the name of an entry's file (`readlink`, which asks no file system) is only a filter: it must end in `nvidia-uvm`;
//! - the proof is the device number (major of `nvidia-uvm` in `/proc/devices`, minor 0), asked of the kernel alone
//!   (`statx` with `AT_STATX_DONT_SYNC`, which a file system in user space is not asked for). Nothing is opened by name;
//! - the copy (`pidfd_getfd`) is proven again, since the client may have put another file in its place. Such a one is
//!   closed where its closing can hang without harm ([`super::closing`]). No ioctl is made on an unproven file;
//! - no more than [`MOST_LOOKED_AT`] entries are read, and no more than [`MOST_COPIES`](super::copies::MOST_COPIES) copies made. Descriptors get the
//!   lowest free number and are listed in order, so a client that hides its own behind others harms itself alone.
//!
//! # Whose address space it is
//! A descriptor can be inherited or sent. What is held already, as some client's, is never taken again as another's:
//! a child made by fork is not blamed for its parent's address space, as long as the parent came first.
//!
//! # Which of the two is which
//! The tools device refuses what is no address space with `NV_ERR_ILLEGAL_ACTION`: the second descriptor, and one that
//! the client has only opened. By the driver's source (`uvm_release_mm` and `uvm_api_mm_initialize` in `uvm.c` of 580.142)
//! the second is the one that saves the others: its last close stops the client's channels, and it keeps the address
//! space open itself. The copy that a tracker has is of the first, and alone saves nobody where there is a second.
//!
//! # Without the right to trace
//! `pidfd_getfd` needs what `ptrace` needs. Every CUDA process also listens on the abstract socket
//! `cuda-uvmfd-<inode of its PID namespace>-<pid>` (type `SOCK_SEQPACKET`), whose name says that it hands its
//! descriptor out. What a peer has to say there is not documented anywhere, and was not measured; it is not used here.
//! The answer then is [`AttachError::NotPermitted`]. The preload library of such a client hands its descriptors over itself
//! where it is told to ([`Given`]), if the daemon says that it has not the right ([`may_look`]).

mod given;

pub(crate) use given::Given;
pub(super) use given::{prove_given, taken};

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::Pid;

use super::closing;
use super::copies::{Held, MOST_COPIES, OpenFiles, Registry};
use super::error::AttachError;
use crate::io::foreign_files::ForeignFile;
use crate::sys::proc::{DEVICES, OWN_STATUS, path_in};
use crate::sys::uvm as sys;

/// Entries of `/proc/PID/fd` that are read at most; about a tenth of a second.
pub(crate) const MOST_LOOKED_AT: usize = 65_536;
/// How the name of the file ends that is looked at more closely.
const NAME_END: &[u8] = b"nvidia-uvm";
/// What the kernel adds to the name of a file that was removed, as in a container that is being taken down.
const REMOVED: &[u8] = b" (deleted)";
/// What the driver calls itself in `/proc/devices`.
const DRIVER: &str = "nvidia-uvm";
/// Minor number of `/dev/nvidia-uvm`.
const UVM_MINOR: u32 = 0;
/// Minor number of `/dev/nvidia-uvm-tools`.
pub(super) const TOOLS_MINOR: u32 = 1;

/// The major number of the UVM driver, by the text of `/proc/devices`.
pub(crate) fn find_major(devices: &str) -> Option<u32> {
    let characters = devices.lines().skip_while(|line| *line != "Character devices:").skip(1);
    characters.take_while(|line| !line.is_empty()).find_map(|line| {
        let (number, name) = line.trim().split_once(' ')?;
        (name.trim() == DRIVER).then(|| number.parse().ok())?
    })
}

/// A descriptor of a client that is not held as an address space yet.
#[derive(Debug)]
pub(super) struct Candidate {
    /// The copy.
    pub(super) held: Arc<Held>,
    /// Whether it was not held at all before.
    pub(super) is_new: bool,
}

/// What a look through a process's descriptors brings.
#[derive(Debug)]
pub(super) struct Taken {
    /// The UVM descriptors.
    pub(super) found: Vec<Candidate>,
    /// How many descriptors were looked at, UVM's or not.
    pub(super) looked_at: usize,
}

/// Whether a path that `/proc/PID/fd` shows ends like this.
fn ends_like(path: &[u8], end: &[u8]) -> bool {
    path.strip_suffix(REMOVED).unwrap_or(path).ends_with(end)
}

/// Whether a process has this device open itself, by major and minor number, under a name that ends like this. A mere
/// reference (`O_PATH`) is not enough: that can be had of a device that one may not open. Blocks; see the module's text.
pub(crate) fn has_open(
    pid: Pid,
    process: BorrowedFd<'_>,
    device: (u32, u32),
    name_end: &[u8],
) -> Result<bool, AttachError> {
    let mut has = false;
    each_number(device, name_end, pid, |number| {
        let foreign = ForeignFile::enter();
        let Some(descriptor) = duplicate(process, number)? else { return Ok(true) };
        let is_it = matches!(sys::device_of(descriptor.as_fd()), Ok(Some(found)) if found == device);
        let is_opened = fcntl(&descriptor, FcntlArg::F_GETFL).is_ok_and(|flags| flags & OFlag::O_PATH.bits() == 0);
        has = is_it && is_opened;
        // The process may have closed its own meanwhile, or put another file in its place.
        closing::close_foreign(descriptor, Some(foreign));
        Ok(!has)
    })?;
    Ok(has)
}

/// Copies the UVM descriptors of a process that are not held as an address space, nor as another process's. Blocks; see
/// the module's text.
pub(super) fn take(registry: &Registry, major: u32, pid: Pid, process: BorrowedFd<'_>) -> Result<Taken, AttachError> {
    let mut found: Vec<Candidate> = Vec::new();
    let looked_at = each_number((major, UVM_MINOR), NAME_END, pid, |number| {
        if let Some(candidate) = copy(registry, major, pid, process, number)?
            && !found.iter().any(|other| other.held.is_same_file(&candidate.held))
        {
            found.push(candidate);
        }
        Ok(found.len() < MOST_COPIES)
    })?;
    if found.is_empty() && looked_at == MOST_LOOKED_AT {
        return Err(AttachError::TooManyDescriptors { looked_at });
    }
    Ok(Taken { found, looked_at })
}

/// Which of the held files a process has open. Blocks; see the module's text.
pub(super) fn open_files(
    registry: &Registry,
    major: u32,
    pid: Pid,
    process: BorrowedFd<'_>,
) -> Result<OpenFiles, AttachError> {
    let mut open = Vec::new();
    let looked_at = each_number((major, UVM_MINOR), NAME_END, pid, |number| {
        let foreign = ForeignFile::enter();
        if let Some(descriptor) = duplicate(process, number)? {
            if is_uvm(descriptor.as_fd(), major) {
                // Where it is held this is not its last copy; else the process has it.
                open.extend(registry.find(descriptor.as_fd(), number, pid));
            } else {
                closing::close_foreign(descriptor, Some(foreign));
            }
        }
        Ok(true)
    })?;
    // What was not looked at may be one of them.
    if looked_at == MOST_LOOKED_AT { Err(AttachError::TooManyDescriptors { looked_at }) } else { Ok(OpenFiles(open)) }
}

/// Tells the numbers of a process's descriptors that may be of a device, by its number and the end of its name, until it
/// is enough, and says at how many it has looked.
fn each_number(
    wanted: (u32, u32),
    name_end: &[u8],
    pid: Pid,
    mut tell: impl FnMut(RawFd) -> Result<bool, AttachError>,
) -> Result<usize, AttachError> {
    const LOOK: &str = "look at the descriptors of the process";
    if !closing::can_close_foreign() {
        return Err(AttachError::Exhausted);
    }
    let folder = path_in(pid, "fd");
    let entries = std::fs::read_dir(&folder).map_err(|error| AttachError::of_process(LOOK, error))?;
    let mut looked_at = 0;
    for entry in entries {
        let entry = entry.map_err(|error| AttachError::of_process(LOOK, error))?;
        if looked_at == MOST_LOOKED_AT {
            break;
        }
        looked_at += 1;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()) else { continue };
        // An entry that has gone meanwhile is none.
        let target = match std::fs::read_link(entry.path()) {
            Ok(target) => target,
            // Root without the right to trace sees the entries, and not where they lead.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(AttachError::of_process(LOOK, error));
            }
            Err(_) => continue,
        };
        if !ends_like(target.as_os_str().as_bytes(), name_end) {
            continue;
        }
        let path = CString::new(format!("{folder}/{number}")).expect("numbers and a fixed text have no NUL");
        if matches!(sys::device_at(&path), Ok(Some(device)) if device == wanted) && !tell(number)? {
            break;
        }
    }
    Ok(looked_at)
}

/// A copy of a process's descriptor; `None` when it was closed meanwhile.
fn duplicate(process: BorrowedFd<'_>, number: RawFd) -> Result<Option<OwnedFd>, AttachError> {
    match sys::get_descriptor(process, number) {
        Ok(descriptor) => Ok(Some(descriptor)),
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => Ok(None),
        Err(error) => Err(AttachError::of_process("copy a descriptor of the process", error)),
    }
}

fn is_uvm(descriptor: BorrowedFd<'_>, major: u32) -> bool {
    matches!(sys::device_of(descriptor), Ok(Some(device)) if device == (major, UVM_MINOR))
}

fn copy(
    registry: &Registry,
    major: u32,
    owner: Pid,
    process: BorrowedFd<'_>,
    number: RawFd,
) -> Result<Option<Candidate>, AttachError> {
    let foreign = ForeignFile::enter();
    let Some(descriptor) = duplicate(process, number)? else { return Ok(None) };
    Ok(prove(registry, major, owner, descriptor, number, foreign))
}

/// What is left to do with a copy: nothing if it is not UVM's, or held already.
fn prove(
    registry: &Registry,
    major: u32,
    owner: Pid,
    descriptor: OwnedFd,
    number: RawFd,
    foreign: ForeignFile,
) -> Option<Candidate> {
    if !is_uvm(descriptor.as_fd(), major) {
        closing::close_foreign(descriptor, Some(foreign));
        return None;
    }
    match registry.find(descriptor.as_fd(), number, owner) {
        None => Some(Candidate { held: Held::new(descriptor, number, owner), is_new: true }),
        Some(held) => {
            // Not its last copy, which `held` has: this takes the kernel no time.
            drop(descriptor);
            held.may_become_space_of(owner).then_some(Candidate { held, is_new: false })
        }
    }
}

/// `CAP_SYS_PTRACE` in the masks of `/proc/PID/status`, by `linux/capability.h`.
const CAP_SYS_PTRACE: u32 = 19;

/// Whether this process may look into those of other users and into those that may do more than itself.
pub(crate) fn may_look() -> bool {
    std::fs::read_to_string(OWN_STATUS).is_ok_and(|status| has_capability(&status, CAP_SYS_PTRACE))
}

fn has_capability(status: &str, number: u32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & (1 << number) != 0)
}

/// Reads the major number of the driver.
pub(super) fn read_major() -> io::Result<Option<u32>> {
    std::fs::read_to_string(DEVICES).map(|text| find_major(&text))
}

#[cfg(test)]
mod tests;
