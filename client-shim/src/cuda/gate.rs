//! The gate that every call of a program passes while recovery is on, so that the driver can be exchanged when nobody is
//! in it.
//!
//! A passer counts itself in before it looks whether the gate is closed, and whoever closes the gate looks at the counts
//! afterwards: so either sees the other. The counts are spread over many cache lines, by thread. A thread that is inside
//! already, because the driver called back, passes without being counted again, or it would wait for itself.

use std::{
    cell::Cell,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// Counts. More threads than that share some.
const SHARDS: usize = 64;

#[repr(align(128))]
struct Shard(AtomicUsize);

static INSIDE: [Shard; SHARDS] = [const { Shard(AtomicUsize::new(0)) }; SHARDS];
static IS_CLOSED: AtomicBool = AtomicBool::new(false);
static CHANGES: Mutex<()> = Mutex::new(());
static CHANGED: Condvar = Condvar::new();

fn changes() -> MutexGuard<'static, ()> {
    CHANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the gate knows of a thread.
#[derive(Debug)]
pub(crate) struct Passer {
    /// Its count; beyond them before it has one.
    shard: Cell<usize>,
    is_inside: Cell<bool>,
}

impl Passer {
    /// A thread that has not been here.
    pub(crate) const fn new() -> Self {
        Self { shard: Cell::new(SHARDS), is_inside: Cell::new(false) }
    }

    /// Whether this thread is inside already.
    pub(crate) fn is_inside(&self) -> bool {
        self.is_inside.get()
    }

    fn shard(&self) -> &'static AtomicUsize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        if self.shard.get() == SHARDS {
            self.shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        &INSIDE[self.shard.get()].0
    }
}

/// While it lives, this thread is inside.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    shard: &'static AtomicUsize,
    passer: &'a Passer,
}

/// Goes in; waits while the gate is closed, for `patience` at most. `None` if it stays closed.
pub(crate) fn enter(passer: &Passer, patience: Duration) -> Option<Pass<'_>> {
    let shard = passer.shard();
    shard.fetch_add(1, Ordering::SeqCst);
    if IS_CLOSED.load(Ordering::SeqCst) {
        return enter_later(shard, passer, patience);
    }
    passer.is_inside.set(true);
    Some(Pass { shard, passer })
}

#[cold]
fn enter_later<'a>(shard: &'static AtomicUsize, passer: &'a Passer, patience: Duration) -> Option<Pass<'a>> {
    let deadline = Instant::now() + patience;
    let mut guard = changes();
    loop {
        // Given up under the lock, so that whoever waits for the counts does not miss it.
        shard.fetch_sub(1, Ordering::SeqCst);
        CHANGED.notify_all();
        while IS_CLOSED.load(Ordering::SeqCst) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            guard = CHANGED.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        shard.fetch_add(1, Ordering::SeqCst);
        if !IS_CLOSED.load(Ordering::SeqCst) {
            passer.is_inside.set(true);
            return Some(Pass { shard, passer });
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.passer.is_inside.set(false);
        self.shard.fetch_sub(1, Ordering::SeqCst);
        if IS_CLOSED.load(Ordering::SeqCst) {
            let _locked = changes();
            CHANGED.notify_all();
        }
    }
}

/// Threads that compile, or may.
static COMPILING: AtomicUsize = AtomicUsize::new(0);

/// While it lives, this thread is in the driver for as long as a compilation takes.
#[derive(Debug)]
pub(crate) struct Compiling(());

impl Compiling {
    pub(crate) fn begin() -> Self {
        COMPILING.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for Compiling {
    fn drop(&mut self) {
        COMPILING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Threads that were still inside when nobody could wait for them any longer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Late {
    /// How many they were, and their counts.
    inside: usize,
    shards: Vec<usize>,
}

impl Late {
    pub(crate) const NOBODY: Self = Self { inside: 0, shards: Vec::new() };

    /// How many they were.
    pub(crate) fn inside(&self) -> usize {
        self.inside
    }

    /// Whether each of them was seen outside since. One is missed that shares its count with another thread that is
    /// inside just now, and found the next time.
    pub(crate) fn have_come_out(&mut self) -> bool {
        self.shards.retain(|shard| INSIDE[*shard].0.load(Ordering::SeqCst) > 0);
        self.shards.is_empty()
    }
}

/// While it lives, nobody goes in. There is one at a time.
#[derive(Debug)]
pub(crate) struct Closed(());

/// Closes the gate. The caller is outside, and no other thread closes it.
pub(crate) fn close() -> Closed {
    IS_CLOSED.store(true, Ordering::SeqCst);
    Closed(())
}

impl Closed {
    /// Waits until nobody is inside any longer, for `patience` at most; how many still are.
    pub(crate) fn wait(&self, patience: Duration) -> usize {
        let deadline = Instant::now() + patience;
        let mut guard = changes();
        loop {
            let inside = INSIDE.iter().map(|shard| shard.0.load(Ordering::SeqCst)).sum();
            let left = deadline.saturating_duration_since(Instant::now());
            if inside == 0 || left.is_zero() {
                return inside;
            }
            guard = CHANGED.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether everybody who is inside compiles.
    pub(crate) fn are_all_compiling(&self, inside: usize) -> bool {
        inside > 0 && COMPILING.load(Ordering::Acquire) >= inside
    }

    /// Who is inside still.
    pub(crate) fn late(&self) -> Late {
        let counts = INSIDE.iter().map(|shard| shard.0.load(Ordering::SeqCst)).enumerate();
        let (shards, counts): (Vec<_>, Vec<_>) = counts.filter(|(_, count)| *count > 0).unzip();
        Late { inside: counts.iter().sum(), shards }
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let _locked = changes();
        IS_CLOSED.store(false, Ordering::SeqCst);
        CHANGED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::{Passer, close, enter};

    const LONG: Duration = Duration::from_secs(120);
    /// How often each of many threads passes.
    const PASSAGES: usize = 2000;

    /// One test, since there is one gate.
    #[test]
    fn whoever_closes_it_finds_nobody_inside_and_is_not_kept_by_one_who_stays() {
        // A thread stays inside.
        let (leave, asked) = mpsc::channel::<()>();
        let (told, is_in) = mpsc::channel();
        let stuck = thread::spawn(move || {
            let passer = Passer::new();
            let pass = enter(&passer, LONG).expect("it is open");
            assert!(passer.is_inside());
            told.send(()).unwrap();
            asked.recv().unwrap();
            drop(pass);
            assert!(!passer.is_inside());
        });
        is_in.recv().unwrap();
        let closed = close();
        assert_eq!(closed.wait(Duration::from_millis(10)), 1);
        assert!(enter(&Passer::new(), Duration::from_millis(10)).is_none(), "it stays closed");
        let mut late = closed.late();
        assert_eq!((late.inside(), late.have_come_out()), (1, false));
        assert!(!closed.are_all_compiling(1) && !closed.are_all_compiling(0));
        leave.send(()).unwrap();
        assert_eq!(closed.wait(LONG), 0);
        assert!(late.have_come_out() && closed.late().have_come_out());
        stuck.join().unwrap();
        drop(closed);

        // Many threads pass while it is closed and opened again.
        let passers: Vec<_> = (0..4)
            .map(|_| {
                thread::spawn(move || {
                    let passer = Passer::new();
                    (0..PASSAGES).for_each(|_| drop(enter(&passer, LONG).expect("it opens again")));
                })
            })
            .collect();
        while !passers.iter().all(|passer| passer.is_finished()) {
            let closed = close();
            assert_eq!(closed.wait(LONG), 0);
            drop(closed);
            thread::yield_now();
        }
        passers.into_iter().for_each(|passer| passer.join().unwrap());
    }
}
