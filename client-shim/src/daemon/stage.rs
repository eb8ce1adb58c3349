//! What is said to the daemon of how far the program is with going on after a fault, so that nothing is buried beside it
//! while it makes its contexts.
//!
//! | said | when |
//! |---|---|
//! | it would | on each connection, once calls pass the gate |
//! | it is back | everything stands in a fresh copy of the driver; of a spare one the daemon is told otherwise |
//! | it gives up | nothing is recovered any more |
//! | it is short | there is no memory for a context, or for an allocation of the program's |
//!
//! A daemon that does not know of this is told nothing.

use std::{
    process,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use remps_proto::shim::{Answer, Ask, Capabilities, RecoveryStage};

use super::{
    connection::{Connection, Lost, PATIENCE},
    link::started,
    news,
};

/// How long an allocation waits for the daemon's answer.
const ROOM_PATIENCE: Duration = Duration::from_secs(2);
/// How long it waits then: closing what is held took 21 ms (measured with 580 on an H200).
const UNTIL_CLOSED: Duration = Duration::from_millis(50);

/// The process that recovers from nothing any more, 0 for none: a forked child has not given up.
static GIVEN_UP: AtomicU32 = AtomicU32::new(0);

/// Says that the program would recover, if it would by now; whether that is done with.
pub(super) fn introduce(connection: &mut Connection) -> Result<bool, Lost> {
    if !connection.can(Capabilities::BURIALS) || GIVEN_UP.load(Ordering::Acquire) == process::id() {
        return Ok(true);
    }
    if !news::is_awaited() {
        return Ok(false);
    }
    connection.ask(Ask::Recovery { stage: RecoveryStage::ABLE }, None).map(|_| true)
}

fn tell(stage: RecoveryStage) {
    if let Some(link) = started() {
        link.tell(Ask::Recovery { stage }, Capabilities::BURIALS, PATIENCE);
    }
}

/// The program has its contexts again, and everything in them.
pub(crate) fn is_back() {
    tell(RecoveryStage::BACK);
}

/// Nothing is recovered any more.
pub(crate) fn gives_up() {
    GIVEN_UP.store(process::id(), Ordering::Release);
    tell(RecoveryStage::GIVEN_UP);
}

/// There is no memory. Whether the daemon lets go of what the dead hold now; `None` where there is none that would.
fn lets_go(patience: Duration) -> Option<bool> {
    let ask = Ask::Recovery { stage: RecoveryStage::SHORT };
    match started()?.ask_now(ask, Capabilities::BURIALS, patience)?.pop() {
        Some((Answer::Done { regions }, _)) => Some(regions > 0),
        _ => None,
    }
}

/// There is no memory for a context; whether a daemon has heard that, which lets go of what the dead hold then.
pub(crate) fn is_short() -> bool {
    lets_go(PATIENCE).is_some()
}

/// There is no memory for an allocation: waits a moment if the daemon lets go of some.
pub(crate) fn have_room_made() {
    if lets_go(ROOM_PATIENCE) == Some(true) {
        thread::park_timeout(UNTIL_CLOSED);
    }
}
