//! Events as the threads that record them note it, without a lock, while nothing was ever lost.
//!
//! The first threads that record events have a bank of slots each, by their seats at the gate. In a slot its thread
//! alone writes behind which work it has recorded an event; its *turn* is odd while that call is in the driver, and grows
//! with each record. Anybody may end what the slots of an event say, under the lock of [`Events`]: what was written up to
//! the turn `over` counts no longer. Before the first of them is ended all are marked ([`ENDING`]).
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
//!
//! What had come and is over again by the second look is not missed either. Whoever ends another slot's word, or takes
//! an event out of [`Events`], has marked and ended the asked slot first, whose thread is in no record; so `over` is
//! looked at once more behind all else, and has to be what it was. If its thread was in a record then, whoever found
//! that has noted in [`Events`] that nobody knows the last one.
//!
//! A thread that asks for an event that it has recorded itself therefore looks at the others only once, when the driver has
//! answered ([`Asked`]): its slot's turn cannot change meanwhile, and what others have of the event cannot go.

mod slots;
#[cfg(test)]
mod tests;

use std::{
    ptr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence},
};

use super::{
    events::{Behind, Events},
    places::{self, Place},
};
use slots::{ALL, ENDING, NOBODY, NOTHING, STEP, Slot, UNKNOWN, bank, banks, is_odd, own_bank};

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
    over: u64,
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
    /// What was noted at this turn, which is even; `None` if it is another turn by now.
    #[inline(always)]
    fn read(&'static self, event: usize, turn: u64) -> Option<Seen> {
        let over = self.over();
        if over & ENDING != 0 {
            return None;
        }
        let behind = match self.place() {
            Ok(place) => Behind::Work(places::number(place), self.mark.read()),
            Err(behind) => behind,
        };
        fence(Ordering::Acquire);
        let is_same = self.turn.load(Ordering::Relaxed) == turn && self.event.load(Ordering::Relaxed) == event;
        is_same.then_some(Seen { slot: self, turn, over, behind })
    }

    /// It is this event's from now on, with a record on its way. For its thread, which holds the lock.
    fn take(&'static self, event: usize) -> Recording {
        let before = self.turn.load(Ordering::Relaxed).max(self.over() & !ENDING);
        let turn = if is_odd(before) { before + 2 * STEP } else { before + STEP };
        self.turn.store(turn, Ordering::Relaxed);
        fence(Ordering::Release);
        self.event.store(event, Ordering::Release);
        Recording { slot: self, turn }
    }
}

/// A record of an event begins, on the thread with this seat, whose slot counts.
#[inline(always)]
pub(super) fn begin(event: usize, seat: u32) -> Option<Recording> {
    if is_elsewhere() {
        return None;
    }
    let slot = own_bank(seat)?.find(event)?;
    let turn = slot.counting()? + STEP;
    if !is_odd(turn) {
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
                ptr::from_ref(places::at(place)).cast_mut()
            }
        };
        self.slot.place.store(place, Ordering::Relaxed);
        self.slot.turn.store(self.turn + STEP, Ordering::Release);
    }

    /// It is behind what was given here so far, if it succeeds. Nobody reads that before the turn is raised again.
    #[inline(always)]
    pub(super) fn note(&self, place: &'static Place) {
        place.counts().note_settled(&self.slot.mark);
        self.slot.place.store(ptr::from_ref(place).cast_mut(), Ordering::Relaxed);
    }

    /// It has come back, and that holds, or nobody knows what the event is behind.
    #[inline(always)]
    pub(super) fn end_noted(self, is_known: bool) {
        if !is_known {
            self.slot.place.store(UNKNOWN, Ordering::Relaxed);
        }
        self.slot.turn.store(self.turn + STEP, Ordering::Release);
    }
}

/// A question about an event of which the thread that asks has a slot.
#[derive(Debug)]
pub(super) struct Asked {
    slot: &'static Slot,
    over: u64,
    event: usize,
}

/// A question begins, on the thread with this seat. Where [`Events`] may know more of the event it is none of these.
#[inline(always)]
pub(super) fn ask(event: usize, seat: u32) -> Option<Asked> {
    if is_elsewhere() {
        return None;
    }
    let slot = own_bank(seat)?.find(event)?;
    let (over, turn) = (slot.over(), slot.turn.load(Ordering::Relaxed));
    // Where another thread has recorded it since, that one's slot says more. A thread is in no record while it asks, unless
    // the driver calls back.
    if turn <= over || is_odd(turn) || over & ENDING != 0 {
        return None;
    }
    Some(Asked { slot, over, event })
}

impl Asked {
    /// The event has come: so has all that it is known to be behind.
    #[inline(always)]
    pub(super) fn has_come(&self) {
        // What is over is looked at last.
        if is_elsewhere() || (has_others() && self.is_of_others()) || self.slot.over() != self.over {
            return;
        }
        if let Ok(place) = self.slot.place() {
            place.counts().complete_noted(&self.slot.mark);
        }
    }

    /// Whether another thread's slot says something of the event, or this one's nothing any more.
    #[inline(never)]
    fn is_of_others(&self) -> bool {
        !matches!(look(self.event), Look::One(seen) if ptr::eq(seen.slot, self.slot))
    }
}

/// Whether more than one thread has a bank. They are taken one after the other.
#[inline(always)]
fn has_others() -> bool {
    ALL[1].owner.load(Ordering::Acquire) != NOBODY
}

/// What slots say of an event. Whoever finds one has not asked [`Events`].
#[inline(always)]
pub(super) fn look(event: usize) -> Look {
    let mut found = Look::Nobody;
    for slot in banks().filter_map(|bank| bank.find(event)) {
        let Some(turn) = slot.counting() else { continue };
        let seen = if is_odd(turn) { None } else { slot.read(event, turn) };
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
        let is_alone = matches!(look(event), Look::One(now) if now.turn == self.turn && ptr::eq(now.slot, self.slot));
        // What is over is looked at last.
        is_alone && self.slot.over() == self.over
    }
}

/// Slots of an event, marked: what they say is about to be ended. The lock of [`Events`] is held.
fn marked(event: usize) -> impl Iterator<Item = &'static Slot> {
    let slots = move || banks().filter_map(move |bank| bank.find(event));
    slots().for_each(|slot| slot.over.store(slot.over() | ENDING, Ordering::Release));
    slots()
}

/// What slots say of an event is over, but for a record on its way: whether there is one. The lock of [`Events`] is held.
pub(super) fn end(event: usize) -> bool {
    marked(event).map(Slot::end).filter(|is_on_its_way| *is_on_its_way).count() > 0
}

/// What slots say of an event is over: it has ended, or a new one has its handle. The lock of [`Events`] is held.
pub(super) fn end_for_good(event: usize) {
    marked(event).for_each(Slot::end_all);
}

/// Everything is noted in [`Events`] from now on: what slots say of each event. The gate is closed.
pub(super) fn close() -> Vec<(usize, Behind)> {
    IS_CLOSED.store(true, Ordering::Release);
    let slots = ALL.iter().flat_map(|bank| bank.sets.iter().flatten());
    slots
        .filter_map(|slot| {
            let turn = slot.counting()?;
            let event = slot.event.load(Ordering::Acquire);
            let seen = slot.read(event, turn).filter(|_| !is_odd(turn));
            slot.end_all();
            Some((event, seen.map_or(Behind::Unknown, |seen| seen.behind)))
        })
        .collect()
}
