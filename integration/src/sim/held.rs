//! The stand-ins for a client's UVM descriptors, from outside: look at them, keep copies of them.
#![expect(unsafe_code, reason = "pidfd_open and pidfd_getfd have no safe wrapper")]

use nix::errno::Errno;
use nix::unistd::Pid;
use sim_wire::uvm::{FILE_NAME, Header, Kind, is_held, memory};
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The number of one of a client's two descriptors, and another description of the file, which keeps nothing alive.
fn find(pid: Pid, kind: Kind) -> (i32, File) {
    let wanted = format!("/memfd:{FILE_NAME} ");
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("a process of ours can be looked at");
    let found = entries.flatten().find_map(|entry| {
        let link = fs::read_link(entry.path()).ok().filter(|link| link.to_string_lossy().starts_with(&wanted));
        let file = link.and_then(|_| OpenOptions::new().read(true).write(true).open(entry.path()).ok())?;
        let is_it = Header::read(&file).is_ok_and(|header| header.kind == kind);
        is_it.then(|| (entry.file_name().to_string_lossy().parse().expect("a descriptor's name is its number"), file))
    });
    found.expect("every client has both")
}

/// Another description of the file that has the busy word, and decides over the page tables; it keeps nothing alive.
///
/// # Panics
/// When the process is no client, or no process of ours.
#[must_use]
pub fn look_at(pid: Pid) -> File {
    find(pid, Kind::MM).1
}

/// The GPU memory of a client, which lasts as long as a copy of one of its descriptors.
#[derive(Debug)]
pub struct Memory {
    space: File,
    mm: File,
}

impl Memory {
    /// That of a client that lives; it is kept by nobody on that account.
    ///
    /// # Panics
    /// As [`look_at`].
    #[must_use]
    pub fn of(pid: Pid) -> Self {
        Self { space: find(pid, Kind::SPACE).1, mm: look_at(pid) }
    }

    /// Bytes that it has of a GPU now.
    ///
    /// # Panics
    /// Never: the files are memory files.
    #[must_use]
    pub fn in_use(&self, ordinal: u32) -> u64 {
        // The second descriptor keeps the address space open.
        let is_kept = [&self.space, &self.mm].iter().any(|file| is_held(file).expect("a memory file can be locked"));
        if is_kept { memory(&self.space, ordinal).expect("it has a header") } else { 0 }
    }
}

/// The number of its address space.
///
/// # Panics
/// As [`look_at`].
#[must_use]
pub fn space(pid: Pid) -> u64 {
    Header::read(&find(pid, Kind::SPACE).1).expect("it has a header").space
}

/// A copy of one of a client's descriptors, which keeps alive what the client's own does.
///
/// # Errors
/// The system call's.
///
/// # Panics
/// As [`look_at`].
pub fn copy(pid: Pid, kind: Kind) -> Result<OwnedFd, Errno> {
    let owned = |result: libc::c_long| {
        let raw = i32::try_from(Errno::result(result)?).map_err(|_| Errno::EOVERFLOW)?;
        // SAFETY: the descriptor is new and nothing else owns it.
        Ok::<OwnedFd, Errno>(unsafe { OwnedFd::from_raw_fd(raw) })
    };
    // SAFETY: pidfd_open takes two numbers and returns a new descriptor or -1.
    let pidfd = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) })?;
    let number = find(pid, kind).0;
    // SAFETY: pidfd_getfd takes three numbers and returns a new descriptor or -1.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0) })
}

/// Copies of both.
///
/// # Errors
/// The system call's.
///
/// # Panics
/// As [`look_at`].
pub fn copies(pid: Pid) -> Result<[OwnedFd; 2], Errno> {
    Ok([copy(pid, Kind::SPACE)?, copy(pid, Kind::MM)?])
}
