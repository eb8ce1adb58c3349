//! How a client's process ended: status, signal, or killed for want of memory.
//!
//! The driver makes an [`EndWatch`] when it knows a process's identity, and asks it when the process's pidfd has become
//! readable. A client is not the daemon's child, so nobody tells the daemon its status by itself; [`status`] says who
//! knows it when. It takes [`STATUS_DEADLINE`] at the most, when the parent takes its time and the daemon may not look at
//! the process, and [`End::Unknown`] is the honest answer where nobody tells: a daemon without the right to trace the
//! process, on a kernel before 6.15.
//!
//! A SIGKILL is told from a kill for want of memory by the cgroup's counter and the kernel's log
//! ([`MemoryKills`]): without both it is a SIGKILL.

mod memory_kills;
mod status;
#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::time::Instant;

pub(crate) use memory_kills::MemoryKills;

use crate::core::{End, ProcessKey};
use crate::sys::polled::register;
use crate::sys::proc::{ProcDir, Stat};
use crate::witness::cgroup::Mounts;
use memory_kills::Counter;
use remps_proto::who::Cgroups;
use status::Status;

/// How long the parent of an ended process may take to ask for its status.
pub(crate) const STATUS_DEADLINE: Duration = Duration::from_secs(1);
/// Bits of a wait status that are the signal; 0 means an exit, whose status is in the next byte.
const SIGNAL_BITS: i32 = 0x7f;
const STATUS_SHIFT: u32 = 8;
const STATUS_BITS: i32 = 0xff;

/// How a process ends that has not ended yet: no thread of it runs anything of its program any more, which is so before its
/// files are closed. `None` while one may. A kill for want of memory is a SIGKILL here.
pub(crate) fn ending(process: ProcessKey) -> Option<End> {
    let dir = ProcDir::open(process.pid)?;
    let is_it = |stat: &Stat| stat.start_time == process.start_time;
    if !dir.stat().is_some_and(|stat| is_it(&stat)) || !dir.is_past_running() {
        return None;
    }
    let status = dir.stat().filter(is_it)?.wait_status.filter(|_| dir.is_open_to_us());
    Some(status.map_or(End::Unknown, |status| match status & SIGNAL_BITS {
        0 => End::Exited(status >> STATUS_SHIFT & STATUS_BITS),
        signal => End::Signaled(signal),
    }))
}

/// Waits to tell how one process ended.
#[derive(Debug)]
pub(crate) struct EndWatch {
    process: ProcessKey,
    kills: MemoryKills,
    counter: Option<Arc<Counter>>,
}

impl EndWatch {
    /// Begins while the process lives: what its cgroup has counted until now is not about it.
    #[must_use]
    pub(crate) fn begin(process: ProcessKey, kills: &MemoryKills, cgroups: &Cgroups, mounts: &Mounts) -> Self {
        Self { process, counter: kills.counter(cgroups, mounts), kills: kills.clone() }
    }

    /// How the process ended. To be called when it has: its `pidfd` is readable, or, where there are no process
    /// descriptors, its pid is gone.
    pub(crate) async fn end(self, pidfd: Option<BorrowedFd<'_>>) -> End {
        let Some(status) = self.wait_status(pidfd).await else { return End::Unknown };
        match status & SIGNAL_BITS {
            0 => End::Exited(status >> STATUS_SHIFT & STATUS_BITS),
            libc::SIGKILL if self.kills.killed(self.process.pid, self.counter.as_deref()).await => End::OutOfMemory,
            signal => End::Signaled(signal),
        }
    }

    async fn wait_status(&self, pidfd: Option<BorrowedFd<'_>>) -> Option<i32> {
        let deadline = Instant::now() + STATUS_DEADLINE;
        let watched = || register(pidfd?.try_clone_to_owned().ok()?, Interest::READABLE).ok();
        let mut watched_fd = None;
        loop {
            match status::of(self.process, pidfd) {
                Status::Known(status) => return Some(status),
                Status::Never => return None,
                Status::NotYet => {}
            }
            if watched_fd.is_none() {
                watched_fd = watched();
            }
            // Readable once more means hung up: the parent has asked.
            let fd = watched_fd.as_ref()?;
            let mut ready = tokio::time::timeout_at(deadline, fd.readable()).await.ok()?.ok()?;
            ready.clear_ready();
        }
    }
}
