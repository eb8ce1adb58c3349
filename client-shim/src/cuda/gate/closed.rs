//! The other side of the gate: whoever closes it waits until nobody is inside, and knows who still was.

use std::{
    sync::{PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use super::{
    BARRIER, CLOSED, STATE, UNSEATED, WAKES, changes, membarrier,
    seats::{self, Seat},
};

/// Threads that were still inside when nobody could wait for them any longer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Late {
    /// How many they were, their seats, and whether there were any without one.
    inside: usize,
    seats: Vec<&'static Seat>,
    is_without_a_seat: bool,
}

impl Late {
    pub(crate) const NOBODY: Self = Self { inside: 0, seats: Vec::new(), is_without_a_seat: false };

    /// How many they were.
    pub(crate) fn inside(&self) -> usize {
        self.inside
    }

    /// Whether each of them was seen outside since. One is missed that was inside again just now, or that has no seat
    /// while another thread without one is inside, and found the next time.
    pub(crate) fn have_come_out(&mut self) -> bool {
        self.seats.retain(|seat| seats::is_inside(seat));
        self.is_without_a_seat &= UNSEATED.load(Ordering::SeqCst) > 0;
        self.seats.is_empty() && !self.is_without_a_seat
    }
}

/// While it lives, nobody goes in. There is one at a time.
#[derive(Debug)]
pub(crate) struct Closed(());

/// Closes the gate. The caller is outside, and no other thread closes it.
pub(crate) fn close() -> Closed {
    STATE.fetch_or(CLOSED, Ordering::SeqCst);
    // Where that is refused now, it was at the beginning, and each passer has a barrier.
    let _is_done = membarrier(BARRIER);
    Closed(())
}

impl Closed {
    /// Waits until nobody is inside any longer, for `patience` at most; how many still are.
    pub(crate) fn wait(&self, patience: Duration) -> usize {
        let deadline = Instant::now() + patience;
        let mut guard = changes();
        loop {
            let inside = seats::inside().len() + UNSEATED.load(Ordering::SeqCst);
            let left = deadline.saturating_duration_since(Instant::now());
            if inside == 0 || left.is_zero() {
                return inside;
            }
            guard = WAKES.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether everybody who is inside compiles.
    pub(crate) fn are_all_compiling(&self, inside: usize) -> bool {
        inside > 0 && seats::compiling() >= inside
    }

    /// Who is inside still.
    pub(crate) fn late(&self) -> Late {
        let (seats, unseated) = (seats::inside(), UNSEATED.load(Ordering::SeqCst));
        Late { inside: seats.len() + unseated, seats, is_without_a_seat: unseated > 0 }
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let _locked = changes();
        STATE.fetch_and(!CLOSED, Ordering::SeqCst);
        WAKES.notify_all();
    }
}
