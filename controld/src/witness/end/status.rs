//! The wait status of a process that is not our child.
//!
//! Two places know it, one after the other. Until the parent has asked, the process is a zombie and `/proc/PID/stat` has
//! it in field 52, for whoever may trace the process. From then on the pidfd has it, since Linux 6.15
//! (`PIDFD_GET_INFO` with `PIDFD_INFO_EXIT`, `linux/pidfd.h`). Measured on 6.18: before the parent has asked the ioctl
//! succeeds and its answer lacks the status; a process descriptor is readable from the end on, and hung up in addition
//! when the parent has asked, so the second place can be waited for.

use std::io;
use std::os::fd::AsFd;

use crate::core::ProcessKey;
use crate::sys::ioctl;
use crate::sys::proc::ProcDir;

/// Bytes of `struct pidfd_info` in its first version.
const INFO_BYTES: usize = 64;
/// Where the mask begins in it, and the status: the last of its fields.
const MASK: usize = 0;
const EXIT_CODE: usize = 60;
/// The status is asked for, and answered.
const INFO_EXIT: u64 = 1 << 3;
/// `_IOWR(0xFF, 11, struct pidfd_info)`.
const GET_INFO: u32 = 3 << 30 | 64 << 16 | 0xff << 8 | 11;

/// What is known of a process's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// The wait status.
    Known(i32),
    /// The process lives, or its parent has to ask first.
    NotYet,
    /// Nobody will know.
    Never,
}

/// Asks both places.
pub(super) fn of(process: ProcessKey, pidfd: Option<impl AsFd>) -> Status {
    let zombie = zombie(process);
    if let Some(Status::Known(status)) = zombie {
        return Status::Known(status);
    }
    // In this order: whoever was no zombie any more a moment ago is found here.
    match pidfd.map(from_pidfd) {
        Some(Ok(Some(status))) => Status::Known(status),
        Some(Ok(None)) => Status::NotYet,
        Some(Err(_)) | None => zombie.unwrap_or(Status::Never),
    }
}

/// What `/proc` says; `None` when there is no such process any more.
fn zombie(process: ProcessKey) -> Option<Status> {
    let dir = ProcDir::open(process.pid)?;
    let stat = dir.stat().filter(|stat| process.start_time == 0 || stat.start_time == process.start_time)?;
    Some(match (stat.state, stat.wait_status) {
        (b'Z' | b'X', Some(0)) if !dir.is_open_to_us() => Status::Never,
        (b'Z' | b'X', Some(status)) => Status::Known(status),
        (b'Z' | b'X', None) => Status::Never,
        _ => Status::NotYet,
    })
}

/// What a process descriptor says: the status, or `None` while there is none.
fn from_pidfd(pidfd: impl AsFd) -> io::Result<Option<i32>> {
    let mut info = [0; INFO_BYTES];
    info[MASK..MASK + size_of::<u64>()].copy_from_slice(&INFO_EXIT.to_ne_bytes());
    ioctl::call(pidfd, GET_INFO, &mut info)?;
    let mask = u64::from_ne_bytes(*info[MASK..].first_chunk().expect("the block is longer than a mask"));
    let status = i32::from_ne_bytes(*info[EXIT_CODE..].first_chunk().expect("the block ends with the status"));
    Ok((mask & INFO_EXIT != 0).then_some(status))
}
