//! How much of each stream's work is known to be done.
//!
//! Every stream has a place with two numbers ([`places`]): how many pieces of work it was given, and up to which one
//! it is known to have come, by a call of the program that waited for it or asked. A stream with a difference may have
//! lost work when its context dies.
//!
//! A piece of work has its number before its call goes into the driver, and another thread's call may come back in
//! between. So a wait says something only about pieces whose calls had come back when it began ([`counts`](super::counts)).
//!
//! | a success of | says that this is done |
//! |---|---|
//! | a wait for a stream, or a question | that stream's work; the default stream of a thread is that thread's alone |
//! | a wait for an event, or a question | what the event is known to be behind ([`events`]) |
//! | a wait for a context | the work of all streams that are known to be of that context |
//! | a copy of at least one byte to the host, without a stream | the default stream's work |
//! | anything else | nothing |
//!
//! What of it was lost by a recovery is *in doubt* ([`lost`](mod@lost)).

mod healthy;
mod lost;
mod moving;
mod naming;
mod sums;

pub(crate) use super::events::last_unheard;
pub(crate) use healthy::{Quick, begin_healthy, begin_quickly, may_be_quick};
pub(crate) use lost::lose;
pub(crate) use moving::Pulse;
pub(crate) use naming::{captured, named};
pub(crate) use sums::{aside, busy, busy_streams, finished_context, given, lost};

use super::counts::{Given, Mark};
use super::events::{Behind, Events, Known, Passed};
use super::hosts;
use super::places::{self, LEGACY, Place, SHARED};
use super::recorded::{self, Look, Seen};
use crate::cuda::arguments::Subject;
use crate::cuda::functions::Effect;
use crate::{
    cuda::result::CUresult,
    kept::{objects::has_capture, work::WORK},
};
use lost::is_doubt;
use naming::{PER_THREAD_STREAM, asked, context_of, key};

/// A record of an event: one of those that are noted under the lock, or one that a thread has noted for itself.
#[derive(Clone, Copy, Debug)]
enum Record {
    Numbered(u64),
    Seen(Seen),
}

/// What is known of events under the lock.
fn events<T>(work: impl FnOnce(&mut Events) -> T) -> T {
    WORK.with(|all| {
        let result = work(&mut all.events);
        recorded::elsewhere(all.events.count());
        result
    })
}

/// The same for a call after which nothing counts any more that threads have noted of this event for themselves.
fn events_anew<T>(event: usize, work: impl FnOnce(&mut Events) -> T) -> T {
    events(|events| {
        if recorded::end(event) {
            events.is_met(event);
        }
        work(events)
    })
}

/// Nothing is known of an event any more; what was.
fn taken(event: usize) -> Option<Known> {
    let look = recorded::look(event);
    events(|events| {
        recorded::end_for_good(event);
        if let Look::One(seen) = look {
            events.found(event, seen.behind);
        }
        events.take(event)
    })
}

/// What an event is behind, and by which record.
fn behind(event: usize) -> (Behind, Record) {
    let unknown = (Behind::Unknown, Record::Numbered(0));
    match recorded::look(event) {
        Look::One(_) if recorded::is_elsewhere() && events(|events| events.has(event)) => unknown,
        Look::One(seen) => (seen.behind, Record::Seen(seen)),
        Look::Several => unknown,
        Look::Nobody => {
            let (behind, record) = events(|events| events.behind(event));
            (behind, Record::Numbered(record))
        }
    }
}

/// A call under way.
#[derive(Debug)]
pub(crate) struct Call {
    effect: Effect,
    /// The context that it is about, by name, and the stream, if it is about one.
    context: usize,
    name: usize,
    event: usize,
    /// The other one, if it names two.
    earlier: usize,
    /// Which record of the event it looks at.
    record: Record,
    place: Option<usize>,
    /// Which piece of work it is.
    given: Given,
    /// Up to which pieces of work it waits, or is recorded.
    mark: Mark,
    /// The same for each place of the context.
    all: Vec<(usize, Mark)>,
    /// Of the event that it ends, what was known.
    taken: Option<Box<Known>>,
    /// It records an event on a thread that has to be told of lost work, and tells nothing.
    is_unheard: bool,
}

/// Notes that a call begins, of the thread with this seat, in this context by name.
pub(crate) fn begin(effect: Effect, subject: &Subject, is_per_thread: bool, context: usize, seat: u32) -> Call {
    let event = subject.event;
    let (given, mark, all) = (Given::default(), Mark::default(), Vec::new());
    let record = Record::Numbered(0);
    let mut call = Call {
        effect,
        context: 0,
        name: 0,
        event,
        earlier: subject.earlier,
        record,
        place: None,
        given,
        mark,
        all,
        taken: None,
        is_unheard: false,
    };
    if effect == Effect::None {
        return call;
    }
    let context = if context == 0 { asked() } else { context };
    let name = key(subject.stream.unwrap_or(0), is_per_thread, context);
    (call.context, call.name) = (context, name);
    match effect {
        Effect::None | Effect::ReadsEvents | Effect::WaitsForEvent => {}
        Effect::Submits | Effect::Launches | Effect::SubmitsMany | Effect::CopiesToHost => {
            let at = places::take(name, || context_of(name, context));
            call.place = Some(at);
            call.given = places::at(at).counts().give(seat);
            if effect == Effect::CopiesToHost && subject.length > 0 {
                call.mark = places::at(at).counts().settled_with(call.given);
            }
            // A launch records them.
            for event in call.events() {
                events_anew(event, |events| events.elsewhere(event, false));
            }
        }
        Effect::SubmitsElsewhere => {
            places::share(0);
            call.place = Some(SHARED);
            call.given = places::at(SHARED).counts().give(seat);
        }
        Effect::FinishesStream => {
            call.place = places::find(name);
            call.mark = call.place.map_or(Mark::default(), |at| places::at(at).counts().settled());
        }
        Effect::EndsStream => call.place = places::end(name),
        Effect::RecordsEvent | Effect::RecordsContext => {
            if effect == Effect::RecordsContext {
                call.context = subject.context.filter(|of| *of != 0).unwrap_or(context);
            } else {
                call.place = places::find(name);
                call.mark = call.place.map_or(Mark::default(), |at| places::at(at).counts().settled());
            }
            events_anew(event, |events| match has_capture() {
                true => events.elsewhere(event, true),
                false => events.begin(event),
            });
        }
        Effect::RecordsEventElsewhere if event != 0 => {
            events_anew(event, |events| events.elsewhere(event, true));
        }
        Effect::RecordsEventElsewhere => {}
        Effect::FinishesEvent => {
            let (behind, record) = behind(event);
            call.record = record;
            if let Behind::Work(at, mark) = behind {
                (call.place, call.mark) = (Some(at), mark);
            }
        }
        Effect::EndsEvent => call.taken = taken(event).map(Box::new),
        Effect::FinishesContext => {
            let context = subject.context.unwrap_or(context);
            call.context = context;
            call.all = places::of(context).map(|(at, place)| (at, place.counts().settled())).collect();
        }
    }
    if effect.gives_work() && is_doubt() {
        call.go_on_with_doubt();
    }
    call
}

/// A call that gives work comes from inside another one, where nobody notes what it is about.
pub(crate) fn unseen(effect: Effect) {
    if effect.gives_work() {
        // Its lane at the place is not this call's: that one may be on its way there already.
        begin(Effect::SubmitsElsewhere, &Subject::default(), false, LEGACY, 0).end(CUresult::CUDA_SUCCESS, false);
    }
}

impl Call {
    fn place(&self) -> Option<&'static Place> {
        self.place.map(places::at)
    }

    /// Notes how it ended, on a thread that has been told of lost work or has not.
    pub(crate) fn end(self, answer: CUresult, is_told: bool) {
        let is_success = answer.is_success();
        if is_success && is_doubt() {
            if self.effect == Effect::WaitsForEvent {
                self.wait_for_doubt();
            } else if is_told {
                self.take_up();
            }
        }
        if is_success && self.effect == Effect::Launches && self.event != 0 && is_doubt() {
            let doubt = self.doubt();
            events(|events| self.events().for_each(|event| events.launched(event, doubt)));
        }
        for (at, mark) in self.all.iter().filter(|_| is_success) {
            places::at(*at).counts().complete(mark);
        }
        match self.effect {
            Effect::Submits | Effect::Launches | Effect::CopiesToHost => {
                let Some(place) = self.place() else { return };
                place.counts().came_back(self.given, is_success);
                if is_success && self.effect == Effect::CopiesToHost && self.place != Some(SHARED) {
                    place.counts().complete(&self.mark);
                }
            }
            // What has failed may have been done in part, and must not be done again in silence.
            Effect::SubmitsMany | Effect::SubmitsElsewhere => {
                self.place().into_iter().for_each(|place| place.counts().came_back(self.given, true));
            }
            Effect::FinishesStream if is_success => {
                self.place().into_iter().for_each(|place| place.counts().complete(&self.mark));
            }
            Effect::FinishesEvent if is_success && self.place.is_some() => {
                let is_still = match self.record {
                    Record::Numbered(record) => events(|events| events.is_still(self.event, record)),
                    // A record that the lock was taken for may have come meanwhile.
                    Record::Seen(seen) => {
                        let is_elsewhere = || recorded::is_elsewhere() && events(|events| events.has(self.event));
                        seen.is_still(self.event) && !is_elsewhere()
                    }
                };
                if is_still {
                    self.place().into_iter().for_each(|place| place.counts().complete(&self.mark));
                }
            }
            Effect::RecordsEvent | Effect::RecordsContext => {
                let behind = match self.place {
                    // What has failed has left it as it was, or not: there nobody knows.
                    _ if !is_success || has_capture() || self.effect == Effect::RecordsContext => Behind::Unknown,
                    Some(at) => Behind::Work(at, self.mark),
                    None if !places::at(SHARED).counts().is_any() => Behind::Nothing,
                    // Its work may have no place of its own.
                    None => Behind::Unknown,
                };
                let doubt = if is_doubt() { self.doubt() } else { 0 };
                let passed = Passed { doubt, is_unheard: self.is_unheard };
                events(|events| events.end(self.event, behind, is_success.then_some(passed)));
            }
            Effect::EndsEvent if !is_success => {
                if let Some(known) = self.taken {
                    events(|events| events.put_back(self.event, *known));
                }
            }
            Effect::EndsStream => match self.place {
                Some(at) if is_success => places::ended(at),
                Some(at) => places::put_back(at),
                None => {}
            },
            Effect::None
            | Effect::FinishesStream
            | Effect::FinishesEvent
            | Effect::FinishesContext
            | Effect::RecordsEventElsewhere
            | Effect::EndsEvent
            | Effect::WaitsForEvent
            | Effect::ReadsEvents => {}
        }
    }
}

/// A stream was made: whatever was known by its name was of another one, which ended in a way that nobody saw.
pub(crate) fn made_stream(name: usize) {
    places::end(name).into_iter().for_each(places::ended);
}

/// An event was made: the same.
pub(crate) fn made_event(name: usize) {
    taken(name);
}

/// A context, by name, has ended, and its work with it, and these of its objects, by name.
pub(crate) fn ended_context(name: usize, objects: &[usize]) {
    places::end_context(name);
    for object in objects {
        taken(*object);
    }
}

/// A stream, by name, is being given a function of the host.
pub(crate) fn gives_function(stream: usize) {
    if stream <= PER_THREAD_STREAM {
        return;
    }
    places::find(stream).into_iter().for_each(hosts::given);
}

/// This call has brought the error that lost work has: if it was for the state of a stream, that one has told of lost
/// functions.
pub(crate) fn has_told(effect: Effect, subject: &Subject, is_per_thread: bool, context: usize) {
    if effect == Effect::FinishesStream
        && let Some(at) = places::find(key(subject.stream.unwrap_or(0), is_per_thread, context))
    {
        hosts::are_told(at);
    }
}
