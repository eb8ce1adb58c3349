//! What is done about the GPUs' compute modes, and about who passes MPS by.

use super::forms;
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

/// The operator's choices: the table `[gpu]`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GpuPolicy {
    /// What is done about GPUs in an exclusive compute mode.
    pub(crate) compute_mode: ComputeModeAction,
    /// What is done about processes that use a GPU outside MPS.
    pub(crate) strangers: StrangerAction,
    /// How often GPUs that are managed are looked at.
    #[serde(with = "forms::seconds")]
    pub interval: Duration,
    /// The machine's folder of records of changed compute modes, which the driver keeps; empty is none.
    pub records: String,
}

impl GpuPolicy {
    /// Whether compute modes are changed, and strangers looked for.
    pub(crate) fn manages(&self) -> bool {
        self.compute_mode == ComputeModeAction::Manage
    }

    /// Whether strangers are ended.
    pub(crate) fn ends_strangers(&self) -> bool {
        self.strangers == StrangerAction::End
    }
}

impl Default for GpuPolicy {
    fn default() -> Self {
        Self {
            compute_mode: ComputeModeAction::Leave,
            strangers: StrangerAction::Tell,
            interval: Duration::from_secs(15),
            records: "/run/nvidia-cuda-mps-modes".to_owned(),
        }
    }
}
