//! The short way of a call while nothing was ever lost: whoever gives a stream work, or waits for it, needs its place alone.

use super::{Call, LEGACY_STREAM, PER_THREAD_STREAM, begin};
use crate::{
    cuda::{arguments::Subject, functions::Effect, result::CUresult},
    kept::work::{
        counts::{Given, Mark},
        places::{self, LEGACY, Place},
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
        Effect::Submits
        | Effect::Launches
        | Effect::SubmitsMany
        | Effect::SubmitsElsewhere
        | Effect::CopiesToHost
        | Effect::FinishesEvent
        | Effect::FinishesContext
        | Effect::RecordsEvent
        | Effect::RecordsEventElsewhere
        | Effect::EndsEvent
        | Effect::EndsStream => {}
    }
    Healthy(Way::Other(begin(effect, subject, is_per_thread, context, seat)))
}

impl Healthy {
    /// Notes how it ended.
    #[inline(always)]
    pub(crate) fn end(self, answer: CUresult) {
        match self.0 {
            Way::Plain => {}
            Way::Gives(place, given) => place.counts().came_back(given, answer.is_success()),
            Way::Waits(place, mark) if answer.is_success() => place.counts().complete(&mark),
            Way::Waits(..) => {}
            Way::Other(call) => call.end(answer, false),
        }
    }
}
