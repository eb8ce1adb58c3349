//! Signals for one certain process, and waiting for its end.

use super::view::handles_sigterm;
use crate::sys::pidfd;
use crate::sys::proc::FOLDER;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the kernel may take to bury a process that got SIGKILL: with GPU memory that is its longest step.
const BURIAL_LIMIT: Duration = Duration::from_secs(10);

/// A process that cannot be taken for another.
#[derive(Debug)]
pub(super) struct Process {
    pid: u32,
    descriptor: OwnedFd,
}

impl Process {
    /// Opens a process.
    ///
    /// # Errors
    /// `ESRCH` when there is none with this pid.
    pub(super) fn open(pid: u32) -> io::Result<Self> {
        let number = i32::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        Ok(Self { pid, descriptor: pidfd::open(Pid::from_raw(number))? })
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd::send_signal(&self.descriptor, Some(signal)) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            sent => sent,
        }
    }

    /// Whether it ends within this time.
    fn ends_within(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // Rounded up, so that the last wait is not followed by many of no length.
            let rounded = left.checked_add(Duration::from_millis(1)).and_then(|time| time.try_into().ok());
            let mut waits = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
            match poll(&mut waits, rounded.unwrap_or(PollTimeout::MAX)) {
                Ok(0) if left.is_zero() => return false,
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return true,
                Err(_) => return false,
            }
        }
    }
}

/// Asks a process that handles SIGTERM to end by itself; how long that took, or `None` when it does not handle it or is
/// still there after `grace`.
pub(super) fn let_it_end(process: &Process, grace: Duration) -> Option<Duration> {
    if grace.is_zero() || !handles_sigterm(Path::new(FOLDER), process.pid) {
        return None;
    }
    let begun = Instant::now();
    process.signal(Signal::SIGTERM).ok()?;
    process.ends_within(grace).then(|| begun.elapsed())
}

/// SIGTERM, then SIGKILL after `timeout`: what it took, and whether the process has ended.
pub(super) fn end(process: &Process, timeout: Duration) -> (String, bool) {
    let begun = Instant::now();
    let after = |begun: Instant| format!("{:.1} s", begun.elapsed().as_secs_f64());
    if process.ends_within(Duration::ZERO) {
        return ("ended".to_owned(), true);
    }
    if let Err(error) = process.signal(Signal::SIGTERM) {
        return (format!("can't be signalled: {error}"), false);
    }
    if process.ends_within(timeout) {
        return (format!("ended {} after SIGTERM", after(begun)), true);
    }
    if let Err(error) = process.signal(Signal::SIGKILL) {
        return (format!("can't be signalled: {error}"), false);
    }
    let killed = Instant::now();
    if process.ends_within(BURIAL_LIMIT) {
        return (format!("ended {} after SIGKILL", after(killed)), true);
    }
    (format!("lives on {} after SIGKILL", after(killed)), false)
}
