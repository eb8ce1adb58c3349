//! What a call has to do with events that processes share ([`shared`](crate::kept::shared)): what is done in the driver's
//! place, what is done besides, and what is refused.
//!
//! | call | on an event of another process | on one that another process may wait for |
//! |---|---|---|
//! | `cuStreamWaitEvent` | the stream waits for the page; counts as work of the stream | the driver's |
//! | `cuEventQuery`, `cuEventSynchronize` | a look at the page, outside the gate: a recovery waits for nobody who waits | the driver's |
//! | `cuEventRecord` | refused | the driver's, and another record in the page |
//! | `cuEventDestroy`, `cuEventElapsedTime` | the driver's, of an event without a time | the driver's |
//! | in a capture | refused with the driver's error for a wait for what is not captured (905) | a record is refused (900) |
//! | anything else | refused | refused where it records: by a graph, by a launch, for a context |
//!
//! Refused is `CUDA_ERROR_NOT_SUPPORTED` where nothing else is said, and a line.

use std::{thread, time::Duration};

use super::told;
use crate::{
    cuda::{
        arguments::Subject,
        functions::{Effect, Function},
        gate, library, names,
        result::CUresult,
        threads::Here,
        types::CUstream,
    },
    kept::{
        self,
        shared::{self, Kind},
        work::progress,
    },
    process::log,
};

/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`, `CUDA_ERROR_STREAM_CAPTURE_ISOLATION`.
const NOT_IN_A_CAPTURE: CUresult = CUresult(900);
const NOT_CAPTURED: CUresult = CUresult(905);
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;
/// Between two looks whether other processes know more.
const MOMENT: Duration = Duration::from_micros(100);

/// What a call of this kind on shared events does.
fn kind_of(subject: &Subject) -> Option<Kind> {
    let of_node = || shared::kind(subject.awaited).filter(|kind| matches!(kind, Kind::Imported(_)));
    shared::kind(subject.event).or_else(|| shared::kind(subject.earlier)).or_else(of_node)
}

/// What a call does to work.
pub(super) fn effect(called: &Function, subject: &Subject) -> Effect {
    let effect = called.effect();
    let waits = effect == Effect::WaitsForEvent && shared::is_used();
    // Until it is known to have come, what the stream has is not done: a copy that dies takes the wait with it.
    if waits && matches!(shared::kind(subject.event), Some(Kind::Imported(_))) { Effect::Submits } else { effect }
}

fn refused(called: &Function, answer: CUresult) -> CUresult {
    log::complain(format_args!("{} is not for events that processes share: error {}", called.text(), answer.0));
    answer
}

/// Whether the stream that a call names is being captured.
fn is_captured(called: &Function, subject: &Subject) -> bool {
    let mut status = 0;
    kept::is_capturing().unwrap_or(true)
        && driver!(stream::cuStreamIsCapturing(stream_of(called, subject), &raw mut status)).is_success()
        && status != 0
}

/// The stream of the living copy that a call names.
fn stream_of(called: &Function, subject: &Subject) -> CUstream {
    match subject.stream.unwrap_or(0) {
        0 if called.is_per_thread() => CUstream(PER_THREAD),
        name => CUstream(names::current_of(name)),
    }
}

/// The answer to a call that does not go to the driver.
pub(super) fn instead(
    here: &Here,
    called: &'static Function,
    subject: &Subject,
    patience: Duration,
) -> Option<CUresult> {
    if !shared::may_be() {
        return None;
    }
    let not_supported = || Some(refused(called, CUresult::CUDA_ERROR_NOT_SUPPORTED));
    match (kind_of(subject)?, called.effect()) {
        (Kind::Imported(event), Effect::FinishesEvent) => {
            if let Some(error) = owed(here, called, patience) {
                return Some(error);
            }
            let waits = called.text() == "cuEventSynchronize";
            Some(settled(called.effect(), shared::ask(&event, waits)))
        }
        (Kind::Imported(_), Effect::WaitsForEvent) if subject.stream.is_some() => None,
        (_, Effect::EndsEvent | Effect::ReadsEvents) => None,
        (Kind::Imported(_), _)
        | (Kind::Exported(_) | Kind::Made, Effect::RecordsContext | Effect::RecordsEventElsewhere) => not_supported(),
        (Kind::Exported(_) | Kind::Made, Effect::Launches | Effect::Submits | Effect::SubmitsMany) => not_supported(),
        (Kind::Exported(_) | Kind::Made, _) => None,
    }
}

/// Whether a call may record an event where no page hears of it. It is looked at even where nothing was given to other
/// processes yet: once it is recorded by a graph, nobody is asked any more.
#[inline(always)]
pub(super) fn may_record_elsewhere(effect: Effect, subject: &Subject) -> bool {
    let records = matches!(effect, Effect::Launches | Effect::Submits | Effect::SubmitsMany) && subject.event != 0;
    (records || matches!(effect, Effect::RecordsContext | Effect::RecordsEventElsewhere)) && shared::may_be()
}

/// What this thread has to report before it asks for an event.
fn owed(here: &Here, called: &'static Function, patience: Duration) -> Option<CUresult> {
    let _pass = gate::enter(&here.passer, patience)?;
    let living = library::generation();
    here.arrive(living);
    let mut given = progress::begin(Effect::None, &Subject::default(), false, here.current(), here.passer.seat());
    let of_recovery = || if living > 0 { told::owed(here, called, 0, &mut given) } else { None };
    shared::owed(called.effect()).or_else(of_recovery)
}

/// One call of the program's. An error is to be told in the place of the driver's answer.
pub(super) fn call(
    called: &Function,
    subject: &Subject,
    call: &mut dyn FnMut() -> CUresult,
) -> Result<CUresult, CUresult> {
    if !shared::is_used() || subject.event == 0 {
        return Ok(call());
    }
    match (shared::kind(subject.event), called.effect()) {
        (Some(Kind::Imported(event)), Effect::WaitsForEvent) => {
            if is_captured(called, subject) {
                return Err(refused(called, NOT_CAPTURED));
            }
            shared::wait(&event, stream_of(called, subject), called.is_per_thread())
        }
        (Some(Kind::Exported(event)), Effect::RecordsEvent) => {
            if is_captured(called, subject) {
                return Err(refused(called, NOT_IN_A_CAPTURE));
            }
            let answer = call();
            let record = || shared::record(&event, stream_of(called, subject), called.is_per_thread());
            Ok(if answer.is_success() { record() } else { answer })
        }
        (Some(_), Effect::EndsEvent) => {
            let answer = call();
            if answer.is_success() {
                shared::ended(subject.event);
            }
            Ok(answer)
        }
        (Some(_) | None, _) => Ok(call()),
    }
}

/// What the program is told of a call with this answer, which is no error of the driver's. The thread is outside the gate.
pub(super) fn settled(effect: Effect, answer: CUresult) -> CUresult {
    while shared::is_to_be_awaited(effect, answer) {
        thread::park_timeout(MOMENT);
    }
    shared::judged(effect, answer)
}
