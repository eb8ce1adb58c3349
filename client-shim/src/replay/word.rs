//! The control daemon's word: that the server of this process is spoilt or gone, and whose fault it was.
//!
//! A thread of the library's own asks the daemon to be told when the server is no longer as it was. So a program that
//! waits for nothing is recovered before its next call:
//!
//! | the daemon says | done |
//! |---|---|
//! | the server has met a fault that its clients share, or it is reaped | the driver is asked about each context until it answers with an error that stays; then the recovery begins |
//! | anything else | noted |
//!
//! The word alone begins nothing: only the driver's own answer shows that this context is dead, and asking one that is
//! sound harms nothing. The other way round the driver never knows that a server's process is reaped, which is what
//! proves that none of its channels is left, and nor whose fault it was: that is the daemon's to say.
//!
//! After a recovery the daemon is told that the dead copy is cut off, and closes its own copies of that one's UVM
//! descriptors, which keep its memory on the GPU. Without a daemon, or with one that does not know of this, there is no
//! thread's word and everything else is as ever.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use remps_proto::shim::{Ask, Part, ServerState};

use super::recovery;
use crate::cuda::{
    belongings,
    errors::{self, Meaning},
    gate, library, threads,
};
use crate::process::panics::unpanicked;
use crate::{
    cuda::{
        result::CUresult,
        types::{CUcontext, CUstream},
    },
    daemon::{
        connection::{Connection, Lost, PATIENCE},
        evidence, news,
    },
    keep,
    process::{failpoint::reached, glibc},
};

/// First and longest pause between two tries to find a daemon. One that was there a moment ago is mostly being replaced.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long one answer of the daemon's may take; then it is asked again.
const WAIT: Duration = Duration::from_secs(15);
/// Between two questions to the driver, once the daemon has said that the context will die; and after a while.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
const LATER: Duration = Duration::from_millis(200);
const SOON: Duration = Duration::from_secs(1);
/// How long the driver is asked where the daemon has nothing more to say; then a call of the program's has to find out.
const ENOUGH: Duration = Duration::from_secs(60);
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: what this thread asks breaks nobody's capture.
const RELAXED: u32 = 2;

static IS_LISTENING: AtomicBool = AtomicBool::new(false);

/// Starts the thread, once.
pub(super) fn listen() {
    if !IS_LISTENING.swap(true, Ordering::AcqRel) {
        // Without it a recovery begins with a call of the program's.
        let _none = glibc::detached_thread(Box::new(|| {
            let _ended = unpanicked(work);
        }));
    }
}

fn work() {
    belongings::thread_is_ours();
    let (mut pause, mut told) = (FIRST_PAUSE, 0);
    loop {
        if let Some(mut connection) = news::connected() {
            pause = FIRST_PAUSE;
            // The daemon has ended, or is being replaced.
            let Err(_lost) = follow(&mut connection, &mut told);
        }
        thread::park_timeout(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Hears the daemon until it is gone. `told` is the copy of the driver that it knows to live.
fn follow(connection: &mut Connection, told: &mut u64) -> Result<std::convert::Infallible, Lost> {
    // What it has said on this connection, of which copy of the driver, and since when a context is to be dead.
    let (mut heard, mut of) = ((0, ServerState::NONE), 0);
    let mut lost_since: Option<Instant> = None;
    // The server that an earlier daemon, or this one on another connection, knew of.
    let (before, mut is_first) = (news::server_number(), true);
    loop {
        let (generation, may_recover) = recovery::settled();
        if generation > *told {
            connection.ask(Ask::Renewed, None)?;
            reached("renewal-told");
            // The new copy's have not been seen yet by a daemon that may not look.
            evidence::offer();
            *told = generation;
        }
        if generation != of {
            (of, lost_since) = (generation, None);
        }
        let wait = match lost_since.filter(|_| may_recover) {
            Some(since) if since.elapsed() < SOON => BETWEEN_LOOKS,
            Some(_) => LATER,
            None if is_first => Duration::ZERO,
            None => WAIT,
        };
        let (server, state, _) = news::watch(connection, heard, wait)?;
        heard = (server, state);
        // What it says while another copy is being made is of either.
        if recovery::settled().0 == generation {
            news::note(heard);
        }
        lost_since = match state {
            ServerState::TAINTED | ServerState::GONE => lost_since.or_else(|| Some(Instant::now())),
            // It ended while nobody was there to say so.
            ServerState::NONE if is_first && before != 0 => Some(Instant::now()),
            // Of a server that is gone it has nothing more to say, and the context may not know yet.
            ServerState::NONE => lost_since.filter(|since| since.elapsed() < ENOUGH),
            _ => None,
        };
        is_first = false;
        if lost_since.is_some()
            && may_recover
            && let Some((answer, meaning, seen)) = dead_context()
        {
            recovery::on_the_daemons_word(answer, meaning, seen);
        }
    }
}

/// A context of this process that is dead, if the driver says so now: its answer, what that means, and in which copy.
fn dead_context() -> Option<(CUresult, Meaning, u64)> {
    threads::here(|here| {
        let _pass = gate::enter(&here.passer, PATIENCE)?;
        let generation = library::generation();
        let (captures, contexts) = keep::with(|store| {
            let retained = store.contexts.retained().filter(|(_, of)| of.count > 0).map(|(_, of)| of.context);
            (store.captures, retained.collect::<Vec<_>>())
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
    let is_under_mps = news::server_number() != 0;
    part == Part::CULPRIT.0 || (!is_under_mps && error != SERVER_DIED)
}
