//! Why a program is not recovered, in the words that it and its operator are told.

use std::ffi::c_int;

use super::{memory::Failed, others::Working};
use crate::{
    cuda::gate::Late,
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
    /// It can be asked again when they have.
    #[error("{} threads do not come out of the driver", .0.inside())]
    Stuck(Late),
    #[error("{0}: {1}")]
    System(&'static str, String),
    #[error("{} answers {}", .0.call, .0.answer.0)]
    Driver(Failed),
    /// It can be asked again: the daemon may say so later.
    #[error("the server has died with work on it that may still run ({0}), and no daemon says that it is reaped")]
    NotQuiet(u32),
    /// The same of a context on the GPU of a number, with what it answers.
    #[error(
        "work on the GPU of number {0} may still run, whose context answers {1}, and no daemon says that its server is reaped"
    )]
    NotQuietOn(c_int, u32),
    /// It can be asked again: the work may end.
    #[error("the GPU of number {0} has work of this process that does not end")]
    Working(c_int),
    /// It can be asked again when it has.
    #[error("the making of a spare copy of the driver does not end")]
    SpareBusy,
    /// Nothing is to be done before the driver has answered with an error.
    #[error("something is at work, or would have to be told")]
    AtWork,
    #[error("the fault is this process's own, and MPS_SHIM_REPLAY spares only bystanders")]
    OwnFault,
}

impl From<Failed> for Refusal {
    fn from(failed: Failed) -> Self {
        Self::Driver(failed)
    }
}

impl From<Working> for Refusal {
    fn from(Working(device): Working) -> Self {
        Self::Working(device)
    }
}

impl Refusal {
    /// Whether nothing was changed, and it may succeed later.
    pub(super) fn is_for_now(&self) -> bool {
        match self {
            Self::Obstacle(_)
            | Self::Stuck(_)
            | Self::NotQuiet(_)
            | Self::NotQuietOn(..)
            | Self::Working(_)
            | Self::SpareBusy
            | Self::AtWork => true,
            Self::System(..) | Self::Driver(_) | Self::OwnFault => false,
        }
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
