//! The kernel's log, `/dev/kmsg`: Xid lines, and kills for want of memory.
//!
//! Reads from the end of the log on, and believes only records of the kernel itself: what a program writes to
//! `/dev/kmsg` carries another facility, and a name that a process has chosen can't begin a record.
//!
//! The log is everybody's. A machine that logs 100,000 lines a second wakes this reader as often as it can be woken, so
//! it takes at most [`RECORDS_PER_PERIOD`] records in each [`PERIOD`]; the kernel drops what is then too old, and the
//! gaps in its numbers are counted ([`Kmsg::lost`]). Where nothing is written nothing wakes up.
//!
//! The kernel speaks of pids in the initial PID namespace. A daemon in another one is told whom they mean by that
//! namespace's `/proc` where it has it (`witness.proc`), and no pids at all else, rather than numbers that mean somebody
//! else there.
//!
//! The driver awaits [`Kmsg::next`] in its select, and may drop the future at any time. Without the log (no right to read
//! it, no such file in the container) there are no Xid lines, and a kill for want of memory is told by the counters of
//! cgroups alone.

mod oom;
mod record;
#[cfg(test)]
mod tests;
mod xid;

use std::fs::OpenOptions;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::sys::other_proc::OtherProc;
pub(crate) use oom::killed_pid;
pub(crate) use record::Record;
pub(crate) use xid::Xid;

use crate::core::{Evidence, Pid};
use crate::sys::polled::register;

/// The kernel's log.
#[cfg(test)]
pub(crate) const KERNEL_LOG: &str = "/dev/kmsg";
/// Records taken in each [`PERIOD`].
pub(crate) const RECORDS_PER_PERIOD: u32 = 2000;
/// How long those are all that is taken.
pub(crate) const PERIOD: Duration = Duration::from_millis(100);
/// Records taken in one turn, so that a burst does not keep the driver from its other work.
const RECORDS_PER_TURN: u32 = 250;
/// Room for a record. The kernel's limit, `PRINTK_MESSAGE_MAX` of Linux 6.
const MAX_RECORD: usize = 8192;
/// `/dev/kmsg` as a device: the memory devices' major number, and its minor.
const MEMORY_MAJOR: u32 = 1;
const KMSG_MINOR: u32 = 11;

/// What the kernel has said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KernelSign {
    /// An Xid line, as [`Evidence::Xid`].
    Xid(Evidence),
    /// A process was killed for want of memory. `None` when the daemon can't know which: see the module's text.
    OutOfMemory(Option<Pid>),
}

/// Why the log is not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KmsgError {
    /// There is none.
    #[error("there is no {0}")]
    Absent(String),
    /// Reading it is not permitted: it takes `CAP_SYSLOG` where `kernel.dmesg_restrict` is set.
    #[error("{0} may not be read")]
    Forbidden(String),
    /// It is something else, as in containers where it leads to the console.
    #[error("{0} is not the kernel's log")]
    Foreign(String),
    /// A system call failed.
    #[error("{path} can't be read: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Whom the pids mean that the kernel speaks of.
#[derive(Debug)]
enum Pids {
    /// The processes that this daemon knows by them.
    Ours,
    /// Those that are found there.
    Of(OtherProc),
    Nobodys,
}

impl Pids {
    /// The pid here, or the number in its place, of the process that has this one there.
    fn here(&self, pid: u32) -> Option<u32> {
        match self {
            Self::Ours => Some(pid),
            Self::Of(other) => other.here(pid),
            Self::Nobodys => None,
        }
    }
}

/// Reads the log.
#[derive(Debug)]
pub(crate) struct Kmsg {
    fd: AsyncFd<OwnedFd>,
    buffer: Box<[u8]>,
    pids: Pids,
    expected: Option<u64>,
    lost: u64,
    unreadable: u64,
    period_began: Instant,
    taken: u32,
}

impl Kmsg {
    /// Opens the log at its end. Panics outside a tokio runtime.
    ///
    /// # Errors
    /// See [`KmsgError`].
    pub(crate) fn open(path: &Path) -> Result<Self, KmsgError> {
        let name = || path.display().to_string();
        let failed = |source: io::Error| match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => KmsgError::Absent(name()),
            Some(libc::EACCES | libc::EPERM) => KmsgError::Forbidden(name()),
            _ => KmsgError::Io { path: name(), source },
        };
        let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
        let opened = file.metadata().map_err(failed)?;
        let (major, minor) = (libc::major(opened.rdev()), libc::minor(opened.rdev()));
        if !opened.file_type().is_char_device() || (major, minor) != (MEMORY_MAJOR, KMSG_MINOR) {
            return Err(KmsgError::Foreign(name()));
        }
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        Self::from_fd(file.into(), crate::sys::proc::is_in_first_pid_namespace()).map_err(failed)
    }

    /// Takes an open, non-blocking descriptor that gives one record a read. `pids_are_ours` says whether the pids in its
    /// lines mean the processes that this daemon knows by them. Panics outside a tokio runtime.
    ///
    /// # Errors
    /// When the descriptor can't be polled.
    pub(crate) fn from_fd(fd: OwnedFd, pids_are_ours: bool) -> io::Result<Self> {
        Ok(Self {
            fd: register(fd, Interest::READABLE)?,
            buffer: vec![0; MAX_RECORD].into_boxed_slice(),
            pids: if pids_are_ours { Pids::Ours } else { Pids::Nobodys },
            expected: None,
            lost: 0,
            unreadable: 0,
            period_began: Instant::now(),
            taken: 0,
        })
    }

    /// Has pids that are not ours looked up there, if that shows the processes of which the kernel speaks.
    pub(crate) fn looking_up(self, other: Option<&OtherProc>) -> Self {
        let first = other.filter(|other| matches!(self.pids, Pids::Nobodys) && other.is_first());
        match first {
            Some(other) => Self { pids: Pids::Of(other.clone()), ..self },
            None => self,
        }
    }

    /// Whether it says whom a kill was of.
    pub(crate) const fn names_processes(&self) -> bool {
        !matches!(self.pids, Pids::Nobodys)
    }

    /// Records that were gone before they could be read.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Waits for records and gives the signs among them; mostly none.
    ///
    /// # Errors
    /// When the log can't be read any more; it is then of no more use.
    pub(crate) async fn next(&mut self) -> io::Result<Vec<KernelSign>> {
        if self.taken >= RECORDS_PER_PERIOD {
            tokio::time::sleep_until(self.period_began + PERIOD).await;
            self.taken = 0;
        }
        let mut ready = self.fd.readable().await?;
        if self.period_began.elapsed() >= PERIOD {
            self.period_began = Instant::now();
            self.taken = 0;
        }
        let mut signs = Vec::new();
        for _ in 0..RECORDS_PER_TURN.min(RECORDS_PER_PERIOD - self.taken) {
            self.taken += 1;
            match nix::unistd::read(ready.get_inner().as_fd(), &mut self.buffer) {
                // A log has no end.
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => match Record::parse(&self.buffer[..count]) {
                    Some(record) => {
                        let gap = self.expected.map_or(0, |expected| record.sequence.saturating_sub(expected));
                        self.lost = self.lost.saturating_add(gap);
                        self.expected = Some(record.sequence.saturating_add(1));
                        signs.extend(sign(&record, &self.pids));
                    }
                    None => self.unreadable += 1,
                },
                Err(nix::Error::EAGAIN) => {
                    ready.clear_ready();
                    break;
                }
                // The next record was overwritten; the read after this one gives the oldest that there is, and the gap
                // in the numbers tells how many are gone.
                Err(nix::Error::EPIPE | nix::Error::EINTR) => {}
                // The record is larger than any should be, and no read gets past it: go to the end.
                Err(nix::Error::EINVAL) => {
                    self.unreadable += 1;
                    nix::unistd::lseek(ready.get_inner(), 0, nix::unistd::Whence::SeekEnd)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(signs)
    }
}

fn sign(record: &Record<'_>, pids: &Pids) -> Option<KernelSign> {
    if !record.is_kernels() {
        return None;
    }
    if let Some(xid) = Xid::parse(record.text) {
        let Xid { number, class, bus, instance, pid, channel, text } = xid;
        let pid = pid.and_then(|pid| pids.here(pid));
        return Some(KernelSign::Xid(Evidence::Xid { number, class, bus, instance, pid, channel, text }));
    }
    killed_pid(record.text).map(|pid| KernelSign::OutOfMemory(pids.here(pid)))
}
