//! How much of each stream's work is known to be done.
//!
//! Every stream has a place with two numbers: how many pieces of work it was given, and up to which one it is known to
//! have come, by a call of the program that waited for it or asked. A stream with a difference may have lost work when
//! its context dies. Work that no place was left for counts as never done.
//!
//! A piece of work has its number before its call goes into the driver, and another thread's call may come back in
//! between. So a wait says something only about numbers below which no call was on its way when it began: the place
//! knows how many are, in the same word as the last number.
//!
//! Streams are called by their names. The default stream of a context is its name plus 1; the default streams of threads
//! share one place, plus 2, and only a wait for the whole context is known to cover them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::cuda::functions::Effect;
use crate::cuda::{arguments::Subject, names};
use crate::{
    cuda::result::CUresult,
    kept::{KEPT, recipes},
};

/// Places.
const MOST: usize = 1024;
/// `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

/// One call on its way, in [`Place::given`].
const ON_ITS_WAY: u64 = 1 << 48;

/// A stream's place.
struct Place {
    /// Its name, 0 for a free place.
    stream: AtomicUsize,
    /// Its context, by name.
    context: AtomicUsize,
    /// How many pieces of work there were, and, from [`ON_ITS_WAY`] on, how many calls with one are in the driver.
    given: AtomicU64,
    /// Up to which piece of work all calls had come back.
    settled: AtomicU64,
    completed: AtomicU64,
    /// The error by which work was lost that nobody has heard of yet.
    lost: AtomicU32,
}

/// All of them.
struct Streams {
    places: [Place; MOST],
    /// Work was given to a stream without a place.
    is_incomplete: AtomicBool,
    /// Some place has lost work that nobody has heard of.
    is_owing: AtomicBool,
}

/// Those of this process, apart from all else that is kept: every launch takes part in them without a lock, and zeros
/// take no room in the library's file.
static STREAMS: Streams = Streams {
    places: [const { Place::free() }; MOST],
    is_incomplete: AtomicBool::new(false),
    is_owing: AtomicBool::new(false),
};

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
    (0..MOST).map(|step| (first + step) % MOST).find_map(|at| {
        match STREAMS.places[at].stream.load(Ordering::Acquire) {
            0 => Some(None),
            found => (found == name).then_some(Some(at)),
        }
    })?
}

/// The place of a stream, a new one if it has none; `None` if there is none left.
fn place(name: usize, current: usize) -> Option<usize> {
    let first = (name >> 4) % MOST;
    for at in (0..MOST).map(|step| (first + step) % MOST) {
        let place = &STREAMS.places[at];
        match place.stream.load(Ordering::Acquire) {
            found if found == name => return Some(at),
            0 => {
                let taken = place.stream.compare_exchange(0, name, Ordering::AcqRel, Ordering::Acquire);
                if taken.is_ok() {
                    let known = || recipes(|recipes| recipes.stream_context(names::current_of(name))).ok()?;
                    let of_recipe = || known().map(names::name_of);
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
pub(crate) struct Call {
    effect: Effect,
    event: usize,
    place: Option<usize>,
    /// Which piece of work it is, or up to which one it waits.
    number: u64,
    /// Of a copy to the host: up to which piece of work its success is one of the stream.
    waits_for: u64,
    /// The same for each place of the context.
    all: Vec<(usize, u64)>,
}

/// Notes that a call begins, in this context by name.
pub(crate) fn begin(effect: Effect, subject: &Subject, is_per_thread: bool, context: usize) -> Call {
    let mut call = Call { effect, event: subject.event, place: None, number: 0, waits_for: 0, all: Vec::new() };
    match effect {
        Effect::Silent | Effect::None | Effect::ReadsEvents => {}
        Effect::Submits | Effect::Launches | Effect::LaunchesGraph | Effect::CopiesToHost => {
            call.place = place(key(subject.stream.unwrap_or(0), is_per_thread, context), context);
            match call.place {
                Some(at) => (call.number, call.waits_for) = STREAMS.places[at].give(),
                None => STREAMS.is_incomplete.store(true, Ordering::Release),
            }
        }
        Effect::FinishesStream | Effect::RecordsEvent | Effect::EndsStream => {
            let name = key(subject.stream.unwrap_or(0), is_per_thread, context);
            call.place = find(name).filter(|_| name & PER_THREAD == 0 || effect != Effect::FinishesStream);
            call.number = call.place.map_or(0, |at| STREAMS.places[at].settled());
        }
        Effect::FinishesEvent => {
            if let Some((at, number)) = KEPT.work.with(|work| work.recorded.get(&subject.event).copied()) {
                (call.place, call.number) = (Some(at), number);
            }
        }
        Effect::FinishesContext => {
            call.all = used()
                .filter(|(_, place)| place.context.load(Ordering::Acquire) == context)
                .map(|(at, place)| (at, place.settled()))
                .collect();
        }
    }
    call
}

fn used() -> impl Iterator<Item = (usize, &'static Place)> {
    STREAMS.places.iter().enumerate().filter(|(_, place)| place.stream.load(Ordering::Acquire) != 0)
}

impl Call {
    /// The error by which work was lost that this call would have to report, if nobody has heard of it yet. It is
    /// heard of now.
    pub(crate) fn owed(&self) -> Option<CUresult> {
        if !STREAMS.is_owing.load(Ordering::Acquire) {
            return None;
        }
        let places = self.place.iter().copied().chain(self.all.iter().map(|(at, _)| *at));
        // A copy to the host waits for all streams that are ordered with the default one.
        let every = used().map(|(at, _)| at).filter(|_| self.effect == Effect::CopiesToHost);
        let codes: Vec<u32> = places.chain(every).map(|at| STREAMS.places[at].lost.swap(0, Ordering::AcqRel)).collect();
        codes.into_iter().find(|code| *code != 0).map(CUresult)
    }

    /// Notes how it ended.
    pub(crate) fn end(self, answer: CUresult) {
        let is_success = answer.is_success();
        for &(at, number) in self.all.iter().filter(|_| is_success) {
            STREAMS.places[at].completed.fetch_max(number, Ordering::AcqRel);
        }
        let Some(at) = self.place else { return };
        let place = &STREAMS.places[at];
        match self.effect {
            Effect::Submits | Effect::Launches | Effect::CopiesToHost => place.came_back(self.number, is_success),
            // What has failed may have been done in part, and must not be done again in silence.
            Effect::LaunchesGraph => place.came_back(self.number, true),
            Effect::Silent
            | Effect::None
            | Effect::FinishesStream
            | Effect::FinishesEvent
            | Effect::FinishesContext
            | Effect::RecordsEvent
            | Effect::ReadsEvents
            | Effect::EndsStream => {}
        }
        match self.effect {
            Effect::CopiesToHost if is_success => {
                place.completed.fetch_max(self.waits_for, Ordering::AcqRel);
            }
            Effect::FinishesStream | Effect::FinishesEvent if is_success => {
                place.completed.fetch_max(self.number, Ordering::AcqRel);
            }
            Effect::RecordsEvent if is_success => {
                KEPT.work.with(|work| work.recorded.insert(self.event, (at, self.number)));
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
            | Effect::LaunchesGraph
            | Effect::CopiesToHost
            | Effect::FinishesStream
            | Effect::FinishesEvent
            | Effect::FinishesContext
            | Effect::RecordsEvent
            | Effect::ReadsEvents
            | Effect::EndsStream => {}
        }
    }
}

impl Place {
    const fn free() -> Self {
        Self {
            stream: AtomicUsize::new(0),
            context: AtomicUsize::new(0),
            given: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            lost: AtomicU32::new(0),
        }
    }

    /// A call with another piece of work begins: its number, and up to which piece of work its success is one of the
    /// stream if it waits.
    fn give(&self) -> (u64, u64) {
        let before = self.given.fetch_add(ON_ITS_WAY + 1, Ordering::AcqRel);
        let number = before % ON_ITS_WAY + 1;
        (number, if before < ON_ITS_WAY { number } else { self.settled.load(Ordering::Acquire) })
    }

    /// It has come back. What the driver has refused is no work, unless more has come after it.
    fn came_back(&self, number: u64, is_given: bool) {
        let next = |now: u64| now - ON_ITS_WAY - u64::from(!is_given && now % ON_ITS_WAY == number);
        let before = self.given.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| Some(next(now)));
        let now = before.map_or(0, next);
        if now < ON_ITS_WAY {
            self.settled.fetch_max(now, Ordering::AcqRel);
        }
    }

    /// Up to which piece of work the stream has it for sure.
    fn settled(&self) -> u64 {
        let given = self.given.load(Ordering::Acquire);
        if given < ON_ITS_WAY { given } else { self.settled.load(Ordering::Acquire) }
    }

    fn submitted(&self) -> u64 {
        self.given.load(Ordering::Acquire) % ON_ITS_WAY
    }

    fn is_busy(&self) -> bool {
        self.completed.load(Ordering::Acquire) < self.submitted()
    }
}

/// How many streams have work that is not known to be done. Nobody gives any meanwhile: the gate is closed.
pub(crate) fn busy() -> usize {
    used().filter(|(_, place)| place.is_busy()).count() + usize::from(STREAMS.is_incomplete.load(Ordering::Acquire))
}

/// How many pieces of work are not known to be done; one more where some have no place. The gate is closed.
pub(crate) fn lost() -> u64 {
    let lost = used().map(|(_, place)| place.submitted().saturating_sub(place.completed.load(Ordering::Acquire)));
    lost.sum::<u64>() + u64::from(STREAMS.is_incomplete.load(Ordering::Acquire))
}

/// All work is gone, what was not done by this error. The gate is closed.
pub(crate) fn lose(error: CUresult) {
    for (_, place) in used() {
        if place.is_busy() {
            place.lost.store(error.0, Ordering::Release);
            STREAMS.is_owing.store(true, Ordering::Release);
        }
        place.completed.store(place.submitted(), Ordering::Release);
    }
    // Streams without a place have told the threads that are there.
    STREAMS.is_incomplete.store(false, Ordering::Release);
    KEPT.work.with(|work| work.recorded.clear());
}

#[cfg(test)]
mod tests {
    use super::{ON_ITS_WAY, Place};
    use std::sync::atomic::Ordering;

    #[test]
    fn a_wait_says_nothing_of_work_whose_call_was_on_its_way() {
        let place = Place::free();
        assert_eq!(place.give(), (1, 1));
        place.came_back(1, true);
        // Another thread has a number and is not in the driver yet.
        assert_eq!(place.give(), (2, 2));
        assert_eq!(place.give(), (3, 1), "a copy that waits now does not wait for the second");
        place.came_back(3, true);
        assert_eq!((place.settled(), place.submitted()), (1, 3));
        place.came_back(2, true);
        assert_eq!((place.settled(), place.submitted()), (3, 3));
        place.completed.store(3, Ordering::Relaxed);
        assert!(!place.is_busy());
    }

    #[test]
    fn what_the_driver_refuses_is_no_work_unless_more_came_after_it() {
        let place = Place::free();
        place.give();
        place.came_back(1, false);
        assert_eq!((place.settled(), place.submitted(), place.is_busy()), (0, 0, false));
        place.give();
        place.give();
        place.came_back(1, false);
        place.came_back(2, true);
        assert_eq!((place.settled(), place.submitted(), place.is_busy()), (2, 2, true));
        assert!(place.given.load(Ordering::Relaxed) < ON_ITS_WAY);
    }
}
