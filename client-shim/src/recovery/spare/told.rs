//! What is told of a spare copy: to the daemon how far it is and what it takes of the process, and that to the report.
//!
//! The daemon is told from the spare's own thread alone. What whoever recovers or is short of memory has to tell waits for
//! its next look.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use remps_proto::shim::SpareTakes;

use super::is_for_a_test;
use crate::{cuda::resources::Owner, daemon::spare};

/// Of the grant whose copy lives and of which the daemon was not told yet, 0 for none.
static LIVES: AtomicU64 = AtomicU64::new(0);
/// The same of one that was of no use.
static GONE: AtomicU64 = AtomicU64::new(0);
/// What the last copy took when that was counted last.
static TAKES: Mutex<Option<SpareTakes>> = Mutex::new(None);

/// The program goes on with the copy of this grant.
pub(super) fn goes_on(token: u64) {
    LIVES.store(token, Ordering::Release);
}

/// The copy of this grant is given up.
pub(super) fn goes(token: u64) {
    GONE.store(token, Ordering::Release);
}

/// Tells of copies with which the program has gone on, or that were given up, since the last time.
pub(super) fn what_is_left() {
    let lives = LIVES.swap(0, Ordering::AcqRel);
    if lives != 0 {
        tell(spare::lives, lives);
    }
    let lost = GONE.swap(0, Ordering::AcqRel);
    if lost != 0 {
        gone(lost);
    }
}

/// Says something to the daemon, if the grant is one of it.
fn tell(say: impl FnOnce(u64), token: u64) {
    if !is_for_a_test() {
        say(token);
    }
}

/// That a copy is ready, of which nobody has counted yet what it takes.
pub(super) fn stands(token: u64) {
    tell(|token| spare::stands(token, SpareTakes::default()), token);
}

/// What the copy at that place takes, counted now, where nobody waits for it.
pub(super) fn takes(token: u64, place: Option<(Owner, usize)>) {
    let Some(takes) = place.and_then(|(owner, code)| owner.takes(code).ok()) else { return };
    *TAKES.lock().unwrap_or_else(PoisonError::into_inner) = Some(takes);
    tell(|token| spare::stands(token, takes), token);
}

/// What the last spare copy took when that was counted last, as a member of the report; `None` if there was none.
pub(crate) fn report() -> Option<String> {
    let SpareTakes { threads, host_bytes } = (*TAKES.lock().unwrap_or_else(PoisonError::into_inner))?;
    Some(format!(r#"{{"threads":{threads},"host_bytes":{host_bytes}}}"#))
}

/// That there is none with this token any more.
pub(super) fn gone(token: u64) {
    tell(spare::gone, token);
}
