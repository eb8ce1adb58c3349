//! What is done about the GPUs' compute modes, and about who passes MPS by.

use core::time::Duration;

/// What is done about compute modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ComputeModeAction {
    /// They are the operator's matter.
    Leave,
    /// GPUs in an exclusive mode are in mode `DEFAULT` while the daemon runs.
    Manage,
}

/// What is done about processes with contexts outside MPS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StrangerAction {
    /// They are told of.
    Tell,
    /// They are ended.
    End,
}

/// The operator's choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuPolicy {
    /// Whether compute modes are changed, and strangers looked for.
    pub manage: bool,
    /// Whether strangers are ended.
    pub end_strangers: bool,
    /// How often GPUs that are managed are looked at.
    pub interval: Duration,
}

impl Default for GpuPolicy {
    fn default() -> Self {
        Self { manage: false, end_strangers: false, interval: Duration::from_secs(15) }
    }
}
