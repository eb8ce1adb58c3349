//! How much of each stream's work is known to be done.
//!
//! Every stream has a place with two numbers: how many pieces of work it was given, and up to which one it is known to
//! have come, by a call of the program that waited for it or asked. A stream with a difference may have lost work when
//! its context dies. Work that no place was left for counts as never done.
//!
//! Streams are called by their names. The default stream of a context is its name plus 1; the default streams of threads
//! share one place, plus 2, and only a wait for the whole context is known to cover them.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
};

use super::{arguments::Subject, effects::Effect, names};
use crate::{keep::record, sys::CUresult};

/// Places.
const MOST: usize = 1024;
/// `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

/// A stream's place.
struct Place {
    /// Its name, 0 for a free place.
    stream: AtomicUsize,
    /// Its context, by name.
    context: AtomicUsize,
    submitted: AtomicU64,
    completed: AtomicU64,
    /// The error by which work was lost that nobody has heard of yet.
    lost: AtomicU32,
}

static PLACES: [Place; MOST] = [const {
    Place {
        stream: AtomicUsize::new(0),
        context: AtomicUsize::new(0),
        submitted: AtomicU64::new(0),
        completed: AtomicU64::new(0),
        lost: AtomicU32::new(0),
    }
}; MOST];

/// Work was given to a stream without a place.
static IS_INCOMPLETE: AtomicBool = AtomicBool::new(false);
/// Some place has lost work that nobody has heard of.
static IS_OWING: AtomicBool = AtomicBool::new(false);

/// Where each event was recorded last: place and number.
static RECORDED: Mutex<BTreeMap<usize, (usize, u64)>> = Mutex::new(BTreeMap::new());

/// Names are addresses of objects: odd ones are ours, and this one was the name of a stream that has ended.
const ENDED: usize = 4;

/// Which stream a call means: its name, and the context that it is of, if that is known without a search.
fn key(stream: usize, is_per_thread: bool, context: usize) -> usize {
    match stream {
        0 if is_per_thread => context | PER_THREAD,
        0 | LEGACY => context | LEGACY,
        PER_THREAD => context | PER_THREAD,
        name => name,
    }
}

fn find(name: usize) -> Option<usize> {
    let first = (name >> 4) % MOST;
    (0..MOST).map(|step| (first + step) % MOST).find_map(|at| match PLACES[at].stream.load(Ordering::Acquire) {
        0 => Some(None),
        found => (found == name).then_some(Some(at)),
    })?
}

/// The place of a stream, a new one if it has none; `None` if there is none left.
fn place(name: usize, current: usize) -> Option<usize> {
    let first = (name >> 4) % MOST;
    for at in (0..MOST).map(|step| (first + step) % MOST) {
        let place = &PLACES[at];
        match place.stream.load(Ordering::Acquire) {
            found if found == name => return Some(at),
            0 => {
                let taken = place.stream.compare_exchange(0, name, Ordering::AcqRel, Ordering::Acquire);
                if taken.is_ok() {
                    let of_recipe = || record::stream_context(names::current_of(name)).map(names::name_of);
                    let context = if name & (LEGACY | PER_THREAD) == 0 { of_recipe() } else { None };
                    place.context.store(context.unwrap_or(current), Ordering::Release);
                }
                if taken.is_ok() || taken == Err(name) {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// A call under way.
#[derive(Debug)]
pub(super) struct Work {
    effect: Effect,
    event: usize,
    place: Option<usize>,
    /// Which piece of work it is, or up to which one it waits.
    number: u64,
    /// The same for each place of the context.
    all: Vec<(usize, u64)>,
}

/// Notes that a call begins, in this context by name.
pub(super) fn begin(effect: Effect, subject: &Subject, is_per_thread: bool, context: usize) -> Work {
    let mut work = Work { effect, event: subject.event, place: None, number: 0, all: Vec::new() };
    match effect {
        Effect::Silent | Effect::None | Effect::ReadsEvents => {}
        Effect::Submits | Effect::Launches | Effect::CopiesToHost => {
            work.place = place(key(subject.stream.unwrap_or(0), is_per_thread, context), context);
            match work.place {
                Some(at) => work.number = PLACES[at].submitted.fetch_add(1, Ordering::AcqRel) + 1,
                None => IS_INCOMPLETE.store(true, Ordering::Release),
            }
        }
        Effect::FinishesStream | Effect::RecordsEvent | Effect::EndsStream => {
            let name = key(subject.stream.unwrap_or(0), is_per_thread, context);
            work.place = find(name).filter(|_| name & PER_THREAD == 0 || effect != Effect::FinishesStream);
            work.number = work.place.map_or(0, |at| PLACES[at].submitted.load(Ordering::Acquire));
        }
        Effect::FinishesEvent => {
            let recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, number)) = recorded.get(&subject.event) {
                (work.place, work.number) = (Some(*at), *number);
            }
        }
        Effect::FinishesContext => {
            work.all = used()
                .filter(|(_, place)| place.context.load(Ordering::Acquire) == context)
                .map(|(at, place)| (at, place.submitted.load(Ordering::Acquire)))
                .collect();
        }
    }
    work
}

fn used() -> impl Iterator<Item = (usize, &'static Place)> {
    PLACES.iter().enumerate().filter(|(_, place)| place.stream.load(Ordering::Acquire) != 0)
}

impl Work {
    /// The error by which work was lost that this call would have to report, if nobody has heard of it yet. It is
    /// heard of now.
    pub(super) fn owed(&self) -> Option<CUresult> {
        if !IS_OWING.load(Ordering::Acquire) {
            return None;
        }
        let places = self.place.iter().copied().chain(self.all.iter().map(|(at, _)| *at));
        // A copy to the host waits for all streams that are ordered with the default one.
        let every = used().map(|(at, _)| at).filter(|_| self.effect == Effect::CopiesToHost);
        let codes: Vec<u32> = places.chain(every).map(|at| PLACES[at].lost.swap(0, Ordering::AcqRel)).collect();
        codes.into_iter().find(|code| *code != 0).map(CUresult)
    }

    /// Notes how it ended.
    pub(super) fn end(self, answer: CUresult) {
        let is_success = answer.is_success();
        for &(at, number) in self.all.iter().filter(|_| is_success) {
            PLACES[at].completed.fetch_max(number, Ordering::AcqRel);
        }
        let Some(at) = self.place else { return };
        let place = &PLACES[at];
        match self.effect {
            Effect::Submits | Effect::Launches if !is_success => self.was_not_given(),
            Effect::CopiesToHost if !is_success => self.was_not_given(),
            Effect::CopiesToHost | Effect::FinishesStream | Effect::FinishesEvent if is_success => {
                place.completed.fetch_max(self.number, Ordering::AcqRel);
            }
            Effect::RecordsEvent if is_success => {
                let mut recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
                recorded.insert(self.event, (at, self.number));
            }
            // Another stream may get the name, and a wait for that one says nothing about this one's work.
            Effect::EndsStream if is_success && place.is_busy() => {
                let name = place.stream.load(Ordering::Acquire);
                place.stream.store(name | ENDED, Ordering::Release);
            }
            Effect::Silent
            | Effect::None
            | Effect::Submits
            | Effect::Launches
            | Effect::CopiesToHost
            | Effect::FinishesStream
            | Effect::FinishesEvent
            | Effect::FinishesContext
            | Effect::RecordsEvent
            | Effect::ReadsEvents
            | Effect::EndsStream => {}
        }
    }

    /// The driver has refused the piece of work. If another one has come after it, it counts as given.
    fn was_not_given(&self) {
        if let Some(at) = self.place {
            let submitted = &PLACES[at].submitted;
            let _later_one =
                submitted.compare_exchange(self.number, self.number - 1, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

impl Place {
    fn is_busy(&self) -> bool {
        self.completed.load(Ordering::Acquire) < self.submitted.load(Ordering::Acquire)
    }
}

/// How many streams have work that is not known to be done. Nobody gives any meanwhile: the gate is closed.
pub(super) fn busy() -> usize {
    used().filter(|(_, place)| place.is_busy()).count() + usize::from(IS_INCOMPLETE.load(Ordering::Acquire))
}

/// All work is gone, what was not done by this error. The gate is closed.
pub(super) fn lose(error: CUresult) {
    for (_, place) in used() {
        if place.is_busy() {
            place.lost.store(error.0, Ordering::Release);
            IS_OWING.store(true, Ordering::Release);
        }
        let submitted = place.submitted.load(Ordering::Acquire);
        place.completed.store(submitted, Ordering::Release);
    }
    // Streams without a place have told the threads that are there.
    IS_INCOMPLETE.store(false, Ordering::Release);
    RECORDED.lock().unwrap_or_else(PoisonError::into_inner).clear();
}
