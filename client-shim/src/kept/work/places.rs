//! Places: for each stream that was given work, how much that was, and how far it is known to have come.
//!
//! A place is found by its stream's name without a lock, since every launch looks for one; it is taken and left under a
//! lock. It is left when its stream has ended and has no work on its way. Its numbers go on with the next stream, so
//! that whoever still has a number of the stream before says nothing about the next one's work. Streams for which no
//! place is left share one, of which only a wait for their common context says anything.
//!
//! Streams are called by their names, which are addresses of objects. The default stream of a context is its name plus
//! 1; that of a thread is a number of ours, times 8 plus 2 ([`thread_streams`](super::thread_streams)); a stream that has
//! ended while it had work has 4 more, and nobody finds it any longer.

use super::{counts::Counts, hosts};
use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// Places.
const MOST: usize = 1024;
/// The one that all streams share for which none is left.
pub(super) const SHARED: usize = MOST;
/// What is added to names.
pub(super) const LEGACY: usize = 1;
pub(super) const PER_THREAD: usize = 2;
const ENDED: usize = 4;
/// In a name's place: nobody's yet, and nobody's any longer. Another stream may lie behind the latter.
const FREE: usize = 0;
const LEFT: usize = 8;
/// The context of a place that streams of several share. No context is called so.
const SEVERAL: usize = 1;
/// Places of streams that have ended that are looked at when one is taken.
const LOOKED_AT: usize = 4;
/// How many may be left before they are swept.
const MOST_LEFT: usize = 256;

/// A stream's place.
///
/// What a launch by the first of its threads looks at lies in one line of the cache. That size is a power of two: finding
/// a place takes no multiplication.
#[derive(Debug)]
#[repr(C, align(256))]
pub(super) struct Place {
    /// Its name.
    stream: AtomicUsize,
    /// Its context by name, 0 if nobody knows.
    context: AtomicUsize,
    /// The recovery that has lost what its stream was to give, or gives on; 0 for none. And when a thread that had been
    /// told took that up; 0 for not yet.
    doubt: AtomicU64,
    taken_up: AtomicU64,
    /// What threads have given.
    counts: Counts,
}

static PLACES: [Place; MOST + 1] = [const { Place::free() }; MOST + 1];

/// What is known of places that are no stream's any longer. Who takes or leaves a place holds it.
#[derive(Debug)]
struct Ending {
    /// Those of streams that have ended with work on its way.
    places: VecDeque<usize>,
    /// About how many were left since they were last swept.
    left: usize,
}

static ENDING: Mutex<Ending> = Mutex::new(Ending { places: VecDeque::new(), left: 0 });

fn ending() -> MutexGuard<'static, Ending> {
    ENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of this number.
#[inline(always)]
pub(super) fn at(place: usize) -> &'static Place {
    &PLACES[place]
}

/// All that streams have, with their numbers.
pub(super) fn used() -> impl Iterator<Item = (usize, &'static Place)> {
    PLACES.iter().enumerate().filter(|(at, place)| match *at {
        SHARED => place.counts.is_any() || place.doubt.load(Ordering::Acquire) > 0,
        _ => !matches!(place.stream.load(Ordering::Acquire), FREE | LEFT),
    })
}

/// How much work all streams have been given so far. It is another number from each call on that gives some.
pub(super) fn given() -> u64 {
    PLACES.iter().fold(0, |sum, place| sum.wrapping_add(place.counts.submitted()))
}

/// Those of a context. Where nobody knows which context a place is of, it is of none.
pub(super) fn of(context: usize) -> impl Iterator<Item = (usize, &'static Place)> {
    used().filter(move |(_, place)| context != 0 && place.context.load(Ordering::Acquire) == context)
}

/// The numbers of places in which a name may be, one after the other.
fn way(name: usize) -> impl Iterator<Item = usize> {
    let first = (name >> 4) % MOST;
    (0..MOST).map(move |step| (first + step) % MOST)
}

/// A stream's place, if it is where it is looked for first: nearly all are.
#[inline(always)]
pub(super) fn find_at_once(name: usize) -> Option<&'static Place> {
    let place = &PLACES[(name >> 4) % MOST];
    (place.stream.load(Ordering::Acquire) == name).then_some(place)
}

/// The number of a place.
#[inline(always)]
pub(super) fn number(place: &'static Place) -> usize {
    (std::ptr::from_ref(place).addr() - PLACES.as_ptr().addr()) / size_of::<Place>()
}

/// A stream's place, if it has one.
pub(super) fn find(name: usize) -> Option<usize> {
    way(name).find_map(|at| match PLACES[at].stream.load(Ordering::Acquire) {
        FREE => Some(None),
        found => (found == name).then_some(Some(at)),
    })?
}

/// A stream's place, another one if it has none; [`SHARED`] if none is left. `context` says whose the stream is.
pub(super) fn take(name: usize, context: impl FnOnce() -> usize) -> usize {
    if let Some(found) = find(name) {
        return found;
    }
    let context = context();
    let mut ending = ending();
    for _ in 0..LOOKED_AT.min(ending.places.len()) {
        let Some(at) = ending.places.pop_front() else { break };
        leave(at, &mut ending);
    }
    if let Some(found) = find(name) {
        return found;
    }
    let free = way(name).find(|at| matches!(PLACES[*at].stream.load(Ordering::Acquire), FREE | LEFT));
    let Some(at) = free else {
        share(context);
        return SHARED;
    };
    PLACES[at].context.store(context, Ordering::Release);
    PLACES[at].stream.store(name, Ordering::Release);
    at
}

/// Work of a stream of this context is given to the place that all share.
pub(super) fn share(context: usize) {
    let change = |of: usize| (of != context).then_some(if of == 0 { context } else { SEVERAL });
    let _as_it_was = PLACES[SHARED].context.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
}

/// A stream ends: nobody finds its place any longer. Its number, if it has one.
pub(super) fn end(name: usize) -> Option<usize> {
    let _held = ending();
    let at = find(name)?;
    // Another stream may get the name, and a wait for that one says nothing about this one's work.
    PLACES[at].stream.store(name | ENDED, Ordering::Release);
    Some(at)
}

/// It has ended: its place is left, at once or when its work is known to be done.
pub(super) fn ended(at: usize) {
    leave(at, &mut ending());
}

/// The driver has refused to end it. If another one has its name by now it stays as it is.
pub(super) fn put_back(at: usize) {
    let mut ending = ending();
    let name = PLACES[at].stream.load(Ordering::Acquire) & !ENDED;
    if find(name).is_none() {
        PLACES[at].stream.store(name, Ordering::Release);
    } else {
        leave(at, &mut ending);
    }
}

/// A context has ended, and whatever was on its way there.
pub(super) fn end_context(context: usize) {
    let mut ending = ending();
    for (at, place) in of(context).filter(|(at, _)| *at != SHARED).collect::<Vec<_>>() {
        place.stream.fetch_or(ENDED, Ordering::AcqRel);
        place.counts.complete_all();
        place.doubt.store(0, Ordering::Release);
        ending.places.retain(|other| *other != at);
        leave(at, &mut ending);
    }
}

fn leave(at: usize, ending: &mut Ending) {
    if PLACES[at].counts.is_on_its_way() || PLACES[at].counts.is_busy() {
        ending.places.push_back(at);
        return;
    }
    // What it was to give is still to be told.
    if PLACES[at].doubt() > 0 {
        PLACES[SHARED].lose(PLACES[at].doubt());
    }
    PLACES[at].doubt.store(0, Ordering::Release);
    PLACES[at].stream.store(LEFT, Ordering::Release);
    hosts::are_told(at);
    ending.left += 1;
    if ending.left >= MOST_LEFT {
        ending.left = sweep();
        ending.left -= ending.left.min(MOST_LEFT / 2);
    }
}

/// Places that are left, and that nobody passes on the way to one behind them, are as if they had never been taken; how
/// many are not.
fn sweep() -> usize {
    let mut is_passed = [false; MOST];
    for (at, place) in PLACES.iter().enumerate().take(MOST) {
        let name = place.stream.load(Ordering::Acquire);
        if !matches!(name, FREE | LEFT) && name & ENDED == 0 {
            way(name).take_while(|passed| *passed != at).for_each(|passed| is_passed[passed] = true);
        }
    }
    let left = (0..MOST).filter(|at| PLACES[*at].stream.load(Ordering::Acquire) == LEFT);
    let (passed, free): (Vec<_>, Vec<_>) = left.partition(|at| is_passed[*at]);
    free.into_iter().for_each(|at| PLACES[at].stream.store(FREE, Ordering::Release));
    passed.len()
}

impl Place {
    pub(super) const fn free() -> Self {
        Self {
            stream: AtomicUsize::new(FREE),
            context: AtomicUsize::new(0),
            doubt: AtomicU64::new(0),
            taken_up: AtomicU64::new(0),
            counts: Counts::none(),
        }
    }

    /// What it was to give, or gives on, was lost by the recovery of this number.
    pub(super) fn lose(&self, recovery: u64) {
        self.taken_up.store(0, Ordering::Release);
        self.doubt.fetch_max(recovery, Ordering::AcqRel);
    }

    /// The recovery that has lost what it was to give, if nobody who had been told has taken that up; else 0.
    pub(super) fn doubt(&self) -> u64 {
        if self.taken_up.load(Ordering::Acquire) == 0 { self.doubt.load(Ordering::Acquire) } else { 0 }
    }

    /// Whether a thread that began at this time has to be told of what its stream was to give.
    pub(super) fn is_in_doubt(&self, born: u64) -> bool {
        let taken_up = self.taken_up.load(Ordering::Acquire);
        self.doubt.load(Ordering::Acquire) > 0 && (taken_up == 0 || born <= taken_up)
    }

    /// A thread that has been told has waited for it.
    pub(super) fn take_up(&self, now: u64) {
        if self.doubt() > 0 {
            self.taken_up.store(now, Ordering::Release);
        }
    }

    /// What threads have given.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Its stream's handle by name, with the context, if other threads can name it.
    pub(super) fn named(&self) -> Option<(usize, usize)> {
        let (name, context) = (self.stream.load(Ordering::Acquire), self.context.load(Ordering::Acquire));
        match name & (LEGACY | PER_THREAD | ENDED) {
            LEGACY => Some((0, context)),
            0 if name != FREE && name != LEFT => Some((name, context)),
            _ => None,
        }
        .filter(|_| context > SEVERAL)
    }
}

/// There is one table: tests that need it as they have left it hold this.
#[cfg(test)]
pub(super) fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
