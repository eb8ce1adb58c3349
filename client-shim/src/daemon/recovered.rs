//! What recoveries took, and why some were refused, on its way to the daemon: a program leaves it and goes on, and the worker
//! passes it on.
//!
//! A daemon that is not there yet, as it is being replaced, hears it when it is; one that does not know of it never does,
//! nor does one that will not have it. What is left while nobody hears is bounded, and the oldest goes first.

use std::{
    collections::VecDeque,
    process,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use remps_proto::shim::{Ask, Capabilities, Recovered, Unrecovered};

use super::{
    connection::{Connection, Lost},
    link::{locked, started},
};

/// Most recoveries that wait for a daemon.
const MOST: usize = 16;

/// How long a refusal may take to be passed on to a daemon that is connected, and between two looks.
const MOMENT: Duration = Duration::from_millis(200);
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// What has become of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Recovered(Recovered),
    Refused(Unrecovered),
}

impl Said {
    fn ask(&self) -> (Ask, Capabilities) {
        match self.clone() {
            Self::Recovered(recovered) => (Ask::Recovered(recovered), Capabilities::RECOVERIES),
            Self::Refused(unrecovered) => (Ask::Unrecovered(unrecovered), Capabilities::REFUSALS),
        }
    }
}

/// What was not passed on yet, each with the process whose it was: a forked child has none.
static LEFT: Mutex<VecDeque<(u32, Said)>> = Mutex::new(VecDeque::new());

/// Leaves a recovery, or a refusal, for the daemon.
pub(crate) fn tell(said: Said) {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    if left.len() >= MOST {
        left.pop_front();
    }
    left.push_back((process::id(), said));
    drop(left);
    if let Some(link) = started() {
        link.wake();
    }
}

/// Leaves a refusal, and gives it a moment to be passed on: a program that has an error for good mostly ends at once.
pub(crate) fn tell_before_the_end(refused: Unrecovered) {
    let said = Said::Refused(refused);
    tell(said.clone());
    let until = Instant::now() + MOMENT;
    let is_left = || locked(&LEFT).iter().any(|(_, left)| *left == said);
    while started().is_some_and(|link| link.progress().is_connected) && is_left() && Instant::now() < until {
        thread::park_timeout(BETWEEN_LOOKS);
    }
}

/// The oldest of this process that is left.
pub(super) fn oldest() -> Option<Said> {
    let mut left = locked(&LEFT);
    left.retain(|(of, _)| *of == process::id());
    left.front().map(|(_, said)| said.clone())
}

/// Passes on all that is left. The lock is not held while the daemon is waited for, so meanwhile the oldest may go.
pub(super) fn pass_on(connection: &mut Connection) -> Result<(), Lost> {
    while let Some(said) = oldest() {
        let (ask, needed) = said.ask();
        // What may not be sent is left out, as what nobody understands, or it would be in the way for ever.
        if connection.can(needed)
            && let Err(lost) = connection.ask(ask, None)
            && !matches!(lost, Lost::Message(_))
        {
            return Err(lost);
        }
        locked(&LEFT).retain(|(_, left)| *left != said);
    }
    Ok(())
}
