//! Who is at the other end of a connection.

use crate::core::vault::Caller;
use crate::core::{ProcessKey, Uid};
use crate::io::process::{start_time, uid_of};
use crate::sys::pidfd;
use crate::witness::cgroup::Cgroups;
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};

/// Bytes read of `/proc/PID/cgroup`.
const MOST_CGROUP_BYTES: u64 = 16 * 1024;
/// Bytes of a cgroup's path that are kept and shown.
const MOST_PATH_BYTES: usize = 256;

/// A process that has connected.
#[derive(Debug)]
pub struct Client {
    /// Who it is for the rules.
    pub caller: Caller,
    /// Names the process for ever; readable when it has ended.
    pub pidfd: OwnedFd,
}

/// The user who connected.
///
/// # Errors
/// The system call's.
pub(super) fn user_of(socket: &OwnedFd) -> io::Result<Uid> {
    Ok(getsockopt(socket, sockopt::PeerCredentials)?.uid())
}

/// Finds out who connected.
///
/// # Errors
/// `ESRCH` when the process has ended or is of a PID namespace that is not seen here; else the system call's.
pub(super) fn identify(socket: &OwnedFd) -> io::Result<Client> {
    let gone = || io::Error::from_raw_os_error(libc::ESRCH);
    let credentials = getsockopt(socket, sockopt::PeerCredentials)?;
    let pid = Pid::from_raw(credentials.pid());
    if pid.as_raw() <= 0 {
        return Err(gone());
    }
    let uid = credentials.uid();
    let pidfd = match getsockopt(socket, sockopt::PeerPidfd) {
        Ok(fd) => fd,
        // Before Linux 6.5. Whoever has the pid now may be another process, but then at least one of this user.
        Err(nix::errno::Errno::ENOPROTOOPT) => {
            let fd = pidfd::open(pid)?;
            if uid_of(pid) != Some(uid) {
                return Err(gone());
            }
            fd
        }
        Err(error) => return Err(error.into()),
    };
    let start_time = start_time(pid).ok_or_else(gone)?;
    let cgroup = cgroup_of(pid);
    // If it lives now, it had its pid all the time, and what was read is about it.
    match pidfd::send_signal(pidfd.as_fd(), None) {
        Err(error) if error.raw_os_error() != Some(libc::EPERM) => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let process = ProcessKey { pid: credentials.pid().cast_unsigned(), start_time };
    Ok(Client { caller: Caller { process, uid, cgroup }, pidfd })
}

fn cgroup_of(pid: Pid) -> String {
    let mut text = String::new();
    let read = File::open(format!("/proc/{pid}/cgroup"))
        .and_then(|file| file.take(MOST_CGROUP_BYTES).read_to_string(&mut text));
    let mut path = read.map_or_else(|_| String::new(), |_| Cgroups::parse(&text).telling().0);
    path.truncate(path.floor_char_boundary(MOST_PATH_BYTES));
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_peer_is_known_by_pid_start_time_and_user() {
        let (here, _there) = UnixStream::pair().unwrap();
        let client = identify(&here.into()).unwrap();
        let own = Pid::this();
        assert_eq!(client.caller.process.pid, std::process::id());
        assert_eq!(Some(client.caller.process.start_time), start_time(own));
        assert_eq!(client.caller.uid, nix::unistd::geteuid().as_raw());
    }
}
