//! The stand-in for a client's UVM descriptor, from outside: look at it, keep a copy of it.
#![expect(unsafe_code, reason = "pidfd_open and pidfd_getfd have no safe wrapper")]

use nix::errno::Errno;
use nix::unistd::Pid;
use sim_wire::uvm::FILE_NAME;
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The number of a client's descriptor; every simulated client has one.
///
/// # Panics
/// When the process is no client, or no process of ours.
#[must_use]
pub fn number(pid: Pid) -> i32 {
    let wanted = format!("/memfd:{FILE_NAME} ");
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("a process of ours can be looked at");
    let is_it = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().starts_with(&wanted))
    };
    let entry = entries.flatten().find(is_it).expect("every client has one");
    entry.file_name().to_string_lossy().parse().expect("a descriptor's name is its number")
}

/// Another description of the file, which keeps nothing alive.
///
/// # Panics
/// As [`number`].
#[must_use]
pub fn look_at(pid: Pid) -> File {
    let path = format!("/proc/{pid}/fd/{}", number(pid));
    OpenOptions::new().read(true).write(true).open(path).expect("it is a file of ours")
}

/// A copy of the descriptor, which keeps alive what the client's own does.
///
/// # Errors
/// The system call's.
pub fn copy(pid: Pid) -> Result<OwnedFd, Errno> {
    let owned = |result: libc::c_long| {
        let raw = i32::try_from(Errno::result(result)?).map_err(|_| Errno::EOVERFLOW)?;
        // SAFETY: the descriptor is new and nothing else owns it.
        Ok::<OwnedFd, Errno>(unsafe { OwnedFd::from_raw_fd(raw) })
    };
    // SAFETY: pidfd_open takes two numbers and returns a new descriptor or -1.
    let pidfd = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) })?;
    // SAFETY: pidfd_getfd takes three numbers and returns a new descriptor or -1.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number(pid), 0) })
}
