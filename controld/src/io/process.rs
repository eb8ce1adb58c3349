//! Processes that are not our children: clients, and servers taken over from a daemon before us.
//!
//! Everything here bears that the process vanishes at any moment: a question about one that is gone is `None`.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{MissedTickBehavior, interval};

use crate::sys::pidfd;
use crate::sys::polled::register;
use crate::sys::proc::{Stat, path_in};

/// How often a process is looked at where the kernel has no process descriptors (before Linux 5.3).
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Bytes read of a file in `/proc`.
const MOST_PROC_BYTES: u64 = 4096;

pub use crate::core::ExitCause;

impl From<std::process::ExitStatus> for ExitCause {
    fn from(status: std::process::ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt as _;
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited(code),
            (None, Some(signal)) => Self::Signaled(signal),
            (None, None) => Self::Unknown,
        }
    }
}

#[derive(Debug)]
enum Watch {
    Descriptor(AsyncFd<OwnedFd>),
    /// By start time: a later process with the same pid has another.
    Polled(u64),
}

/// One certain process, whoever gets its pid afterwards.
#[derive(Debug)]
pub struct WatchedProcess {
    pid: Pid,
    watch: Watch,
}

/// Opens a process by pid. The caller knows by other means (a connected socket) that the pid still is the one meant.
///
/// # Errors
/// `ESRCH` when there is no such process; anything else says nothing of whether there is.
pub fn open_process(pid: Pid) -> io::Result<WatchedProcess> {
    match pidfd::open(pid) {
        Ok(fd) => WatchedProcess::from_pidfd(pid, fd),
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => match start_time(pid) {
            Some(start) => Ok(WatchedProcess { pid, watch: Watch::Polled(start) }),
            None if is_there(pid) => Err(io::Error::other("its start time can't be read")),
            None => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        },
        Err(error) => Err(error),
    }
}

/// Opens this very process, and not another one that has its pid by now: `started` is its start time.
///
/// # Errors
/// `ESRCH` when it is gone; anything else says nothing of whether it is.
pub(crate) fn open_same(pid: Pid, started: u64) -> io::Result<WatchedProcess> {
    let opened = open_process(pid)?;
    // Opened first and looked at then: what has the start time now is what was opened.
    if start_time(pid) == Some(started) { Ok(opened) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

impl WatchedProcess {
    /// Takes a process descriptor, as `SO_PEERPIDFD` gives it.
    ///
    /// # Errors
    /// When the descriptor cannot be polled.
    pub fn from_pidfd(pid: Pid, fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { pid, watch: Watch::Descriptor(register(fd, Interest::READABLE)?) })
    }

    /// Its pid; perhaps another's by now, so never for a signal.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The process descriptor, where the kernel has them.
    #[must_use]
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        match &self.watch {
            Watch::Descriptor(fd) => Some(fd.get_ref().as_fd()),
            Watch::Polled(_) => None,
        }
    }

    /// Waits until the process has ended, all its threads included. May be dropped and called again.
    ///
    /// # Errors
    /// When the descriptor cannot be polled.
    pub async fn ended(&self) -> io::Result<()> {
        match &self.watch {
            Watch::Descriptor(fd) => fd.readable().await.map(|mut ready| ready.retain_ready()),
            Watch::Polled(start) => {
                let mut look = interval(LOOK_PERIOD);
                look.set_missed_tick_behavior(MissedTickBehavior::Delay);
                while may_be_this(self.pid, *start) {
                    look.tick().await;
                }
                Ok(())
            }
        }
    }

    /// Sends a signal to this very process; `None` only asks whether it lives.
    ///
    /// # Errors
    /// `ESRCH` when it has ended, `EPERM` when it may not be signalled.
    pub fn signal(&self, signal: Option<Signal>) -> io::Result<()> {
        match &self.watch {
            Watch::Descriptor(fd) => pidfd::send_signal(fd.get_ref(), signal),
            Watch::Polled(start) if start_time(self.pid) == Some(*start) => {
                Ok(nix::sys::signal::kill(self.pid, signal)?)
            }
            Watch::Polled(_) => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    }
}

/// Whether there is a process of this pid. Needs no descriptor.
fn is_there(pid: Pid) -> bool {
    nix::sys::signal::kill(pid, None) != Err(nix::errno::Errno::ESRCH)
}

/// Whether the process that started then may still be there: one that can't be read, for want of descriptors, may.
fn may_be_this(pid: Pid, start: u64) -> bool {
    start_time(pid).map_or_else(|| is_there(pid), |now| now == start)
}

/// When the process started, in clock ticks since boot: with the pid this names a process for ever.
#[must_use]
pub fn start_time(pid: Pid) -> Option<u64> {
    Stat::parse(&read_proc(pid, "stat")?).map(|stat| stat.start_time)
}

/// The process's name as the kernel has it, at most 15 bytes that the process chooses itself.
pub(crate) fn name_of(pid: Pid) -> Option<String> {
    let name = read_proc(pid, "comm")?;
    Some(String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned())
}

/// The user that the process runs as (its effective uid).
#[must_use]
pub fn uid_of(pid: Pid) -> Option<u32> {
    let status = String::from_utf8_lossy(&read_proc(pid, "status")?).into_owned();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    uids.split_whitespace().nth(1)?.parse().ok()
}

/// The inode of the process's PID namespace, as the NAMESPACE column of `ps` shows it. Needs the right to trace the
/// process, so a daemon that is not root sees only its own user's.
#[must_use]
pub fn pid_namespace_inode(pid: Pid) -> Option<u64> {
    std::fs::metadata(path_in(pid, "ns/pid")).ok().map(|namespace| namespace.ino())
}

/// The file of the process's program. Needs the right to trace the process.
pub(crate) fn program_of(pid: Pid) -> Option<PathBuf> {
    std::fs::read_link(path_in(pid, "exe")).ok()
}

fn read_proc(pid: Pid, file: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path_in(pid, file)).ok()?.take(MOST_PROC_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
