//! Threads for calls that may hang in the kernel, or in whatever the kernel asks: so many for each kind of call, so that
//! one kind never waits for another, and of those so many for each user, so that nobody's hanging calls use up the
//! others' threads.
//!
//! A call that hangs goes on hanging and keeps its thread; only who waits for it is let go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Looks into clients' processes and at their UVM descriptors, which wait for locks that the client may hold.
pub(crate) static LOOKS: Threads = Threads::new(32, 8);
/// Questions to the UVM driver about a client's address space, which wait for the same locks.
pub(crate) static QUESTIONS: Threads = Threads::new(16, 4);
/// Looks at the files in which NVIDIA's driver tells of the machine's GPUs, one at a time.
pub(crate) static MACHINE: Threads = Threads::new(1, 1);
/// Looks into the folder in which a cluster names its containers.
pub(crate) static FOLDERS: Threads = Threads::new(4, 4);
/// Questions to the user database, which may be another machine's.
pub(crate) static USER_LOOKUPS: Threads = Threads::new(8, 2);
/// Calls on the directories of thin daemons, whose file systems may be anything.
pub(crate) static JOINED_PLACES: Threads = Threads::new(8, 8);
/// Writes of what outlives the daemon, one after the other.
pub(crate) static STATE: Threads = Threads::new(1, 1);

/// How many threads all kinds can have at a time; they are started when they are needed.
pub(crate) fn most() -> usize {
    [&LOOKS, &QUESTIONS, &MACHINE, &FOLDERS, &USER_LOOKUPS, &JOINED_PLACES, &STATE]
        .iter()
        .map(|threads| threads.count)
        .sum()
}

/// The threads of one kind of call.
#[derive(Debug)]
pub(crate) struct Threads {
    count: usize,
    share: usize,
    free: Semaphore,
    /// What those users have left who have calls under way.
    users: Mutex<BTreeMap<u32, Arc<Semaphore>>>,
}

/// Why a call has no result.
#[derive(Debug)]
pub(crate) enum NoResult {
    /// All threads that it could have are taken by calls that hang.
    Exhausted,
    /// It hangs itself.
    Stuck,
    /// It panicked.
    Panicked(tokio::task::JoinError),
}

/// A thread that is taken, until it is dropped.
struct Taken {
    user: u32,
    of: &'static Threads,
    _thread: SemaphorePermit<'static>,
    share: Option<OwnedSemaphorePermit>,
}

impl Threads {
    /// `count` threads, of which one user can have `share`.
    const fn new(count: usize, share: usize) -> Self {
        let users = Mutex::new(BTreeMap::new());
        Self { count, share, free: Semaphore::const_new(count), users }
    }

    /// Runs a call on a thread on behalf of this user, and waits for a thread and for the result for `patience` each.
    ///
    /// # Errors
    /// See [`NoResult`].
    pub(crate) async fn run<T: Send + 'static>(
        &'static self,
        user: u32,
        patience: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoResult> {
        let taken = timeout(patience, self.take(user)).await.map_err(|_| NoResult::Exhausted)?;
        let task = spawn_blocking(move || {
            let result = call();
            drop(taken);
            result
        });
        match timeout(patience, task).await {
            Ok(result) => result.map_err(NoResult::Panicked),
            Err(_) => Err(NoResult::Stuck),
        }
    }

    /// A thread: of the user's share first, so that who has used up that keeps nobody from the rest.
    async fn take(&'static self, user: u32) -> Taken {
        let share = {
            let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(users.entry(user).or_insert_with(|| Arc::new(Semaphore::new(self.share))))
        };
        let share = share.acquire_owned().await.expect("it is never closed");
        let thread = self.free.acquire().await.expect("it is never closed");
        Taken { user, of: self, _thread: thread, share: Some(share) }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut users = self.of.users.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.share.take());
        // Only the table has it, so nobody has a call under way or waits for one.
        if users.get(&self.user).is_some_and(|share| Arc::strong_count(share) == 1) {
            users.remove(&self.user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::patient;
    use std::sync::mpsc;

    /// Long enough for any machine, where something has to come.
    const LONG: Duration = Duration::from_secs(60);
    /// Where nothing can come.
    const SHORT: Duration = Duration::from_millis(1);

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(most()).build().unwrap()
    }

    /// Calls that hang until the senders are dropped.
    async fn hang(threads: &'static Threads, user: u32, count: usize) -> Vec<mpsc::Sender<()>> {
        let mut held = Vec::new();
        for _ in 0..count {
            let (hold, held_rx) = mpsc::channel::<()>();
            let (begun_tx, begun) = tokio::sync::oneshot::channel();
            tokio::spawn(threads.run(user, patient(LONG), move || {
                let _ = begun_tx.send(());
                let _ = held_rx.recv();
            }));
            begun.await.expect("it has a thread");
            held.push(hold);
        }
        held
    }

    #[test]
    fn the_hanging_calls_of_one_kind_and_user_keep_no_other_waiting() {
        static FIRST: Threads = Threads::new(4, 2);
        static SECOND: Threads = Threads::new(2, 2);
        runtime().block_on(async {
            let held = hang(&FIRST, 1000, 2).await;
            assert!(matches!(FIRST.run(1000, SHORT, || ()).await, Err(NoResult::Exhausted)));
            assert_eq!(FIRST.run(1001, LONG, || 7).await.expect("another user's"), 7);
            let others = hang(&FIRST, 1001, 2).await;
            assert!(matches!(FIRST.run(1002, SHORT, || ()).await, Err(NoResult::Exhausted)));
            assert_eq!(SECOND.run(1000, LONG, || 8).await.expect("another kind"), 8);
            drop((held, others));
            assert_eq!(FIRST.run(1000, LONG, || 9).await.expect("they are free again"), 9);
        });
    }

    #[test]
    fn a_call_that_hangs_is_let_go_and_keeps_its_thread_alone() {
        static ONE: Threads = Threads::new(1, 1);
        runtime().block_on(async {
            let (hold, held) = mpsc::channel::<()>();
            let hanging = ONE.run(1, SHORT, move || {
                let _ = held.recv();
            });
            assert!(matches!(hanging.await, Err(NoResult::Stuck)));
            assert!(matches!(ONE.run(2, SHORT, || ()).await, Err(NoResult::Exhausted)));
            drop(hold);
            assert!(ONE.run(2, LONG, || ()).await.is_ok());
            assert!(ONE.users.lock().unwrap().is_empty(), "nobody is kept who has no call");
        });
    }
}
