//! Who is at the other end of a connection that was found by name.
//!
//! Whoever may write to the pipe directory can listen there, and a container that has it mounted has a uid 0 too. So the
//! uid alone says little: a peer counts when it is root or this user, lives where we do (same PID and user namespace,
//! which no process of a container does) and, as a holder, was started as the holder of this very directory. What the
//! kernel noted of it is bound to that process, and not to a number that may be another's by now.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::stat::stat;
use nix::unistd::{Pid, geteuid};

use super::{ARGUMENT, PROGRAM};
use crate::io::folder::{Folder, Identity};
use crate::io::process::start_time;
use crate::sys::pidfd;
use crate::sys::proc::ProcDir;

/// A process that may be believed to be a daemon's or its holder's.
#[derive(Debug)]
pub(super) struct Peer {
    pid: Pid,
    watch: Watch,
}

#[derive(Debug)]
enum Watch {
    Descriptor(OwnedFd),
    /// Where the kernel has no process descriptors (before Linux 5.3).
    StartTime(u64),
}

impl Peer {
    /// Who connected, or who listens where we connected: `None` for anybody who is not to be believed.
    pub(super) fn of(socket: &OwnedFd) -> Option<Self> {
        let credentials = getsockopt(socket, sockopt::PeerCredentials).ok()?;
        // A process of a PID namespace out of our sight has the pid 0.
        let pid = Some(Pid::from_raw(credentials.pid())).filter(|pid| pid.as_raw() > 0)?;
        if credentials.uid() != 0 && credentials.uid() != geteuid().as_raw() {
            return None;
        }
        let watch = match getsockopt(socket, sockopt::PeerPidfd) {
            Ok(fd) => Watch::Descriptor(fd),
            // Before Linux 6.5. Who had this pid when the connection was made may have ended since.
            Err(Errno::ENOPROTOOPT) => match pidfd::open(pid) {
                Ok(fd) => Watch::Descriptor(fd),
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Watch::StartTime(start_time(pid)?),
                Err(_) => return None,
            },
            Err(_) => return None,
        };
        let peer = Self { pid, watch };
        (peer.lives_where_we_do() && peer.lives()).then_some(peer)
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether it has not ended: what was read by its pid before this was its own.
    pub(super) fn lives(&self) -> bool {
        match &self.watch {
            Watch::Descriptor(fd) => {
                poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) == Ok(0)
            }
            Watch::StartTime(start) => start_time(self.pid) == Some(*start),
        }
    }

    /// Whether it was started as the holder of a pipe directory.
    pub(super) fn is_holder_of(&self, folder: &Folder) -> bool {
        let Some(line) = self.dir().and_then(|dir| dir.bytes("cmdline")) else { return false };
        let mut words = line.split(|byte| *byte == 0);
        let mut next = || words.next().unwrap_or_default();
        if next() != PROGRAM.as_bytes() || next() != ARGUMENT.as_bytes() {
            return false;
        }
        // Its daemon may have known the directory by another path.
        let its = stat(Path::new(OsStr::from_bytes(next()))).map(Identity::from);
        let ours = nix::sys::stat::fstat(folder).map(Identity::from);
        its.is_ok() && its == ours
    }

    fn dir(&self) -> Option<ProcDir> {
        ProcDir::open(self.pid.as_raw().cast_unsigned())
    }

    fn lives_where_we_do(&self) -> bool {
        let Some((its, ours)) = self.dir().zip(ProcDir::own()) else { return false };
        let is_same = |kind| match ours.namespace(kind) {
            Ok(ours) => Ok(its.namespace(kind)? == ours),
            // A kernel without this kind of namespace has one for all.
            Err(Errno::ENOENT) => Ok(true),
            Err(error) => Err(error),
        };
        match (is_same("pid"), is_same("user")) {
            (Ok(pid), Ok(user)) => pid && user,
            // Without the right to look, as where capabilities come from the program's file: another user's process is
            // out by its uid, and a nested PID namespace is seen without that right.
            (Err(_), _) | (_, Err(_)) => !geteuid().is_root() && its.has_one_pid(),
        }
    }
}
