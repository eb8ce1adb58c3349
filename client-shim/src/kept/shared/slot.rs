//! An event's place in a page that several processes map.
//!
//! | word | |
//! |---|---|
//! | 0 | which event has it: another number for each of its process |
//! | 1 | the number of the last record |
//! | 2 | how often records were lost |
//! | 3, 4 | the first and the last one that was lost the last time |
//! | 5 | the error by which |
//! | 6 | up to which record they are settled |
//! | 8 to 15 | by the record's number modulo eight: the last one that has come |
//!
//! There are several last words because a record on a stream that is behind may come later than the next one on another
//! stream. Numbers begin with eight, so that what comes before the first record has come. They go on when a place is given
//! to another event.
#![expect(unsafe_code, reason = "looks at words of a page")]

mod wait;

use std::sync::atomic::{AtomicU64, Ordering};

use super::EXTERNAL;
use crate::{cuda::result::CUresult, process::pages};
pub(super) use wait::{State, Wait};

const WORDS: usize = 16;
const BYTES: usize = WORDS * 8;
/// Places of a page.
pub(super) const COUNT: usize = pages::SIZE / BYTES;
/// Numbers that may be open at a time without a wait for the oldest.
pub(super) const RING: u64 = 8;
const FIRST_OF_RING: usize = 8;
/// What a number is when who was to write it has ended. No record has it, and the GPU takes it for a later one.
const RELEASED: u64 = 1 << 62;

const EVENT: usize = 0;
const RECORDED: usize = 1;
const LOSSES: usize = 2;
const LOW: usize = 3;
const HIGH: usize = 4;
const ERROR: usize = 5;
const SETTLED: usize = 6;

/// A place in a page that is mapped for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(usize);

impl Slot {
    /// The place of this index in a page that is mapped for good; `None` if a page has none.
    pub(super) fn of(page: usize, index: u64) -> Option<Self> {
        let index = usize::try_from(index).ok().filter(|index| *index < COUNT)?;
        Some(Self(page + index * BYTES))
    }

    fn word(self, at: usize) -> &'static AtomicU64 {
        let words = std::ptr::with_exposed_provenance::<[AtomicU64; WORDS]>(self.0);
        // SAFETY: a place has so many words, in a page that is never unmapped, and whoever writes there writes words.
        let words = unsafe { &*words };
        &words[at]
    }

    fn get(self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    fn put(self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }

    fn of_number(number: u64) -> usize {
        FIRST_OF_RING + usize::try_from(number % RING).unwrap_or_default()
    }

    /// Where the GPU writes a record's number, or waits for it.
    pub(super) fn address(self, number: u64) -> u64 {
        u64::try_from(self.0 + Self::of_number(number) * 8).unwrap_or_default()
    }

    /// Zero becomes a place in which nothing was recorded.
    pub(super) fn begin(self) {
        (0..RING).for_each(|number| self.put(Self::of_number(number), number));
        self.put(SETTLED, RING - 1);
        self.put(RECORDED, RING - 1);
    }

    /// The event of this number has it.
    pub(super) fn is_of(self, event: u64) {
        self.put(EVENT, event);
    }

    /// Which event has it.
    pub(super) fn event(self) -> u64 {
        self.get(EVENT)
    }

    /// The number of the last record.
    pub(super) fn recorded(self) -> u64 {
        self.get(RECORDED)
    }

    /// How often records were lost.
    pub(super) fn losses(self) -> u64 {
        self.get(LOSSES)
    }

    /// Whether what had the record's word before has come.
    pub(super) fn has_room(self, number: u64) -> bool {
        self.get(Self::of_number(number)) >= number.saturating_sub(RING)
    }

    /// The record is there, for everybody.
    pub(super) fn publish(self, number: u64) {
        self.word(RECORDED).fetch_max(number, Ordering::SeqCst);
    }

    /// Records up to this one are to be believed when they have come.
    pub(super) fn settle(self, number: u64) {
        self.word(SETTLED).fetch_max(number, Ordering::AcqRel);
    }

    /// Nobody waits for a record's number any longer.
    pub(super) fn withdraw(self, number: u64) {
        self.word(Self::of_number(number)).fetch_max(number, Ordering::AcqRel);
    }

    /// The first of all records up to `last` that has not come, if there is one.
    pub(super) fn first_open(self, last: u64) -> Option<u64> {
        let of = |word: usize| {
            let latest = last - (last - word as u64 % RING) % RING;
            let come = self.get(FIRST_OF_RING + word);
            (come < latest).then(|| (come + RING).min(latest))
        };
        (0..8).filter_map(of).min()
    }

    /// Says that these records are lost. Who reads that one has come, and that nothing was lost, is right only if it
    /// comes before [`Self::release`]. One at a time.
    pub(super) fn lose(self, low: u64, high: u64, error: CUresult) {
        let before = (self.get(LOW), self.get(HIGH));
        let (low, high) = if high < before.1 { (low.min(before.0), before.1) } else { (low, high) };
        self.put(ERROR, error.0.into());
        self.put(LOW, low);
        self.put(HIGH, high);
        self.word(LOSSES).fetch_add(1, Ordering::AcqRel);
    }

    /// All records up to `last` have come, or never will: nobody waits any longer.
    pub(super) fn release(self, last: u64) {
        for number in last.saturating_sub(RING - 1)..=last {
            self.withdraw(number);
        }
    }

    /// Whether a record is one that was lost the last time that any was.
    pub(super) fn lost(self, number: u64) -> Option<CUresult> {
        (self.losses() > 0 && (self.get(LOW)..=self.get(HIGH)).contains(&number)).then(|| self.error())
    }

    /// What another process has written is no success, nor an error that says something else.
    fn error(self) -> CUresult {
        match self.get(ERROR) {
            error @ (700 | 702 | 709 | 710 | 713..=719 | 805..=810) => {
                CUresult(u32::try_from(error).unwrap_or(EXTERNAL.0))
            }
            _ => EXTERNAL,
        }
    }
}

#[cfg(test)]
mod tests;
