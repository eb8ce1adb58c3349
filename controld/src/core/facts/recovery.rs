//! The last recovery of a client, or why there was none, for reports.

use crate::core::{ClientRecovery, ClientRefusal};
use core::time::Duration;
use serde::Serialize;

/// How a client has gone on after the last fault, as it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct RecoveryFacts {
    #[serde(flatten)]
    pub recovery: ClientRecovery,
    /// Since it was told.
    #[serde(serialize_with = "super::seconds", rename = "ago_s")]
    pub ago: Duration,
}

impl RecoveryFacts {
    /// Which way, and how long it took.
    pub(crate) fn text(&self) -> String {
        const MILLISECONDS: f64 = 1e3;
        format!("{} {:.2} ms", self.recovery.way.word(), self.recovery.total.as_secs_f64() * MILLISECONDS)
    }
}

/// Why a client does not go on after the last fault, as it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct RefusalFacts {
    #[serde(flatten)]
    pub refusal: ClientRefusal,
    /// Since it was told.
    #[serde(serialize_with = "super::seconds", rename = "ago_s")]
    pub ago: Duration,
}
