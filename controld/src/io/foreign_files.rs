//! Files of others in our table of descriptors, and processes that are started meanwhile.
//!
//! Between the arrival of a peer's descriptor and its closing the file is in the table that all threads share. A process
//! that is started just then gets a copy, and closes it at its `exec`; where the file is of a file system that never
//! answers, it hangs there, and whoever started it waits. So nobody starts a process while such a file is in the table,
//! and none comes in while a process is started.
//!
//! The closing itself can hang. The kernel takes a descriptor from the table before it asks the file's own close, so
//! a [`ForeignFile`] that has stayed for [`LONGEST_STAY`] is one whose descriptor is gone, and is waited for no longer.

use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// How long a start waits for files to leave the table, which takes microseconds.
const LONGEST_STAY: Duration = Duration::from_millis(50);

static PRESENT: Mutex<usize> = Mutex::new(0);
static LEFT: Condvar = Condvar::new();

/// Somebody's file may be in the table as long as this lives: to be made before it can come in, and kept until it is
/// closed, or known to be one that closes at once.
#[derive(Debug)]
pub(crate) struct ForeignFile(());

impl ForeignFile {
    /// Waits while a process is being started.
    #[must_use]
    pub(crate) fn enter() -> Self {
        *PRESENT.lock() += 1;
        Self(())
    }
}

impl Drop for ForeignFile {
    fn drop(&mut self) {
        *PRESENT.lock() -= 1;
        LEFT.notify_all();
    }
}

/// Starts a process while no file of others is in the table.
pub(crate) fn without_foreign_files<T>(start: impl FnOnce() -> T) -> T {
    let mut present = PRESENT.lock();
    let deadline = Instant::now() + LONGEST_STAY;
    while *present > 0 && !LEFT.wait_until(&mut present, deadline).timed_out() {}
    // The lock is kept: who comes in now waits until the process has its own table.
    start()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    /// The table is one for all tests of this process, so everything is shown in one.
    #[test]
    fn nobody_comes_in_during_a_start_and_one_that_hangs_is_waited_for_a_moment() {
        let foreign = ForeignFile::enter();
        let leaving = thread::spawn(move || drop(foreign));
        assert_eq!(without_foreign_files(|| 7), 7);
        leaving.join().unwrap();

        let hanging = ForeignFile::enter();
        let begin = Instant::now();
        without_foreign_files(|| ());
        assert!(begin.elapsed() >= LONGEST_STAY, "others may be there too, but this one is");
        drop(hanging);

        let (entered_tx, entered_rx) = mpsc::channel();
        let newcomer = without_foreign_files(|| {
            let newcomer = thread::spawn(move || {
                let foreign = ForeignFile::enter();
                entered_tx.send(()).unwrap();
                drop(foreign);
            });
            assert!(entered_rx.recv_timeout(Duration::from_millis(100)).is_err(), "it waits outside");
            newcomer
        });
        entered_rx.recv_timeout(Duration::from_secs(120)).expect("it comes in afterwards");
        newcomer.join().unwrap();
    }
}
