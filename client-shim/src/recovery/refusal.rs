//! Why a program is not recovered, in the words that it and its operator are told.

use super::memory::Failed;
use crate::{
    kept::{self, account},
    recovery::private,
};

/// Reasons that are told at most.
const MOST_REASONS: usize = 3;

/// Why there is no recovery.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// It can be asked again: the program may get rid of what is in the way.
    #[error("{0}")]
    Obstacle(String),
    #[error("{0} threads do not come out of the driver")]
    Stuck(usize),
    #[error("{0}: {1}")]
    System(&'static str, String),
    #[error("{} answers {}", .0.call, .0.answer.0)]
    Driver(Failed),
    /// It can be asked again: the daemon may say so later.
    #[error("the server has died with work on it that may still run ({0}), and no daemon says that it is reaped")]
    NotQuiet(u32),
    #[error("the fault is this process's own, and MPS_SHIM_REPLAY spares only bystanders")]
    OwnFault,
}

impl From<Failed> for Refusal {
    fn from(failed: Failed) -> Self {
        Self::Driver(failed)
    }
}

/// What is in the way of a recovery.
pub(super) fn obstacles(of_memory: Vec<String>) -> Result<(), Refusal> {
    let mut all = of_memory;
    if kept::is_capturing().unwrap_or(false) {
        all.push("a stream is being captured".to_owned());
    }
    all.extend(private::obstacle());
    all.extend(account::living().into_iter().map(|(function, reason)| format!("{function}: {reason}")));
    if all.is_empty() {
        return Ok(());
    }
    let more = all.len().saturating_sub(MOST_REASONS);
    all.truncate(MOST_REASONS);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Err(Refusal::Obstacle(all.join("; ") + &more))
}
