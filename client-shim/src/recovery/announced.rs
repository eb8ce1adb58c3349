//! A recovery that the control daemon announces: it says that the server of this process is spoilt or gone, and whose
//! fault it was.
//!
//! The thread that speaks to the daemon ([`news`]) tells when the server is no longer as it was. So a program that waits
//! for nothing is recovered before its next call:
//!
//! | the daemon says | done |
//! |---|---|
//! | the server has met a fault that its clients share, or it is reaped | with nothing at work the program goes on with its spare copy, see [`ahead`](super::ahead); else the driver is asked about each context until it answers with an error that stays, and then the recovery begins |
//! | anything else | noted |
//!
//! But for that, what it says alone begins nothing: only the driver's own answer shows that this context is dead, and asking one that is
//! sound harms nothing. The other way round the driver never knows that a server's process is reaped, which is what
//! proves that none of its channels is left, and nor whose fault it was: that is the daemon's to say.
//!
//! Asking and recovering may take long, and ask the daemon too, so they have a thread that ends with them. Without a
//! daemon, or with one that does not know of this, nothing is announced and everything else is as ever.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use remps_proto::shim::{Part, ServerState};

use super::{is_armed, steps};
use crate::{
    cuda::{
        belongings,
        errors::{self, Meaning},
        gate, library,
        result::CUresult,
        threads,
        types::{CUcontext, CUstream},
    },
    daemon::news,
    kept,
    process::{glibc, panics::unpanicked},
};

/// How long the gate may be closed for a question to the driver.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two questions to the driver, once the daemon has said that the context will die; and after a while.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
const LATER: Duration = Duration::from_millis(200);
const SOON: Duration = Duration::from_secs(1);
/// How long the driver is asked where the daemon has nothing more to say; then a call of the program's has to find out.
const ENOUGH: Duration = Duration::from_secs(60);
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: what is asked here breaks nobody's capture.
const RELAXED: u32 = 2;

/// The daemon has said that a copy of the driver is to die.
#[derive(Clone, Copy, Debug)]
struct Loss {
    /// Which copy.
    of: u64,
    since: Instant,
    /// Nothing more will be said of its server.
    is_last_word: bool,
}

/// What is to die, and whether a thread looks whether it has.
static LOSS: Mutex<(Option<Loss>, bool)> = Mutex::new((None, false));

/// That thread, the latest.
static LOOKING: Mutex<Option<Thread>> = Mutex::new(None);

fn loss() -> MutexGuard<'static, (Option<Loss>, bool)> {
    LOSS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The daemon is heard from now on.
pub(super) fn listen() {
    news::listen(heard);
}

/// So it is with the server of copy `of`.
fn heard(state: ServerState, of: u64) {
    // The word came while another copy took its place.
    if of != library::generation() {
        return;
    }
    if state != ServerState::NONE {
        let is_doomed = matches!(state, ServerState::TAINTED | ServerState::GONE);
        // A thread that ends has nothing done in it any more, which its server would be asked about. Whoever recovers has
        // said so.
        steps::with_the_living(|living| {
            if of == library::generation() {
                living.is_doomed(is_doomed);
            }
        });
    }
    let mut loss = loss();
    let before = loss.0.filter(|before| before.of == of);
    loss.0 = match state {
        ServerState::TAINTED | ServerState::GONE => {
            let is_last_word = state == ServerState::GONE;
            let as_before = before.filter(|before| before.is_last_word == is_last_word);
            Some(as_before.unwrap_or_else(|| Loss { of, since: Instant::now(), is_last_word }))
        }
        // Of a server that is gone it has nothing more to say, and the context may not know yet.
        ServerState::NONE => before.map(|before| Loss { is_last_word: true, ..before }),
        _ => None,
    };
    // A forked child has no driver, and without a thread a recovery begins with a call of the program's.
    if loss.1 {
        // What the driver answers may be another thing now.
        if let Ok(Some(looking)) = LOOKING.try_lock().as_deref() {
            looking.unpark();
        }
    } else if loss.0.is_some() && is_armed() {
        loss.1 = glibc::detached_thread(Box::new(|| {
            let _ended = unpanicked(look);
        }));
    }
}

/// Looks until the copy that is to die has, or another one lives, or the daemon says otherwise.
fn look() {
    let _as_long_as_it_takes = belongings::Ours::begin();
    *LOOKING.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
    loop {
        let (_, may_recover) = steps::settled();
        let (of, since) = {
            let mut loss = loss();
            let is_over = |of: &Loss| of.is_last_word && of.since.elapsed() >= ENOUGH;
            loss.0 = loss.0.filter(|of| may_recover && of.of == library::generation() && !is_over(of));
            loss.1 = loss.0.is_some();
            let Some(Loss { of, since, .. }) = loss.0 else { return };
            (of, since)
        };
        steps::ahead_of_the_driver(of);
        if let Some((answer, meaning, seen)) = dead_context() {
            steps::on_the_daemons_word(answer, meaning, seen);
        }
        thread::park_timeout(if since.elapsed() < SOON { BETWEEN_LOOKS } else { LATER });
    }
}

/// A context of this process that is dead, if the driver says so now: its answer, what that means, and in which copy.
fn dead_context() -> Option<(CUresult, Meaning, u64)> {
    threads::here(|here| {
        let _pass = gate::enter(&here.passer, PATIENCE)?;
        let generation = library::generation();
        let (captures, contexts) = kept::objects(|objects| {
            let retained = objects.contexts.retained().filter(|(_, of)| of.count > 0).map(|(_, of)| of.context);
            (objects.captures.len(), retained.collect::<Vec<_>>())
        })
        .ok()?;
        if captures > 0 {
            // A program in the middle of a capture is not recovered either.
            return None;
        }
        let mut mode = RELAXED;
        let _not_of_this_release = driver!(stream::cuThreadExchangeStreamCaptureMode(&raw mut mode));
        let found = contexts.into_iter().find_map(|context| {
            let set = driver!(context::cuCtxSetCurrent(CUcontext(context)));
            let answer = if set.is_success() { driver!(stream::cuStreamQuery(CUstream(0))) } else { set };
            let meaning = errors::meaning(answer)?;
            errors::is_confirmed(meaning).then_some((answer, meaning, generation))
        });
        let _nothing_to_do = driver!(context::cuCtxSetCurrent(CUcontext(0)));
        found
    })
}

/// Whether an error is of this process's own doing: the daemon is certain of it, or no other process can have done it.
pub(super) fn is_own_fault(error: u32, part: u32) -> bool {
    const SERVER_DIED: u32 = 806;
    let is_under_mps = news::said().0 != 0;
    part == Part::CULPRIT.0 || (!is_under_mps && error != SERVER_DIED)
}
