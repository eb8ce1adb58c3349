//! Compute modes of GPUs, and what is changed about them.

use core::fmt;

/// A GPU's compute mode, by the management library's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ComputeMode(pub u32);

impl ComputeMode {
    /// Any number of processes have contexts.
    pub(crate) const DEFAULT: Self = Self(0);
    /// One thread of one process has one; not known to drivers any more.
    pub(crate) const EXCLUSIVE_THREAD: Self = Self(1);
    /// Nobody has one.
    pub(crate) const PROHIBITED: Self = Self(2);
    /// One process at a time has contexts.
    pub(crate) const EXCLUSIVE_PROCESS: Self = Self(3);

    /// Whether one server is all that fits.
    pub(crate) fn is_exclusive(self) -> bool {
        [Self::EXCLUSIVE_THREAD, Self::EXCLUSIVE_PROCESS].contains(&self)
    }
}

impl fmt::Display for ComputeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::DEFAULT => f.write_str("DEFAULT"),
            Self::EXCLUSIVE_THREAD => f.write_str("EXCLUSIVE_THREAD"),
            Self::PROHIBITED => f.write_str("PROHIBITED"),
            Self::EXCLUSIVE_PROCESS => f.write_str("EXCLUSIVE_PROCESS"),
            Self(number) => write!(f, "number {number}"),
        }
    }
}

impl serde::Serialize for ComputeMode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A GPU whose mode is looked after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManagedMode {
    /// `GPU-…`.
    pub uuid: String,
    /// The mode that it had.
    pub original: ComputeMode,
    /// How far things have come.
    pub stage: ModeStage,
}

/// How far the daemon has come with a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModeStage {
    /// Its mode is somebody else's matter.
    Left,
    /// Its mode is being set, or may have been.
    Planned,
    /// It is set.
    Set,
}

/// A change to be made where the mode still is what it is changed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModeChange {
    /// `GPU-…`.
    pub uuid: String,
    /// The mode that it must have.
    pub from: ComputeMode,
    /// The mode that it gets.
    pub to: ComputeMode,
}

/// What came of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModeOutcome {
    /// `GPU-…`.
    pub uuid: String,
    /// The mode now, or what was in the way.
    pub mode: Result<ComputeMode, String>,
    /// Whether it stays as it is for another daemon of this machine, which gives it back.
    pub is_others: bool,
}
