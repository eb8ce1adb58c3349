//! Where threads note what they record: a bank of slots for each of the first, found without a lock.
#![expect(unsafe_code, reason = "reads addresses of places, which are static")]

use std::{
    hint::cold_path,
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use crate::kept::work::{counts::Noted, events::Behind, places::Place};

/// Threads with a bank.
pub(super) const BANKS: usize = 4;
pub(super) const SETS: usize = 128;
/// Slots in which an event may be.
pub(super) const WAYS: usize = 4;
/// What a turn is raised by. It is odd, as that is called here, while it is an odd number of these.
pub(super) const STEP: u64 = 2;
/// Added to `over` while what slots say of the event is being ended.
pub(super) const ENDING: u64 = 1;
/// No event, no thread.
pub(super) const FREE: usize = 0;
pub(super) const NOBODY: u32 = 0;
/// In a place's stead: the event is behind nothing, or nobody knows what it is behind. No place has these addresses.
pub(super) const NOTHING: *mut Place = ptr::without_provenance_mut(1);
pub(super) const UNKNOWN: *mut Place = ptr::null_mut();

/// What one thread has noted of an event.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Slot {
    pub(super) event: AtomicUsize,
    pub(super) turn: AtomicU64,
    pub(super) over: AtomicU64,
    pub(super) place: AtomicPtr<Place>,
    pub(super) mark: Noted,
}

#[derive(Debug)]
pub(super) struct Bank {
    /// Its thread's seat, for good: a thread that gets the seat gets the bank.
    pub(super) owner: AtomicU32,
    pub(super) sets: [[Slot; WAYS]; SETS],
}

pub(super) static ALL: [Bank; BANKS] = [const { Bank::new() }; BANKS];
#[inline(always)]
pub(super) fn is_odd(turn: u64) -> bool {
    turn & STEP != 0
}

impl Slot {
    pub(super) const fn new() -> Self {
        Self {
            event: AtomicUsize::new(FREE),
            turn: AtomicU64::new(0),
            over: AtomicU64::new(0),
            place: AtomicPtr::new(UNKNOWN),
            mark: Noted::none(),
        }
    }

    /// What is over, as it stands there.
    #[inline(always)]
    pub(super) fn over(&self) -> u64 {
        self.over.load(Ordering::Acquire)
    }

    /// Its turn, if it counts.
    #[inline(always)]
    pub(super) fn counting(&self) -> Option<u64> {
        let turn = self.turn.load(Ordering::Acquire);
        (turn > self.over()).then_some(turn)
    }

    /// The place of the work that the event is behind, whose numbers are noted beside it.
    #[inline(always)]
    pub(super) fn place(&self) -> Result<&'static Place, Behind> {
        let place = self.place.load(Ordering::Relaxed);
        if place.addr() > NOTHING.addr() {
            // SAFETY: no other addresses are stored than those of places, which are static.
            return Ok(unsafe { &*place });
        }
        Err(if place == NOTHING { Behind::Nothing } else { Behind::Unknown })
    }

    /// Nothing counts that was written so far, unless a record is on its way: whether one is. For whoever holds the lock.
    pub(super) fn end(&self) -> bool {
        let over = self.over() & !ENDING;
        let Some(turn) = self.counting() else {
            self.over.store(over, Ordering::Release);
            return false;
        };
        let is_on_its_way = is_odd(turn);
        self.over.store(if is_on_its_way { over } else { turn }, Ordering::Release);
        is_on_its_way
    }

    /// Nothing counts that was written so far, or by a record that is on its way. For whoever holds the lock.
    pub(super) fn end_all(&self) {
        let over = self.over() & !ENDING;
        let turn = self.counting().map_or(over, |turn| if is_odd(turn) { turn + STEP } else { turn });
        self.over.store(turn, Ordering::Release);
    }
}

impl Bank {
    pub(super) const fn new() -> Self {
        Self { owner: AtomicU32::new(NOBODY), sets: [const { [const { Slot::new() }; WAYS] }; SETS] }
    }

    /// The slots in which an event may be.
    #[inline(always)]
    pub(super) fn set(&self, event: usize) -> &[Slot; WAYS] {
        // Handles lie a multiple of some power of two apart: multiplied, all their bits are in the upper ones.
        let spread = (event as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.sets[(spread >> 57) as usize % SETS]
    }

    #[inline(always)]
    pub(super) fn find(&self, event: usize) -> Option<&Slot> {
        let [first, others @ ..] = self.set(event);
        if first.event.load(Ordering::Acquire) == event {
            return Some(first);
        }
        cold_path();
        others.iter().find(|slot| slot.event.load(Ordering::Acquire) == event)
    }
}

/// The bank that the thread with this seat has.
#[inline(always)]
pub(super) fn own_bank(seat: u32) -> Option<&'static Bank> {
    if seat == NOBODY {
        return None;
    }
    let [first, others @ ..] = &ALL;
    if first.owner.load(Ordering::Relaxed) == seat {
        return Some(first);
    }
    cold_path();
    others.iter().find(|bank| bank.owner.load(Ordering::Relaxed) == seat)
}

/// The same, or one that it has from now on.
pub(super) fn bank(seat: u32) -> Option<&'static Bank> {
    if seat == NOBODY {
        return None;
    }
    own_bank(seat).or_else(|| {
        ALL.iter().find(|bank| bank.owner.compare_exchange(NOBODY, seat, Ordering::AcqRel, Ordering::Acquire).is_ok())
    })
}

/// Banks that threads have.
#[inline(always)]
pub(super) fn banks() -> impl Iterator<Item = &'static Bank> {
    ALL.iter().take_while(|bank| bank.owner.load(Ordering::Acquire) != NOBODY)
}
