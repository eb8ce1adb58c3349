//! One thread's numbers of a stream, or those that all threads without a lane of their own share.

use std::{
    hint::cold_path,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use super::{NOBODY, ON_ITS_WAY};

/// How much work there was, and how much of it is known to be done.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Lane {
    /// Its thread's seat.
    pub(super) owner: AtomicU32,
    /// Of the first lane: any other one may have been used.
    pub(super) is_one_of_many: AtomicBool,
    /// How many pieces of work there were, and, from [`ON_ITS_WAY`] on, how many calls with one are in the driver.
    pub(super) given: AtomicU64,
    /// Of the common lane: up to which piece of work all calls had come back.
    pub(super) settled: AtomicU64,
    pub(super) completed: AtomicU64,
}

/// A piece of work that a thread gives in a lane of its own.
#[derive(Debug)]
pub(in super::super) struct Piece {
    pub(super) lane: &'static Lane,
    pub(super) number: u64,
}

impl Piece {
    /// Its call has come back ([`Counts::came_back`](super::Counts::came_back)).
    #[inline(always)]
    pub(in super::super) fn came_back(&self, is_given: bool) {
        self.lane.given.store(self.number - u64::from(!is_given), Ordering::Release);
    }
}

impl Lane {
    pub(super) const fn new() -> Self {
        Self {
            owner: AtomicU32::new(NOBODY),
            is_one_of_many: AtomicBool::new(false),
            given: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            completed: AtomicU64::new(0),
        }
    }

    pub(super) fn submitted(&self) -> u64 {
        self.given.load(Ordering::Acquire) % ON_ITS_WAY
    }

    pub(super) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// A call of its thread begins, which has no other one on its way here; the number of what it gives.
    #[inline(always)]
    pub(super) fn give(&self) -> u64 {
        let before = self.given.load(Ordering::Relaxed);
        self.given.store(before + ON_ITS_WAY + 1, Ordering::Release);
        before + 1
    }

    /// Up to which piece of work all calls have come back. Not for the common lane.
    #[inline(always)]
    pub(super) fn come_back(&self) -> u64 {
        let given = self.given.load(Ordering::Acquire);
        if given / ON_ITS_WAY == 0 {
            given
        } else {
            // Its thread has one call on its way.
            cold_path();
            given % ON_ITS_WAY - 1
        }
    }

    /// It is known to have come so far. Nearly always that is known already.
    #[inline(always)]
    pub(super) fn complete(&self, number: u64) {
        if self.completed() < number {
            self.completed.fetch_max(number, Ordering::AcqRel);
        }
    }
}
