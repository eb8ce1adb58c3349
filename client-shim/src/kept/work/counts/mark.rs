//! How far a stream's work had come at some time: a number for each lane.

use std::sync::atomic::{AtomicU64, Ordering};

use super::LANES;

/// How far a stream's work had come at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Mark(pub(super) [u64; LANES]);

/// A [`Mark`] that one thread writes and others read. Who reads it finds out elsewhere whether it is whole.
#[derive(Debug)]
pub(in super::super) struct Noted(pub(super) [AtomicU64; LANES]);

impl Noted {
    pub(in super::super) const fn none() -> Self {
        Self([const { AtomicU64::new(0) }; LANES])
    }

    #[inline(always)]
    pub(in super::super) fn note(&self, mark: &Mark) {
        for (noted, number) in self.0.iter().zip(mark.0) {
            noted.store(number, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    pub(in super::super) fn read(&self) -> Mark {
        let mut mark = [0; LANES];
        for (number, noted) in mark.iter_mut().zip(&self.0) {
            *number = noted.load(Ordering::Relaxed);
        }
        Mark(mark)
    }
}
