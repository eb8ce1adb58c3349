//! Kills for want of memory: what the kernel's log names, and what cgroups count.
//!
//! The log is exact about who, and comes a moment after the end or not at all. The counter is there before the process
//! has ended, and says only that somebody of the cgroup was killed. So the counter decides whether the log is worth
//! waiting for, and decides alone where the log is not read; then each kill that it counts explains one end.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use remps_proto::who::Cgroups;

use crate::core::Pid;
use crate::witness::cgroup::{Mounts, kills};

/// Names remembered: a group that is killed as one can have many processes.
const MAX_NAMES: usize = 1024;
/// How long a name means a process that has just ended, and not a later one with its pid.
const NAME_LIFETIME: Duration = Duration::from_secs(10);
/// How long the log is waited for when somebody of the cgroup was killed.
const LOG_GRACE: Duration = Duration::from_millis(200);

/// What is known of kills; one for the daemon.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryKills(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    named: Notify,
}

#[derive(Debug, Default)]
struct State {
    is_log_read: bool,
    names: VecDeque<(Pid, Instant)>,
    counters: BTreeMap<PathBuf, Weak<Counter>>,
}

/// A cgroup's counter, and how many of its kills have explained an end.
#[derive(Debug)]
pub(super) struct Counter {
    file: PathBuf,
    explained: Mutex<u64>,
}

impl Counter {
    fn read(&self) -> Option<u64> {
        kills(&std::fs::read_to_string(&self.file).ok()?)
    }

    /// Whether there is a kill that has explained nothing; `None` when the cgroup is gone.
    fn has_kill(&self) -> Option<bool> {
        let count = self.read()?;
        Some(count > *self.explained.lock())
    }

    fn explain_one(&self) {
        *self.explained.lock() += 1;
    }
}

impl MemoryKills {
    /// Says whether the kernel's log is read and its pids are ours.
    pub(crate) fn log_is_read(&self, is_read: bool) {
        self.0.state.lock().is_log_read = is_read;
    }

    /// Notes a process that the log names.
    pub(crate) fn note(&self, pid: Pid) {
        let mut state = self.0.state.lock();
        let now = Instant::now();
        state.names.retain(|(_, at)| now.duration_since(*at) < NAME_LIFETIME);
        if state.names.len() == MAX_NAMES {
            state.names.pop_front();
        }
        state.names.push_back((pid, now));
        drop(state);
        self.0.named.notify_waiters();
    }

    /// The counter of a process's cgroup, shared by all of that cgroup; `None` where none can be read.
    pub(super) fn counter(&self, cgroups: &Cgroups, mounts: &Mounts) -> Option<Arc<Counter>> {
        let file = mounts.kill_counter(cgroups)?;
        let mut state = self.0.state.lock();
        if let Some(counter) = state.counters.get(&file).and_then(Weak::upgrade) {
            return Some(counter);
        }
        let counter = Arc::new(Counter { file: file.clone(), explained: Mutex::new(0) });
        *counter.explained.lock() = counter.read()?;
        state.counters.retain(|_, counter| counter.strong_count() > 0);
        state.counters.insert(file, Arc::downgrade(&counter));
        Some(counter)
    }

    /// Takes a process's name off the list, if it is there.
    fn take_name(&self, pid: Pid) -> bool {
        let mut state = self.0.state.lock();
        let now = Instant::now();
        let found = state.names.iter().position(|(name, at)| *name == pid && now.duration_since(*at) < NAME_LIFETIME);
        found.and_then(|at| state.names.remove(at)).is_some()
    }

    /// Whether a process that SIGKILL ended was killed for want of memory.
    pub(super) async fn killed(&self, pid: Pid, counter: Option<&Counter>) -> bool {
        let was_counted = counter.and_then(Counter::has_kill);
        let is_log_read = self.0.state.lock().is_log_read;
        let is_killed = match (self.take_name(pid), was_counted) {
            (true, _) => true,
            (false, Some(false)) => false,
            // The log was not read when it could have said so: the counter is all that there is.
            (false, counted) if !is_log_read => counted == Some(true),
            (false, _) => self.wait_for_name(pid).await,
        };
        if let Some(counter) = counter.filter(|_| is_killed) {
            counter.explain_one();
        }
        is_killed
    }

    async fn wait_for_name(&self, pid: Pid) -> bool {
        let deadline = Instant::now() + LOG_GRACE;
        loop {
            let mut named = std::pin::pin!(self.0.named.notified());
            named.as_mut().enable();
            if self.take_name(pid) {
                return true;
            }
            if tokio::time::timeout_at(deadline, named).await.is_err() {
                return self.take_name(pid);
            }
        }
    }
}
