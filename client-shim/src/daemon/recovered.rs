//! What recoveries took, on its way to the daemon: a program leaves it and goes on, and the worker passes it on.
//!
//! A daemon that is not there yet, as it is being replaced, hears it when it is; one that does not know of it never does,
//! nor does one that will not have it. What is left while nobody hears is bounded, and the oldest goes first.

use std::{
    collections::VecDeque,
    process,
    sync::{Mutex, PoisonError},
};

use remps_proto::shim::{Ask, Capabilities, Recovered};

use super::{
    connection::{Connection, Lost},
    link::{locked, started},
};

/// Most recoveries that wait for a daemon.
const MOST: usize = 16;

/// Those that were not passed on yet, each with the process whose it was: a forked child has none.
static LEFT: Mutex<VecDeque<(u32, Recovered)>> = Mutex::new(VecDeque::new());

/// Leaves a recovery for the daemon.
pub(crate) fn tell(recovered: Recovered) {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    if left.len() >= MOST {
        left.pop_front();
    }
    left.push_back((process::id(), recovered));
    drop(left);
    if let Some(link) = started() {
        link.wake();
    }
}

/// The oldest of this process that is left.
pub(super) fn oldest() -> Option<Recovered> {
    let mut left = locked(&LEFT);
    left.retain(|(of, _)| *of == process::id());
    left.front().map(|(_, recovered)| recovered.clone())
}

/// Passes on all that is left. The lock is not held while the daemon is waited for, so meanwhile the oldest may go.
pub(super) fn pass_on(connection: &mut Connection) -> Result<(), Lost> {
    if !connection.can(Capabilities::RECOVERIES) {
        locked(&LEFT).clear();
        return Ok(());
    }
    while let Some(recovered) = oldest() {
        let number = recovered.number;
        let told = connection.ask(Ask::Recovered(recovered), None);
        // What may not be sent is left out, or it would be in the way for ever.
        if let Err(lost) = told
            && !matches!(lost, Lost::Message(_))
        {
            return Err(lost);
        }
        locked(&LEFT).retain(|(_, left)| left.number > number);
    }
    Ok(())
}
