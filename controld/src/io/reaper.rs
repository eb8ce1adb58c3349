//! Reaps orphans when this process is PID 1 of a container, or a subreaper.
//!
//! Every process whose parent ends becomes our child then, and stays a zombie until someone waits for it. Waiting for
//! *any* child would take the exit statuses of our own servers away from those who wait for them (it did, 200 times of
//! 200), so the reaper peeks: it looks at an ended child without reaping it, and reaps it only when it is not ours.

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::process::ExitCause;
use crate::sys::proc::OWN_THREADS;

/// An orphan that was reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orphan {
    /// Its pid, free for others now.
    pub pid: Pid,
    /// How it ended.
    pub cause: ExitCause,
}

/// Wakes whenever a child has ended.
#[derive(Debug)]
pub struct Reaper {
    children: Signal,
}

impl Reaper {
    /// Starts listening for the end of children.
    ///
    /// # Errors
    /// When the signal handler cannot be set. Panics outside a tokio runtime.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { children: signal(SignalKind::child())? })
    }

    /// Waits until some child has ended; call [`reap_orphans`] then. May be dropped and called again.
    pub async fn child_ended(&mut self) {
        // `None` means that the runtime is shutting down, and then nobody is woken any more.
        if self.children.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// Reaps every ended child for which `is_ours` is false, and leaves the others to those who wait for them.
///
/// A child that was started must be known to `is_ours` before the next call: start and call in one task, without an
/// await between start and registration.
pub fn reap_orphans(is_ours: impl Fn(Pid) -> bool) -> Vec<Orphan> {
    let mut orphans = Vec::new();
    while let Some(pid) = peek(Id::All) {
        if is_ours(pid) {
            // The kernel shows the same one again until it is reaped, so those behind it are looked for one by one.
            let others = children().into_iter().filter(|child| !is_ours(*child));
            orphans.extend(others.filter(|child| peek(Id::Pid(*child)).is_some()).filter_map(reap));
            break;
        }
        let Some(orphan) = reap(pid) else { break };
        orphans.push(orphan);
    }
    orphans
}

/// An ended child, left as it is.
fn peek(id: Id<'_>) -> Option<Pid> {
    waitid(id, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT).ok()?.pid()
}

fn reap(pid: Pid) -> Option<Orphan> {
    let cause = match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG).ok()? {
        WaitStatus::Exited(_, status) => ExitCause::Exited(status),
        WaitStatus::Signaled(_, signal, _) => ExitCause::Signaled(signal as i32),
        // Nobody else waits for a child that is not ours, so it cannot be gone since the peek.
        WaitStatus::Stopped(..)
        | WaitStatus::PtraceEvent(..)
        | WaitStatus::PtraceSyscall(_)
        | WaitStatus::Continued(_)
        | WaitStatus::StillAlive => return None,
    };
    Some(Orphan { pid, cause })
}

/// All children, ended or not. On a kernel without `/proc/PID/task/TID/children` none: then orphans behind an ended
/// server wait until that server has been reaped and the next child ends.
fn children() -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir(OWN_THREADS) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .map(Pid::from_raw)
        .collect()
}
