//! How much work a stream was given, and how far it is known to have come, counted by each thread for itself.
//!
//! A thread that gives a stream work has a lane there: numbers that it alone writes, without a barrier. Another one that
//! reads them may see less than there is, and what it does not see it says nothing of. It never sees too much: that a
//! call has come back is written after it has. The first threads have lanes of their own, by their seats at the gate
//! (`cuda::gate`), of which no two threads have one at a time; all others, and a thread without a seat, share the
//! last one, whose numbers are changed by locked instructions.
//!
//! How far work had come at some time is a [`Mark`], with a number for each lane.
//!
//! Most streams are given work by one thread alone, which has the first lane. As long as no other lane was ever used
//! nobody looks at them. That is said before another lane's first number is raised. Whoever does not see it yet does not see
//! that work either, and says nothing of it; and whoever has a mark with a number of another lane has it from somebody
//! who has seen that number, and thus sees what was said before it.

mod lane;
mod mark;

pub(super) use lane::Piece;
pub(super) use mark::{Mark, Noted};

use std::{hint::cold_path, sync::atomic::Ordering};

use lane::Lane;

/// Threads that have a lane of their own.
const OWNERS: usize = 3;
/// The lane that all others share.
const COMMON: usize = OWNERS;
const LANES: usize = OWNERS + 1;
/// One call on its way, in [`Lane::given`].
const ON_ITS_WAY: u64 = 1 << 48;
/// In a seat's place: no thread has the lane yet.
const NOBODY: u32 = 0;

/// A piece of work that is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    lane: usize,
    number: u64,
    /// Up to which piece of its lane its success is one of the stream if it waits.
    waits_for: u64,
}

/// A stream's numbers.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Counts([Lane; LANES]);

impl Counts {
    pub(super) const fn none() -> Self {
        Self([const { Lane::new() }; LANES])
    }

    /// The lane of the thread with this seat.
    #[inline(always)]
    fn lane(&self, seat: u32) -> usize {
        if seat != NOBODY && self.0[0].owner.load(Ordering::Relaxed) == seat { 0 } else { self.other_lane(seat) }
    }

    #[inline(never)]
    fn other_lane(&self, seat: u32) -> usize {
        let owned = &self.0[..OWNERS];
        if seat == NOBODY {
            return COMMON;
        }
        if let Some(own) = owned.iter().position(|lane| lane.owner.load(Ordering::Relaxed) == seat) {
            return own;
        }
        let claimed = owned
            .iter()
            .position(|lane| lane.owner.compare_exchange(NOBODY, seat, Ordering::AcqRel, Ordering::Acquire).is_ok());
        if claimed != Some(0) {
            self.is_used_by_many();
        }
        claimed.unwrap_or(COMMON)
    }

    /// Another lane than the first one is about to be used.
    fn is_used_by_many(&self) {
        self.0[0].is_one_of_many.store(true, Ordering::Release);
    }

    /// Whether one may have been.
    #[inline(always)]
    fn is_of_many(&self) -> bool {
        self.0[0].is_one_of_many.load(Ordering::Relaxed)
    }

    /// The same as [`Self::give`] for a thread that has a lane of its own already.
    #[inline(always)]
    pub(super) fn give_in_own(&'static self, seat: u32) -> Option<Piece> {
        if seat == NOBODY {
            return None;
        }
        let [first, others @ .., _common] = &self.0;
        if first.owner.load(Ordering::Relaxed) == seat {
            return Some(Piece { lane: first, number: first.give() });
        }
        cold_path();
        let lane = others.iter().find(|lane| lane.owner.load(Ordering::Relaxed) == seat)?;
        Some(Piece { lane, number: lane.give() })
    }

    /// A call with another piece of work begins, on the thread with this seat. It has no other one on its way here.
    #[inline(always)]
    pub(super) fn give(&self, seat: u32) -> Given {
        let lane = self.lane(seat);
        if lane == COMMON {
            return self.give_in_common();
        }
        let number = self.0[lane].give();
        Given { lane, number, waits_for: number }
    }

    #[inline(never)]
    fn give_in_common(&self) -> Given {
        self.is_used_by_many();
        let lane = &self.0[COMMON];
        let before = lane.given.fetch_add(ON_ITS_WAY + 1, Ordering::AcqRel);
        let number = before % ON_ITS_WAY + 1;
        let waits_for = if before < ON_ITS_WAY { number } else { lane.settled.load(Ordering::Acquire) };
        Given { lane: COMMON, number, waits_for }
    }

    /// It has come back. What the driver has refused is no work, unless more has come after it.
    #[inline(always)]
    pub(super) fn came_back(&self, piece: Given, is_given: bool) {
        if piece.lane == COMMON {
            self.came_back_in_common(piece.number, is_given);
        } else {
            let now = piece.number - u64::from(!is_given);
            self.0[piece.lane].given.store(now, Ordering::Release);
        }
    }

    #[inline(never)]
    fn came_back_in_common(&self, number: u64, is_given: bool) {
        let lane = &self.0[COMMON];
        let next = |now: u64| now - ON_ITS_WAY - u64::from(!is_given && now % ON_ITS_WAY == number);
        let before = lane.given.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| Some(next(now)));
        let now = before.map_or(0, next);
        if now < ON_ITS_WAY {
            lane.settled.fetch_max(now, Ordering::AcqRel);
        }
    }

    /// Up to which pieces of work the stream has them for sure.
    #[inline(always)]
    pub(super) fn settled(&self) -> Mark {
        if self.is_of_many() { self.settled_by_many() } else { Mark([self.0[0].come_back(), 0, 0, 0]) }
    }

    /// Without a call: a call's arguments are in registers meanwhile.
    #[inline(always)]
    fn settled_by_many(&self) -> Mark {
        let mut mark = [0; LANES];
        for (at, lane) in self.0[..OWNERS].iter().enumerate() {
            mark[at] = lane.come_back();
        }
        let common = &self.0[COMMON];
        let given = common.given.load(Ordering::Acquire);
        mark[COMMON] = if given < ON_ITS_WAY { given } else { common.settled.load(Ordering::Acquire) };
        Mark(mark)
    }

    /// The same as far as it needs one number alone.
    #[inline(always)]
    pub(super) fn settled_by_one(&self) -> Option<u64> {
        if self.is_of_many() { None } else { Some(self.0[0].come_back()) }
    }

    /// It is known to have come so far.
    #[inline(always)]
    pub(super) fn complete_by_one(&self, number: u64) {
        self.0[0].complete(number);
    }

    /// Notes up to which pieces of work the stream has them for sure.
    #[inline(always)]
    pub(super) fn note_settled(&self, noted: &Noted) {
        if self.is_of_many() {
            noted.note(&self.settled_by_many());
        } else {
            noted.note(&Mark([self.0[0].come_back(), 0, 0, 0]));
        }
    }

    /// The same, and the piece itself, if it ends before its call does.
    pub(super) fn settled_with(&self, piece: Given) -> Mark {
        let mut mark = self.settled();
        mark.0[piece.lane] = piece.waits_for;
        mark
    }

    /// It is known to have come so far.
    #[inline(always)]
    pub(super) fn complete(&self, mark: &Mark) {
        self.0[0].complete(mark.0[0]);
        if self.is_of_many() {
            self.complete_of_many(mark);
        }
    }

    #[inline(never)]
    fn complete_of_many(&self, mark: &Mark) {
        self.0.iter().zip(mark.0).for_each(|(lane, number)| lane.complete(number));
    }

    /// The same where a mark is noted that nobody changes.
    #[inline(always)]
    pub(super) fn complete_noted(&self, noted: &Noted) {
        self.0[0].complete(noted.0[0].load(Ordering::Relaxed));
        if self.is_of_many() {
            self.complete_of_many(&noted.read());
        }
    }

    /// Whether it is known to have come so far.
    pub(super) fn has_come_to(&self, mark: &Mark) -> bool {
        self.0.iter().zip(mark.0).all(|(lane, number)| lane.completed() >= number)
    }

    /// All of it is done or gone. Nobody gives any meanwhile.
    pub(super) fn complete_all(&self) {
        for lane in &self.0 {
            lane.completed.fetch_max(lane.submitted(), Ordering::AcqRel);
        }
    }

    /// Whether there ever was work.
    pub(super) fn is_any(&self) -> bool {
        self.0.iter().any(|lane| lane.submitted() > 0)
    }

    /// How many pieces of work there were.
    pub(super) fn submitted(&self) -> u64 {
        self.0.iter().map(Lane::submitted).sum()
    }

    /// How many pieces of work are known to be done.
    pub(super) fn known(&self) -> u64 {
        self.0.iter().map(Lane::completed).sum()
    }

    /// How many pieces of work are not known to be done.
    pub(super) fn open(&self) -> u64 {
        self.0.iter().map(|lane| lane.submitted().saturating_sub(lane.completed())).sum()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.open() > 0
    }

    pub(super) fn is_on_its_way(&self) -> bool {
        self.0.iter().any(|lane| lane.given.load(Ordering::Acquire) >= ON_ITS_WAY)
    }
}

#[cfg(test)]
mod tests;
