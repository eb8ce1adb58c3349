//! The stand-in for a client's `/dev/nvidia-uvm` descriptor.
//!
//! On real hardware a client's page tables live as long as any copy of its UVM descriptor is open, in whatever process;
//! a client killed in the middle of a kernel takes the others of its server along, unless a copy keeps its page tables
//! until the kernel has ended (`recovery-findings.md` 6). Here the descriptor is a memory file that the library holds
//! with an open-file-description lock, which like the page tables lasts until the last copy is closed. Its first eight
//! bytes say until when the client's kernels keep the GPU busy, so that the server knows when it has drained.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Name of the memory file: `readlink` of the descriptor gives `/memfd:nvidia-uvm (deleted)`.
pub const FILE_NAME: &str = "nvidia-uvm";
/// Bytes of the file.
pub const FILE_LENGTH: u64 = 4096;
/// The busy word of an idle client.
pub const IDLE: u64 = 0;
/// The busy word of a client in a kernel that never ends.
pub const ENDLESS: u64 = u64::MAX;

fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: libc::c_short::try_from(kind).expect("a lock type is a small constant"),
        l_whence: libc::c_short::try_from(libc::SEEK_SET).expect("SEEK_SET is 0"),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Locks the library's own description for as long as a copy of it is open.
///
/// # Errors
/// The system call's.
pub fn hold(file: &File) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK))).map(drop)
}

/// Whether somebody still holds a copy; `file` must be another description of the same file.
///
/// # Errors
/// The system call's.
pub fn is_held(file: &File) -> Result<bool, Errno> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_RDLCK))) {
        Ok(_) => Ok(false),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// Blocks until nobody holds a copy.
///
/// # Errors
/// The system call's.
pub fn wait_until_free(file: &File) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_OFD_SETLKW(&whole_file(libc::F_RDLCK))).map(drop)
}

/// Nanoseconds of the monotonic clock, which all processes share.
#[must_use]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
    let part = |number: i64| u64::try_from(number).expect("the monotonic clock is not negative");
    part(time.tv_sec()) * 1_000_000_000 + part(time.tv_nsec())
}

/// Reads the busy word.
///
/// # Errors
/// The system call's; `UnexpectedEof` for a file that is too short.
pub fn busy_until(file: &File) -> std::io::Result<u64> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, 0)?;
    Ok(u64::from_le_bytes(word))
}
