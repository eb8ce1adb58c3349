//! Seats: for each thread that passes the gate a place of its own, in which it says that it is inside.
//!
//! A seat that a thread has left is another one's later, and none is ever freed, so there are as many as threads have
//! called at once. All of them are in a list that only grows.

#![expect(unsafe_code, reason = "publishes seats by their addresses")]

use std::{
    num::NonZeroU32,
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering},
    },
};

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Where {
    Outside,
    Inside,
    /// Inside, for as long as a compilation takes.
    Compiling,
}

/// A thread's place. The line of the cache is its thread's alone.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Seat {
    /// A [`Where`].
    thread: AtomicU8,
    is_taken: AtomicBool,
    /// From 1.
    number: NonZeroU32,
    /// The one that was made before it.
    next: Option<&'static Seat>,
}

static LAST: AtomicPtr<Seat> = AtomicPtr::new(ptr::null_mut());
/// Held by whoever makes one or takes one that is left.
static TAKING: Mutex<()> = Mutex::new(());

fn last() -> Option<&'static Seat> {
    // SAFETY: it was published whole, and is never freed.
    unsafe { LAST.load(Ordering::SeqCst).as_ref() }
}

fn all() -> impl Iterator<Item = &'static Seat> {
    std::iter::successors(last(), |seat| seat.next)
}

/// The seats of threads that are inside.
pub(super) fn inside() -> Vec<&'static Seat> {
    all().filter(|seat| is_inside(seat)).collect()
}

/// Whether its thread is inside, for others.
pub(super) fn is_inside(seat: &Seat) -> bool {
    seat.thread.load(Ordering::SeqCst) != Where::Outside as u8
}

/// How many threads with a seat compile, or may.
pub(super) fn compiling() -> usize {
    all().filter(|seat| seat.thread.load(Ordering::SeqCst) == Where::Compiling as u8).count()
}

impl Seat {
    /// One that nobody has.
    pub(super) fn take() -> &'static Self {
        let _held = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left) = all().find(|seat| !seat.is_taken.load(Ordering::Acquire)) {
            left.is_taken.store(true, Ordering::Relaxed);
            return left;
        }
        let next = last();
        let number = next.map_or(NonZeroU32::MIN, |seat| seat.number.saturating_add(1));
        let (thread, is_taken) = (AtomicU8::new(Where::Outside as u8), AtomicBool::new(true));
        let seat = Box::leak(Box::new(Self { thread, is_taken, number, next }));
        LAST.store(seat, Ordering::SeqCst);
        seat
    }

    /// Another thread may have it.
    pub(super) fn leave(&self) {
        // What this thread has written is seen by the next one that has its seat.
        self.is_taken.store(false, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn number(&self) -> u32 {
        self.number.get()
    }

    /// Whether its thread has said so. For that thread.
    #[inline(always)]
    pub(super) fn is_inside(&self) -> bool {
        self.thread.load(Ordering::Relaxed) != Where::Outside as u8
    }

    /// For its thread. Whoever reads that it is outside sees all that it has written inside.
    #[inline(always)]
    pub(super) fn say(&self, place: Where) {
        self.thread.store(place as u8, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{Seat, all};

    #[test]
    fn a_seat_is_one_threads_until_it_is_left() {
        // Other tests have seats too.
        let [first, second] = [Seat::take(), Seat::take()];
        assert_ne!(first.number(), second.number());
        first.leave();
        let third = Seat::take();
        assert_ne!(third.number(), second.number());
        let mut numbers: Vec<u32> = all().map(Seat::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all().count());
        [second, third].into_iter().for_each(Seat::leave);
    }
}
