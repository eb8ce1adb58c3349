//! Who is told that work was lost.
//!
//! If all work of all streams is known to be done, and no module has begun anew, nothing was lost, and the call that
//! found the context dead is made again. Otherwise
//!
//! - each thread that had begun by then gets the error once, whether it had used CUDA before or not;
//! - a thread that begins later gets it once, if it takes what lost work was to give: by a stream or an event that is
//!   in doubt ([`progress`](crate::kept::work::progress));
//! - so does one that was begun by a thread which had to be told and was not yet: what that one takes for good it may
//!   have handed over ([`descent`](crate::cuda::descent)). The threads of which nobody knows who has begun them are
//!   one family: they come by `clone`, or by libc itself;
//! - a stream that has lost functions of the host tells once more, whoever asks for its state
//!   ([`hosts`](mod@crate::kept::work));
//! - all by the next call that tells ([`Effect::tells`]). What asks, makes or ends something succeeds, since programs
//!   ignore its errors, and the thread still has to be told. So does the record of an event, since programs record where
//!   they free memory, in destructors that end them at an error; then whoever waits for the event is told, though that
//!   thread may have been told of the recovery before ([`progress`](crate::kept::work::progress)).

use std::{
    collections::BTreeSet,
    ptr,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use crate::{
    cuda::{
        descent::Descent,
        functions::{Effect, Function, stream::cuStreamQuery},
        gate, library,
        result::CUresult,
        threads::{self, Here},
    },
    kept::{account, graphs::graphs, shared, work::progress},
    process::birth,
};

/// The last recovery that lost work, 0 for none, and its error. Each call after a recovery reads them.
static LAST: AtomicU64 = AtomicU64::new(0);
static ERROR: AtomicU32 = AtomicU32::new(0);
/// When that was, in ticks of the kernel.
static WHEN: AtomicU64 = AtomicU64::new(0);
/// The last one of which a thread was told that began later, nobody knows by whom.
static STRANGERS: AtomicU64 = AtomicU64::new(0);

/// Those that ask for a stream's state and don't wait.
static QUESTIONS: [&Function; 2] = [&cuStreamQuery::FUNCTION, &cuStreamQuery::per_thread::FUNCTION];

/// What becomes of a call that has found the context dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is made again.
    Again,
    /// It has this answer.
    Answer(CUresult),
}

/// The recovery of this number has lost work, by this error.
pub(super) fn lost(number: u64, error: CUresult) {
    ERROR.store(error.0, Ordering::Release);
    WHEN.store(birth::now(), Ordering::Release);
    LAST.store(number, Ordering::Release);
}

/// What a call that went into copy `seen` has for an answer, now that there is another one.
pub(super) fn verdict(answer: CUresult, effect: Effect, seen: u64, is_again: bool) -> Verdict {
    let is_told = LAST.load(Ordering::Acquire) > seen || is_again || effect == Effect::ReadsEvents;
    if is_told && effect.tells() && !matches!(effect, Effect::RecordsEvent | Effect::RecordsContext) {
        threads::here(|here| here.tell(library::generation(), progress::last_unheard()));
        Verdict::Answer(answer)
    } else if is_again {
        Verdict::Answer(answer)
    } else {
        Verdict::Again
    }
}

/// Whether an executable graph may wait for any of these events, by handle. One that cannot be described may wait for anything.
fn a_graph_may_wait_for(events: &BTreeSet<usize>) -> bool {
    !account::living().is_empty() || graphs(|graphs| graphs.do_any_name(events)).unwrap_or(true)
}

/// Whether this thread has been told of everything that was lost.
pub(super) fn knows(here: &Here) -> bool {
    here.told() >= LAST.load(Ordering::Acquire)
}

/// What the thread has that this one begins now. Nothing where no work was lost, nor in a forked child, which may not
/// allocate.
pub(crate) fn of_child() -> Option<Descent> {
    let last = LAST.load(Ordering::Acquire);
    (last > 0 && gate::is_armed()).then(|| threads::here(|here| here.begins_another(last)))
}

/// The error that this call has to report, because work was lost and the program has not heard of it from this thread.
/// It has now. None where it records an event, this one by name, which is noted as unheard.
pub(super) fn owed(
    here: &Here,
    called: &'static Function,
    event: usize,
    given: &mut progress::Call,
) -> Option<CUresult> {
    let last = LAST.load(Ordering::Acquire);
    if !called.effect().tells() {
        return None;
    }
    let is_owed_by_its_stream = given.is_owed_by_its_stream() && QUESTIONS.into_iter().any(|of| ptr::eq(of, called));
    let is_owed_by_what_it_is_about =
        is_owed_by_its_stream || given.is_behind_unheard(here.heard(), a_graph_may_wait_for);
    let is_untold = here.told() < last;
    if !is_untold && !is_owed_by_what_it_is_about {
        return None;
    }
    let descent = here.descent();
    let was_there = here.born() <= WHEN.load(Ordering::Acquire);
    let owes = descent.map_or_else(|| was_there || STRANGERS.load(Ordering::Acquire) < last, |of| of.owes(last));
    let has_to_be_told = is_untold && (owes || given.is_in_doubt(here.born()));
    // Another process that waits for the event would not be told.
    if has_to_be_told && given.records_event() && shared::kind(event).is_none() {
        given.is_unheard();
        return None;
    }
    if !has_to_be_told && !is_owed_by_what_it_is_about {
        return None;
    }
    here.tell(last, progress::last_unheard());
    match descent {
        _ if !is_untold => {}
        Some(descent) => descent.was_told(last),
        None if was_there => {}
        None => drop(STRANGERS.fetch_max(last, Ordering::AcqRel)),
    }
    given.tells();
    Some(CUresult(ERROR.load(Ordering::Acquire)))
}
