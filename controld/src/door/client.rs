//! Who is at the other end of a connection.

use crate::core::vault::Caller;
use crate::core::{Namespace, ProcessKey, Uid};
use crate::witness::peer;
use crate::witness::place::Found;
use nix::sys::socket::{getsockopt, sockopt};
use std::io;
use std::os::fd::OwnedFd;

/// Bytes of a cgroup's path that are kept and shown.
const MOST_PATH_BYTES: usize = 256;

/// A process that has connected.
#[derive(Debug)]
pub(crate) struct Client {
    /// Who it is for the rules.
    pub caller: Caller,
    /// Names the process for ever; readable when it has ended.
    pub pidfd: OwnedFd,
    /// Its user namespace, where that is another than the daemon's and could be opened. It keeps its number while this is
    /// open.
    pub namespace: Option<OwnedFd>,
}

/// The user who connected.
pub(super) fn user_of(socket: &OwnedFd) -> io::Result<Uid> {
    Ok(getsockopt(socket, sockopt::PeerCredentials)?.uid())
}

/// Finds out who connected.
///
/// # Errors
/// `ESRCH` when the process has ended or is of a PID namespace that is not seen here, `EACCES` when nothing of its user
/// namespace may be read; else the system call's.
pub(super) fn identify(socket: &OwnedFd) -> io::Result<Client> {
    let connected = peer::look(socket)?;
    let pidfd = connected.pidfd.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))?;
    let Found { place, mut cgroup, start_time, namespace } = connected.found;
    if place.user == Namespace::Unknown {
        return Err(io::Error::from_raw_os_error(libc::EACCES));
    }
    cgroup.truncate(cgroup.floor_char_boundary(MOST_PATH_BYTES));
    let process = ProcessKey { pid: connected.peer.pid, start_time };
    Ok(Client { caller: Caller { process, uid: connected.peer.uid, cgroup, place }, pidfd, namespace })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::process;
    use nix::unistd::Pid;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_peer_is_known_by_pid_start_time_and_user() {
        let (here, _there) = UnixStream::pair().unwrap();
        let client = identify(&here.into()).unwrap();
        let own = Pid::this();
        assert_eq!(client.caller.process.pid, std::process::id());
        assert_eq!(Some(client.caller.process.start_time), process::start_time(own));
        assert_eq!(client.caller.uid, nix::unistd::geteuid().as_raw());
        assert!(client.caller.place.is_the_daemons());
    }
}
