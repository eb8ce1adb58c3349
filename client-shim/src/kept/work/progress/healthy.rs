//! The short way of a call while nothing was ever lost: whoever gives a stream work, waits for it, or
//! records an event there, needs its place alone.

use super::{Call, LEGACY_STREAM, PER_THREAD_STREAM, begin, events};
use crate::{
    cuda::{arguments::Subject, functions::Effect, result::CUresult},
    kept::{
        objects::has_capture,
        work::{
            counts::{Given, Mark},
            events::Behind,
            places::{self, LEGACY, Place},
            recorded::{self, Look, Recording, Seen},
        },
    },
};

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

/// The same as [`begin`] for a process in which nothing is in doubt: most calls are noted in a few instructions. The
/// first two arguments are constants.
#[inline(always)]
pub(crate) fn begin_healthy(
    effect: Effect,
    is_per_thread: bool,
    subject: &Subject,
    context: usize,
    seat: u32,
) -> Healthy {
    let place = || {
        let name = match subject.stream.unwrap_or(0) {
            0 | LEGACY_STREAM if is_per_thread || context == 0 => return None,
            0 | LEGACY_STREAM => context | LEGACY,
            PER_THREAD_STREAM => return None,
            name => name,
        };
        places::find_at_once(name)
    };
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
    #[inline(always)]
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
