//! Closing descriptors where nobody waits for it.
//!
//! Closing the last copy of a UVM descriptor makes the kernel stop channels, take down page tables and free GPU memory:
//! 16 to 39 ms on an H200 for a small client, more for a large one, and as long as it likes on a GPU that is in trouble.
//! So no descriptor of this witness is closed on the task that drives the daemon: a few threads do it, in order, and
//! end when there is nothing left. A close that never returns costs one of them.
//!
//! A descriptor that turned out not to be UVM's, because the client put another file in its place just then, may be on
//! a file system that never answers. Those are closed on threads of their own, of which there are a bounded number.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::io::foreign_files::ForeignFile;

/// Threads that close the daemon's copies.
const THREADS: usize = 4;
/// Closings of foreign files that may hang at a time.
const FOREIGN: usize = 16;

struct Job {
    descriptors: Vec<OwnedFd>,
    done: oneshot::Sender<Duration>,
}

struct Pool {
    waiting: VecDeque<Job>,
    threads: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { waiting: VecDeque::new(), threads: 0 });
static FOREIGN_CLOSINGS: AtomicUsize = AtomicUsize::new(0);

/// A closing under way; it goes on when this is dropped.
#[derive(Debug)]
pub struct Closing(oneshot::Receiver<Duration>);

impl Closing {
    /// Waits for it; the time that the kernel took, without the wait for a free thread.
    pub async fn done(self) -> Duration {
        // The sender is dropped unused only by a thread that panicked, which none does.
        self.0.await.unwrap_or_default()
    }
}

/// Closes these, one after the other, on another thread.
pub(crate) fn close(descriptors: Vec<OwnedFd>) -> Closing {
    let (done, receiver) = oneshot::channel();
    let mut pool = POOL.lock();
    pool.waiting.push_back(Job { descriptors, done });
    if pool.threads < THREADS && spawn("uvm-closing", work) {
        pool.threads += 1;
    }
    if pool.threads == 0 {
        // No thread is to be had: the caller waits, which is better than descriptors that stay open.
        drop(pool);
        work();
    }
    Closing(receiver)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).is_ok()
}

fn work() {
    loop {
        let job = {
            let mut pool = POOL.lock();
            let Some(job) = pool.waiting.pop_front() else {
                pool.threads = pool.threads.saturating_sub(1);
                return;
            };
            job
        };
        let begin = Instant::now();
        drop(job.descriptors);
        // Nobody has to wait for it.
        let _ = job.done.send(begin.elapsed());
    }
}

/// Whether a foreign file could be closed now if one turned up.
pub(super) fn can_close_foreign() -> bool {
    FOREIGN_CLOSINGS.load(Ordering::Relaxed) < FOREIGN
}

/// Closes a file that may never let go.
pub(super) fn close_foreign(descriptor: OwnedFd, foreign: Option<ForeignFile>) {
    FOREIGN_CLOSINGS.fetch_add(1, Ordering::Relaxed);
    let close = move || {
        match foreign {
            Some(foreign) => foreign.close(descriptor),
            None => drop(descriptor),
        }
        FOREIGN_CLOSINGS.fetch_sub(1, Ordering::Relaxed);
    };
    if !spawn("foreign-closing", close) {
        // The descriptor was closed with the refused thread's closure, on this one.
        FOREIGN_CLOSINGS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[tokio::test]
    async fn descriptors_are_closed_elsewhere_and_the_end_is_told() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let second = writer.try_clone().unwrap();
        close(vec![writer.into(), second.into()]).done().await;
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, Vec::<u8>::new());
    }

    #[tokio::test]
    async fn many_closings_at_once_all_come_to_an_end() {
        let closings: Vec<Closing> =
            (0..200).map(|_| close(vec![std::fs::File::open("/dev/null").unwrap().into()])).collect();
        for closing in closings {
            closing.done().await;
        }
    }

    #[test]
    fn a_file_that_is_not_ours_is_closed_as_well() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        assert!(can_close_foreign());
        close_foreign(writer.into(), None);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }
}
