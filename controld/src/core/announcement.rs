//! A verdict as others are told who look after machines and pods: with everybody it concerns by name.
//!
//! The journal has a verdict with the pids of its victims, since a fault may have 60 of them; who tells a cluster of it has
//! to know whose they are. So this is made beside the journal's event, and nothing keeps it.

use super::catalogue::{self, Remedy, Severity};
use super::gpu::Gpu;
use super::verdict::{Suspect, Verdict};

/// The number of the kernel's line after which a memory fault, and an exception, has its verdict, where that is given
/// before the line comes, or no line can be read.
const MEMORY_FAULT: u32 = 31;
const EXCEPTION: u32 = 13;

/// A verdict with everybody whom it concerns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Announcement {
    pub verdict: Verdict,
    /// Its victims, in the order of their pids.
    pub victims: Vec<Suspect>,
    /// The number that `nvidia-smi` gives the GPU, where that is known.
    pub index: Option<usize>,
    /// The GPU's address on the bus, as `0000:3b:00`, where that is known.
    pub bus: Option<String>,
}

impl Announcement {
    /// The Xid of the fault: the kernel's, or the one that such a fault has.
    pub(crate) fn xid(&self) -> Option<u32> {
        self.verdict.xid.or(match self.verdict.kind {
            "memory fault" | "death in a kernel" => Some(MEMORY_FAULT),
            "exception" => Some(EXCEPTION),
            _ => None,
        })
    }

    /// How grave it is for whom it was: what the culprit has to answer for is no victim's doing.
    pub(crate) fn severity(&self, is_culprit: bool) -> Severity {
        let severity = self.xid().map_or(Severity::User, catalogue::severity);
        if severity == Severity::User && !is_culprit { Severity::Warn } else { severity }
    }

    /// What helps.
    pub(crate) fn remedy(&self) -> Remedy {
        self.xid().map_or(Remedy::RestartApp, catalogue::remedy)
    }

    /// The GPU, as `GPU-…`.
    pub(crate) fn uuid(&self) -> Option<&str> {
        let of_fault = || self.verdict.fault.as_ref().and_then(|fault| fault.gpu.as_deref());
        self.verdict.gpus.first().map(Gpu::uuid).or_else(of_fault)
    }
}
