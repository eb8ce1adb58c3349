//! Process descriptors: they name one process for ever, where a pid may be given to another.
#![expect(unsafe_code, reason = "pidfd_open and pidfd_send_signal have no wrapper in the C library of 2012")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use nix::sys::signal::Signal;
use nix::sys::stat::fstat;
use nix::sys::statfs::{FsType, fstatfs};
use nix::unistd::Pid;

/// Opens a process; the descriptor becomes readable when it has ended. Close-on-exec.
///
/// # Errors
/// `ESRCH` when there is no such process, `ENOSYS` before Linux 5.3.
pub fn open(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    let fd = i32::try_from(result).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel just made this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The number that the process of a descriptor has and no other one gets until the machine is started anew, whatever PID
/// namespace it is in; `None` before Linux 6.9, where all descriptors of processes have one.
pub fn unique(process: impl AsFd) -> Option<u64> {
    /// `PID_FS_MAGIC`.
    const PID_FS: FsType = FsType(0x5049_4446);
    let fd = process.as_fd();
    if fstatfs(fd).ok()?.filesystem_type() != PID_FS {
        return None;
    }
    fstat(fd).ok().map(|found| found.st_ino)
}

/// Sends a signal; `None` only asks whether it could be sent.
///
/// # Errors
/// `ESRCH` when the process has ended, `EPERM` when it is another user's.
pub fn send_signal(process: impl AsFd, signal: Option<Signal>) -> io::Result<()> {
    let number = signal.map_or(0, |signal| signal as libc::c_int);
    let no_information: *const libc::siginfo_t = std::ptr::null();
    let fd = process.as_fd().as_raw_fd();
    // SAFETY: the information pointer may be null; the descriptor is borrowed for the call.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, number, no_information, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_signal_reaches_the_process_and_not_its_successor() {
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let fd = open(Pid::from_raw(i32::try_from(child.id()).unwrap())).unwrap();
        send_signal(&fd, None).unwrap();
        send_signal(&fd, Some(Signal::SIGTERM)).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert_eq!(send_signal(&fd, None).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn descriptors_of_one_process_have_one_number_and_those_of_another_one_another() {
        let own = Pid::this();
        let [one, again] = [open(own).unwrap(), open(own).unwrap()].map(|fd| unique(&fd));
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let other = open(Pid::from_raw(child.id().cast_signed())).unwrap();
        assert_eq!(one, again);
        assert!(one.is_none() || unique(&other) != one, "{one:?}");
        assert_eq!(unique(io::stdin()), None, "it names no process");
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error() {
        // The largest pid is below 2^22 on every Linux.
        assert_eq!(open(Pid::from_raw(i32::MAX)).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
