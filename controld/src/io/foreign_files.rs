//! Files of others in our table of descriptors, and processes that are started meanwhile.
//!
//! Between the arrival of a peer's descriptor and its closing the file is in the table that all threads share. A process
//! that is started just then gets a copy, and closes it at its `exec`; where the file is of a file system that never
//! answers, it hangs there, and whoever started it waits. So nobody starts a process while such a file is in the table,
//! and none comes in while a process is started.
//!
//! The closing itself can hang. The kernel takes a descriptor from the table before it asks the file's own close, so
//! one that is being closed for [`LONGEST_CLOSING`] is out of the table, and is waited for no longer, then or ever. Whoever
//! has one and does not close it yet is about to: that takes microseconds of a processor's time, for which
//! [`LONGEST_STAY`] is long enough on a busy machine. Nobody comes in from the beginning of that wait, so that at its end
//! there are none that have just come.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long a start waits for a file to be closed or to be found one that closes at once.
const LONGEST_STAY: Duration = Duration::from_secs(2);
/// How long it waits for one whose closing has begun.
const LONGEST_CLOSING: Duration = Duration::from_millis(50);

/// Files of others, by numbers of ours: until when a start waits for each.
struct Present {
    until: BTreeMap<u64, Instant>,
    next: u64,
    /// How many processes are being started, or wait for that.
    starts: usize,
}

static PRESENT: Mutex<Present> = Mutex::new(Present { until: BTreeMap::new(), next: 0, starts: 0 });
static LEFT: Condvar = Condvar::new();
static STARTED: Condvar = Condvar::new();

/// Somebody's file may be in the table as long as this lives: to be made before it can come in, and kept until it is
/// closed, or known to be one that closes at once.
#[derive(Debug)]
pub(crate) struct ForeignFile(u64);

impl ForeignFile {
    /// Waits while a process is being started.
    #[must_use]
    pub(crate) fn enter() -> Self {
        let mut present = PRESENT.lock();
        while present.starts > 0 {
            STARTED.wait(&mut present);
        }
        let number = present.next;
        present.next += 1;
        present.until.insert(number, Instant::now() + LONGEST_STAY);
        Self(number)
    }

    /// Closes it, which may hang.
    pub(crate) fn close(&self, descriptor: OwnedFd) {
        PRESENT.lock().until.insert(self.0, Instant::now() + LONGEST_CLOSING);
        // Who waits for it need not wait so long any more.
        LEFT.notify_all();
        drop(descriptor);
    }
}

impl Drop for ForeignFile {
    fn drop(&mut self) {
        PRESENT.lock().until.remove(&self.0);
        LEFT.notify_all();
    }
}

/// Starts a process while no file of others is in the table.
pub(crate) fn without_foreign_files<T>(start: impl FnOnce() -> T) -> T {
    struct Starting;
    impl Drop for Starting {
        fn drop(&mut self) {
            PRESENT.lock().starts -= 1;
            STARTED.notify_all();
        }
    }
    let mut present = PRESENT.lock();
    present.starts += 1;
    let _nobody_comes_in = Starting;
    loop {
        let now = Instant::now();
        let Some(until) = present.until.values().filter(|until| **until > now).max().copied() else { break };
        LEFT.wait_until(&mut present, until);
    }
    drop(present);
    start()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    /// The table is one for all tests of this process, so everything is shown in one.
    #[test]
    fn nobody_comes_in_during_a_start_and_one_that_hangs_is_waited_for_once() {
        let foreign = ForeignFile::enter();
        let leaving = thread::spawn(move || drop(foreign));
        assert_eq!(without_foreign_files(|| 7), 7);
        leaving.join().unwrap();

        let hanging = ForeignFile::enter();
        let begin = Instant::now();
        hanging.close(std::fs::File::open("/dev/null").unwrap().into());
        without_foreign_files(|| ());
        assert!(begin.elapsed() >= LONGEST_CLOSING, "its closing is waited for");
        let before = Instant::now();
        without_foreign_files(|| ());
        assert!(before.elapsed() < LONGEST_CLOSING, "and once for all");
        drop(hanging);

        let late = ForeignFile::enter();
        let starting = thread::spawn(|| {
            let begin = Instant::now();
            without_foreign_files(|| ());
            begin.elapsed()
        });
        while PRESENT.lock().starts == 0 {
            thread::yield_now();
        }
        late.close(std::fs::File::open("/dev/null").unwrap().into());
        let waited = starting.join().unwrap();
        assert!(
            (LONGEST_CLOSING..LONGEST_STAY).contains(&waited),
            "a closing that begins meanwhile is no stay: {waited:?}"
        );
        drop(late);

        let staying = ForeignFile::enter();
        let begin = Instant::now();
        without_foreign_files(|| ());
        assert!(begin.elapsed() >= LONGEST_STAY, "one that is not being closed may be in the table still");
        drop(staying);

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
