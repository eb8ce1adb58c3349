//! Who is at the other end of a Unix socket: the process that connected, and where it stands.
//!
//! What is read about a process is read by its pid, and a pid can be given to another. `SO_PEERPIDFD` (Linux 6.5) names
//! the very process that connected: if that lives when everything has been read, it had its pid all the time, and what
//! was read is about it. Before 6.5 the process that has the pid is opened, which must be the peer's user's and the same
//! after the look as before.

use super::place::{self, Found};
use crate::core::{Peer, Pid};
use crate::io::process::{start_time, uid_of};
use crate::sys::pidfd;
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Who connected.
#[derive(Debug)]
pub(crate) struct Connected {
    /// Its process, user and group at that time.
    pub peer: Peer,
    /// Names the process for ever; readable when it has ended. `None` where the kernel has no such thing (before 5.3).
    pub pidfd: Option<OwnedFd>,
    /// What was found of it.
    pub found: Found,
}

fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

/// Finds out who connected.
///
/// # Errors
/// `ESRCH` when the process has ended or is of a PID namespace that is not seen here; else the system call's.
pub(crate) fn look(socket: &impl AsFd) -> io::Result<Connected> {
    let credentials = getsockopt(socket, sockopt::PeerCredentials)?;
    let kernel_pid = nix::unistd::Pid::from_raw(credentials.pid());
    let pid: Pid = u32::try_from(credentials.pid()).ok().filter(|pid| *pid != 0).ok_or_else(gone)?;
    let peer = Peer { pid, uid: credentials.uid(), gid: credentials.gid() };
    let pidfd = match getsockopt(socket, sockopt::PeerPidfd) {
        Ok(fd) => Some(fd),
        Err(Errno::ENOPROTOOPT) => match pidfd::open(kernel_pid) {
            Ok(fd) => Some(fd),
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => None,
            Err(error) => return Err(error),
        }
        .filter(|_| uid_of(kernel_pid) == Some(peer.uid)),
        Err(error) => return Err(error.into()),
    };
    let found = place::look(pid)?;
    match &pidfd {
        Some(pidfd) => match pidfd::send_signal(pidfd, None) {
            Err(error) if error.raw_os_error() != Some(libc::EPERM) => return Err(error),
            Ok(()) | Err(_) => {}
        },
        None if uid_of(kernel_pid) != Some(peer.uid) => return Err(gone()),
        None => {}
    }
    if start_time(kernel_pid) != Some(found.start_time) {
        return Err(gone());
    }
    Ok(Connected { peer, pidfd, found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_peer_is_known_by_pid_start_time_user_and_place() {
        let (here, _there) = UnixStream::pair().unwrap();
        let connected = look(&here).unwrap();
        assert_eq!(connected.peer.pid, std::process::id());
        assert_eq!(Some(connected.found.start_time), start_time(nix::unistd::Pid::this()));
        assert_eq!(connected.peer.uid, nix::unistd::geteuid().as_raw());
        assert!(connected.found.place.is_the_daemons());
    }
}
