//! Who is told that work was lost.
//!
//! If all work of all streams is known to be done, and no module has begun anew, nothing was lost, and the call that
//! found the context dead is made again. Otherwise
//!
//! - each thread that had begun by then gets the error once, whether it had used CUDA before or not;
//! - a thread that begins later gets it once, if it takes what lost work was to give: by a stream or an event that is
//!   in doubt ([`progress`](crate::kept::work::progress));
//! - both by the next call that tells ([`Effect::tells`]). What asks, makes or ends something succeeds, since programs
//!   ignore its errors, and the thread still has to be told.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{
    cuda::{
        functions::Effect,
        library,
        result::CUresult,
        threads::{self, Here},
    },
    kept::work::progress,
    process::birth,
};

/// The last recovery that lost work, 0 for none, and its error. Each call after a recovery reads them.
static LAST: AtomicU64 = AtomicU64::new(0);
static ERROR: AtomicU32 = AtomicU32::new(0);
/// When that was, in ticks of the kernel.
static WHEN: AtomicU64 = AtomicU64::new(0);

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
    if is_told && effect.tells() {
        threads::here(|here| here.tell(library::generation()));
        Verdict::Answer(answer)
    } else if is_again {
        Verdict::Answer(answer)
    } else {
        Verdict::Again
    }
}

/// Whether this thread has been told of everything that was lost.
pub(super) fn knows(here: &Here) -> bool {
    here.told() >= LAST.load(Ordering::Acquire)
}

/// The error that this call has to report, because work was lost and the program has not heard of it from this thread.
/// It has now.
pub(super) fn owed(here: &Here, effect: Effect, given: &progress::Call) -> Option<CUresult> {
    if knows(here) || !effect.tells() {
        return None;
    }
    let was_there = here.born() <= WHEN.load(Ordering::Acquire);
    (was_there || given.is_in_doubt(here.born())).then(|| {
        here.tell(LAST.load(Ordering::Acquire));
        CUresult(ERROR.load(Ordering::Acquire))
    })
}
