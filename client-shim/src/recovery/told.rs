//! Who is told that work was lost.
//!
//! If all work of all streams is known to be done, nothing was lost, and the call that found the context dead is made
//! again. Otherwise each thread that was there gets the error once, and so does the first use of a stream with lost work
//! by a thread that was not.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{
    cuda::{
        functions::Effect,
        library,
        result::CUresult,
        threads::{self, Here},
    },
    kept::work::progress,
};

/// The last recovery that lost work, 0 for none, and its error. Each call after a recovery reads them.
static LAST: AtomicU64 = AtomicU64::new(0);
static ERROR: AtomicU32 = AtomicU32::new(0);

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
    LAST.store(number, Ordering::Release);
}

/// What a call that went into copy `seen` has for an answer, now that there is another one.
pub(super) fn verdict(answer: CUresult, effect: Effect, seen: u64, is_again: bool) -> Verdict {
    if LAST.load(Ordering::Acquire) > seen || is_again || effect == Effect::ReadsEvents {
        threads::here(|here| here.tell(library::generation()));
        Verdict::Answer(answer)
    } else {
        Verdict::Again
    }
}

/// The error that this call has to report, because work was lost and the program has not heard of it from this thread,
/// or from anybody about this stream.
pub(super) fn owed(here: &Here, effect: Effect, given: &progress::Call) -> Option<CUresult> {
    let lossy = LAST.load(Ordering::Acquire);
    if lossy == 0 {
        return None;
    }
    let error = CUresult(ERROR.load(Ordering::Acquire));
    let is_owed = here.is_owed(lossy, effect);
    let of_stream = given.owed();
    if is_owed { Some(error) } else { of_stream.filter(|_| here.came_after(lossy)) }
}
