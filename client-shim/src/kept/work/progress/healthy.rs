//! The short ways of a call while nothing was ever lost: whoever gives a stream work, waits for it, or
//! records an event there, needs its place alone.
//!
//! The shortest one ([`Quick`]) is for a thread that has been here with the same stream or event before. It is compiled
//! into each of the driver's functions, so what it does is little: any other call begins by [`begin_healthy`].

use super::{Call, PER_THREAD_STREAM, begin, events};
use crate::{
    cuda::{arguments::Subject, functions::Effect, result::CUresult},
    kept::{
        objects::has_capture,
        work::{
            counts::{Given, Mark, Piece},
            events::Behind,
            places::{self, LEGACY, Place},
            recorded::{self, Asked, Look, Recording, Seen},
        },
    },
};

/// A call under way that needs the fewest notes.
#[derive(Debug)]
pub(crate) struct Quick(Shortest);

#[derive(Debug)]
enum Shortest {
    /// None.
    Plain,
    /// It gives a piece of work.
    Gives(Piece),
    /// It waits here, for so much of the work of one thread alone, or of many.
    Waits(&'static Place, u64),
    WaitsForMany(&'static Place, Mark),
    /// It records an event behind what was given in a stream, unless one is captured.
    Records(Recording),
    /// It asks for an event that its thread has recorded.
    Asks(Asked),
}

/// Whether a call with this effect may be a [`Quick`] one.
pub(crate) const fn may_be_quick(effect: Effect) -> bool {
    matches!(
        effect,
        Effect::None
            | Effect::ReadsEvents
            | Effect::WaitsForEvent
            | Effect::Submits
            | Effect::Launches
            | Effect::FinishesStream
            | Effect::RecordsEvent
            | Effect::FinishesEvent
    )
}

/// The place of the stream that a call is about, if it is found at once.
#[inline(always)]
fn place(is_per_thread: bool, subject: &Subject, context: usize) -> Option<&'static Place> {
    let stream = subject.stream.unwrap_or(0);
    let name = if stream > PER_THREAD_STREAM {
        stream
    } else if stream == PER_THREAD_STREAM || is_per_thread || context == 0 {
        return None;
    } else {
        context | LEGACY
    };
    places::find_at_once(name)
}

/// Begins a call by the shortest way, if it can go there; nothing is noted otherwise. The first two arguments are
/// constants, from which the compiler makes the few instructions that each function needs.
#[inline(always)]
pub(crate) fn begin_quickly(
    effect: Effect,
    is_per_thread: bool,
    subject: &Subject,
    context: usize,
    seat: u32,
) -> Option<Quick> {
    let way = match effect {
        Effect::None | Effect::ReadsEvents | Effect::WaitsForEvent => Shortest::Plain,
        Effect::Submits | Effect::Launches if subject.event == 0 => {
            Shortest::Gives(place(is_per_thread, subject, context)?.counts().give_in_own(seat)?)
        }
        Effect::FinishesStream => {
            let place = place(is_per_thread, subject, context)?;
            match place.counts().settled_by_one() {
                Some(number) => Shortest::Waits(place, number),
                None => Shortest::WaitsForMany(place, place.counts().settled()),
            }
        }
        Effect::RecordsEvent if !has_capture() => {
            let place = place(is_per_thread, subject, context)?;
            let recording = recorded::begin(subject.event, seat)?;
            recording.note(place);
            Shortest::Records(recording)
        }
        Effect::FinishesEvent => Shortest::Asks(recorded::ask(subject.event, seat)?),
        Effect::Submits
        | Effect::Launches
        | Effect::RecordsEvent
        | Effect::SubmitsMany
        | Effect::SubmitsElsewhere
        | Effect::CopiesToHost
        | Effect::FinishesContext
        | Effect::RecordsContext
        | Effect::RecordsEventElsewhere
        | Effect::EndsEvent
        | Effect::EndsStream => return None,
    };
    Some(Quick(way))
}

impl Quick {
    /// Notes how it ended.
    #[inline(always)]
    pub(crate) fn end(self, answer: CUresult) {
        match self.0 {
            Shortest::Gives(piece) => piece.came_back(answer.is_success()),
            Shortest::Waits(place, number) if answer.is_success() => place.counts().complete_by_one(number),
            Shortest::WaitsForMany(place, mark) if answer.is_success() => place.counts().complete(&mark),
            Shortest::Records(recording) => recording.end_noted(answer.is_success() && !has_capture()),
            Shortest::Asks(asked) if answer.is_success() => asked.has_come(),
            Shortest::Plain | Shortest::Waits(..) | Shortest::WaitsForMany(..) | Shortest::Asks(_) => {}
        }
    }
}

/// A call under way, in a process without any doubt.
#[derive(Debug)]
pub(crate) struct Healthy(Way);

#[derive(Debug)]
enum Way {
    /// There is nothing to be noted of it.
    Plain,
    /// It gives a piece of work here.
    Gives(&'static Place, Given),
    /// It waits here.
    Waits(&'static Place, Mark),
    /// It does both.
    Copies(&'static Place, Given, Mark),
    /// It records an event behind so much of what was given here.
    Records(&'static Place, Mark, Recording),
    /// It asks for an event that says this.
    Asks(usize, Seen),
    /// Any other.
    Other(Call),
}

/// The same as [`begin`] for a process in which nothing is in doubt: most calls are noted without a lock.
pub(crate) fn begin_healthy(
    effect: Effect,
    is_per_thread: bool,
    subject: &Subject,
    context: usize,
    seat: u32,
) -> Healthy {
    let place = || place(is_per_thread, subject, context);
    match effect {
        Effect::None | Effect::ReadsEvents | Effect::WaitsForEvent => return Healthy(Way::Plain),
        Effect::Submits | Effect::Launches if subject.event == 0 => {
            if let Some(place) = place() {
                return Healthy(Way::Gives(place, place.counts().give(seat)));
            }
        }
        Effect::FinishesStream => {
            if let Some(place) = place() {
                return Healthy(Way::Waits(place, place.counts().settled()));
            }
        }
        Effect::CopiesToHost if subject.event == 0 && subject.length > 0 => {
            if let Some(place) = place() {
                let given = place.counts().give(seat);
                return Healthy(Way::Copies(place, given, place.counts().settled_with(given)));
            }
        }
        Effect::RecordsEvent if !has_capture() => {
            if let Some(place) = place() {
                let mark = place.counts().settled();
                let known = recorded::begin(subject.event, seat);
                if let Some(recording) = known.or_else(|| begin_anew(subject.event, seat)) {
                    return Healthy(Way::Records(place, mark, recording));
                }
            }
        }
        Effect::FinishesEvent => match recorded::look(subject.event) {
            Look::One(seen) if !recorded::is_elsewhere() => return Healthy(Way::Asks(subject.event, seen)),
            Look::Several => return Healthy(Way::Plain),
            Look::One(_) | Look::Nobody => {}
        },
        Effect::Submits
        | Effect::Launches
        | Effect::SubmitsMany
        | Effect::SubmitsElsewhere
        | Effect::CopiesToHost
        | Effect::FinishesContext
        | Effect::RecordsEvent
        | Effect::RecordsContext
        | Effect::RecordsEventElsewhere
        | Effect::EndsEvent
        | Effect::EndsStream => {}
    }
    Healthy(Way::Other(begin(effect, subject, is_per_thread, context, seat)))
}

#[cold]
fn begin_anew(event: usize, seat: u32) -> Option<Recording> {
    events(|events| recorded::begin_anew(events, event, seat))
}

impl Healthy {
    /// Notes how it ended.
    pub(crate) fn end(self, answer: CUresult) {
        match self.0 {
            Way::Plain => {}
            Way::Gives(place, given) => place.counts().came_back(given, answer.is_success()),
            Way::Copies(place, given, mark) => {
                place.counts().came_back(given, answer.is_success());
                if answer.is_success() {
                    place.counts().complete(&mark);
                }
            }
            Way::Records(place, mark, recording) => recording.end(match answer.is_success() && !has_capture() {
                true => Behind::Work(places::number(place), mark),
                // What has failed has left it as it was, or not.
                false => Behind::Unknown,
            }),
            Way::Asks(event, seen) => {
                if let Behind::Work(at, mark) = seen.behind
                    && answer.is_success()
                    && seen.is_still(event)
                    && !recorded::is_elsewhere()
                {
                    places::at(at).counts().complete(&mark);
                }
            }
            Way::Waits(place, mark) if answer.is_success() => place.counts().complete(&mark),
            Way::Waits(..) => {}
            Way::Other(call) => call.end(answer, false),
        }
    }
}
