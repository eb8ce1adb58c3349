//! Events as the threads that record them note it, without a lock, while nothing was ever lost.
//!
//! The first threads that record events have a bank of slots each, by their seats at the gate. In a slot its thread
//! alone writes behind which work it has recorded an event; its *turn* is odd while that call is in the driver, and grows
//! with each record. Anybody may end what a slot says, under the lock of [`Events`]: what was written up to the turn
//! `over` counts no longer.
//!
//! | who | does |
//! |---|---|
//! | a thread that records an event for the first time, or after another one | takes a slot, under the lock; what other slots and [`Events`] have of the event is over |
//! | a thread whose slot counts | raises the turn, calls the driver, writes, raises the turn |
//! | whoever has no bank, no slot in its set, or a capture, or finds another one in the driver | notes it in [`Events`], under the lock; what slots have is over, unless one of their threads is in the driver |
//! | whoever asks what an event is behind | knows it if one slot counts, its turn is even, and [`Events`] has nothing; looks again after the driver has answered, and if that is not the same any more knows nothing |
//!
//! Of two threads that record one event at once both have slots that count, or one has and [`Events`] too. Then nobody
//! knows which was the last, until one takes a slot while none records it. An answer of the driver that shows a record comes after
//! the turn was raised for it: whoever looks again sees that, as stores are seen in their order (x86), or by
//! the driver's own barriers.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use super::{
    counts::Noted,
    events::{Behind, Events},
};

/// Threads with a bank.
const BANKS: usize = 4;
const SETS: usize = 128;
/// Slots in which an event may be.
const WAYS: usize = 4;
/// No event, no thread.
const FREE: usize = 0;
const NOBODY: u32 = 0;
/// In a place's stead: the event is behind nothing, or nobody knows what it is behind.
const NOTHING: usize = usize::MAX;
const UNKNOWN: usize = usize::MAX - 1;

/// What one thread has noted of an event.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    event: AtomicUsize,
    turn: AtomicU64,
    over: AtomicU64,
    place: AtomicUsize,
    mark: Noted,
}

#[derive(Debug)]
struct Bank {
    /// Its thread's seat, for good: a thread that gets the seat gets the bank.
    owner: AtomicU32,
    sets: [[Slot; WAYS]; SETS],
}

static ALL: [Bank; BANKS] = [const { Bank::new() }; BANKS];
/// Work was lost: from then on everything is noted in [`Events`] alone.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);
/// How many events [`Events`] knows.
static ELSEWHERE: AtomicUsize = AtomicUsize::new(0);

/// A record on its way, by the thread that has this slot.
#[derive(Debug)]
pub(super) struct Recording {
    slot: &'static Slot,
    turn: u64,
}

/// What one slot says of an event, and nobody else says anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    slot: &'static Slot,
    turn: u64,
    pub(super) behind: Behind,
}

/// What all slots say.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    /// Nothing.
    Nobody,
    One(Seen),
    /// More than one says something, or one is about to.
    Several,
}

impl Slot {
    const fn new() -> Self {
        Self {
            event: AtomicUsize::new(FREE),
            turn: AtomicU64::new(0),
            over: AtomicU64::new(0),
            place: AtomicUsize::new(UNKNOWN),
            mark: Noted::none(),
        }
    }

    /// Its turn, if it counts.
    #[inline(always)]
    fn counting(&self) -> Option<u64> {
        let turn = self.turn.load(Ordering::Acquire);
        (turn > self.over.load(Ordering::Acquire)).then_some(turn)
    }

    /// What was noted at this turn, which is even; `None` if it is another turn by now.
    #[inline(always)]
    fn read(&'static self, event: usize, turn: u64) -> Option<Seen> {
        let behind = match self.place.load(Ordering::Relaxed) {
            UNKNOWN => Behind::Unknown,
            NOTHING => Behind::Nothing,
            place => Behind::Work(place, self.mark.read()),
        };
        fence(Ordering::Acquire);
        let is_same = self.turn.load(Ordering::Relaxed) == turn && self.event.load(Ordering::Relaxed) == event;
        is_same.then_some(Seen { slot: self, turn, behind })
    }

    /// Nothing counts that was written so far, unless a record is on its way: whether one is. For whoever holds the lock.
    fn end(&self) -> bool {
        let Some(turn) = self.counting() else { return false };
        let is_on_its_way = turn % 2 == 1;
        if !is_on_its_way {
            self.over.store(turn, Ordering::Release);
        }
        is_on_its_way
    }

    /// Nothing counts that was written so far, or by a record that is on its way. For whoever holds the lock.
    fn end_all(&self) {
        if let Some(turn) = self.counting() {
            self.over.store(turn + turn % 2, Ordering::Release);
        }
    }

    /// It is this event's from now on, with a record on its way. For its thread, which holds the lock.
    fn take(&'static self, event: usize) -> Recording {
        let before = self.turn.load(Ordering::Relaxed).max(self.over.load(Ordering::Relaxed));
        let turn = (before + 1) | 1;
        self.turn.store(turn, Ordering::Relaxed);
        fence(Ordering::Release);
        self.event.store(event, Ordering::Release);
        Recording { slot: self, turn }
    }
}

impl Bank {
    const fn new() -> Self {
        Self { owner: AtomicU32::new(NOBODY), sets: [const { [const { Slot::new() }; WAYS] }; SETS] }
    }

    /// The slots in which an event may be.
    #[inline(always)]
    fn set(&self, event: usize) -> &[Slot; WAYS] {
        // Handles lie a multiple of some power of two apart: multiplied, all their bits are in the upper ones.
        let spread = (event as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.sets[(spread >> 57) as usize % SETS]
    }

    #[inline(always)]
    fn find(&self, event: usize) -> Option<&Slot> {
        self.set(event).iter().find(|slot| slot.event.load(Ordering::Acquire) == event)
    }
}

/// The bank of the thread with this seat.
#[inline(always)]
fn bank(seat: u32) -> Option<&'static Bank> {
    if seat != NOBODY && ALL[0].owner.load(Ordering::Relaxed) == seat { Some(&ALL[0]) } else { other_bank(seat) }
}

#[inline(never)]
fn other_bank(seat: u32) -> Option<&'static Bank> {
    if seat == NOBODY {
        return None;
    }
    let own = ALL.iter().find(|bank| bank.owner.load(Ordering::Relaxed) == seat);
    own.or_else(|| {
        ALL.iter().find(|bank| bank.owner.compare_exchange(NOBODY, seat, Ordering::AcqRel, Ordering::Acquire).is_ok())
    })
}

/// Banks that threads have.
#[inline(always)]
fn banks() -> impl Iterator<Item = &'static Bank> {
    ALL.iter().take_while(|bank| bank.owner.load(Ordering::Acquire) != NOBODY)
}

/// A record of an event begins, on the thread with this seat, whose slot counts.
#[inline(always)]
pub(super) fn begin(event: usize, seat: u32) -> Option<Recording> {
    if is_elsewhere() {
        return None;
    }
    let slot = bank(seat)?.find(event)?;
    let turn = slot.counting()? + 1;
    if turn % 2 == 0 {
        return None;
    }
    slot.turn.store(turn, Ordering::Relaxed);
    fence(Ordering::Release);
    Some(Recording { slot, turn })
}

/// The same where the thread has no slot that counts: it takes one, if there is one and nobody else records the event.
pub(super) fn begin_anew(events: &mut Events, event: usize, seat: u32) -> Option<Recording> {
    if IS_CLOSED.load(Ordering::Relaxed) || !events.is_idle(event) {
        return None;
    }
    let set = bank(seat)?.set(event);
    let own = set.iter().find(|slot| slot.event.load(Ordering::Relaxed) == event);
    let slot = own.or_else(|| set.iter().find(|slot| slot.counting().is_none()))?;
    if end(event) {
        return None;
    }
    events.take(event);
    Some(slot.take(event))
}

impl Recording {
    /// It has come back, and this is what the event is behind now.
    #[inline(always)]
    pub(super) fn end(self, behind: Behind) {
        let place = match behind {
            Behind::Unknown => UNKNOWN,
            Behind::Nothing => NOTHING,
            Behind::Work(place, mark) => {
                self.slot.mark.note(&mark);
                place
            }
        };
        self.slot.place.store(place, Ordering::Relaxed);
        self.slot.turn.store(self.turn + 1, Ordering::Release);
    }
}

/// What slots say of an event. Whoever finds one has not asked [`Events`].
#[inline(always)]
pub(super) fn look(event: usize) -> Look {
    let mut found = Look::Nobody;
    for slot in banks().filter_map(|bank| bank.find(event)) {
        let Some(turn) = slot.counting() else { continue };
        let seen = if turn % 2 == 0 { slot.read(event, turn) } else { None };
        found = match (found, seen) {
            (Look::Nobody, Some(seen)) => Look::One(seen),
            _ => return Look::Several,
        };
    }
    found
}

/// Whether [`Events`] knows of any event.
#[inline(always)]
pub(super) fn is_elsewhere() -> bool {
    ELSEWHERE.load(Ordering::Acquire) > 0
}

/// So many are known there.
pub(super) fn elsewhere(events: usize) {
    ELSEWHERE.store(events, Ordering::Release);
}

impl Seen {
    /// Whether slots still say this alone.
    #[inline(always)]
    pub(super) fn is_still(&self, event: usize) -> bool {
        matches!(look(event), Look::One(now) if now.turn == self.turn && std::ptr::eq(now.slot, self.slot))
    }
}

/// What slots say of an event is over, but for a record on its way: whether there is one. The lock of [`Events`] is held.
pub(super) fn end(event: usize) -> bool {
    let slots = banks().filter_map(|bank| bank.find(event));
    slots.map(Slot::end).filter(|is_on_its_way| *is_on_its_way).count() > 0
}

/// What slots say of an event is over: it has ended, or a new one has its handle. The lock of [`Events`] is held.
pub(super) fn end_for_good(event: usize) {
    banks().filter_map(|bank| bank.find(event)).for_each(Slot::end_all);
}

/// Everything is noted in [`Events`] from now on: what slots say of each event. The gate is closed.
pub(super) fn close() -> Vec<(usize, Behind)> {
    IS_CLOSED.store(true, Ordering::Release);
    let slots = ALL.iter().flat_map(|bank| bank.sets.iter().flatten());
    slots
        .filter_map(|slot| {
            let turn = slot.counting()?;
            let event = slot.event.load(Ordering::Acquire);
            let seen = slot.read(event, turn).filter(|_| turn % 2 == 0);
            slot.end_all();
            Some((event, seen.map_or(Behind::Unknown, |seen| seen.behind)))
        })
        .collect()
}
