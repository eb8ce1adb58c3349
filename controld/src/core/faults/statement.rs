//! What one witness says, in the form that all have in common: what an incident is told.

use super::self_report::SelfReport;
use crate::core::evidence::{MemoryFault, ProcessKey};
use crate::core::gpu::GpuSet;
use crate::core::ids::Pid;

/// What one witness says, in the form that all have in common.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::core) struct Statement {
    pub(super) witness: &'static str,
    pub(super) names: Option<Pid>,
    pub(super) text: String,
    pub(super) fault: Option<MemoryFault>,
    /// The client that this statement is evidence against; other names are only repeated.
    pub(super) points_at: Option<Pid>,
    /// The client that it names without any proof: told, and never believed.
    pub(super) hints_at: Option<Pid>,
    /// Whether anybody, or any client, can say this whenever he likes.
    pub(super) is_hearsay: bool,
    pub(in crate::core) channel: Option<u32>,
    pub(in crate::core) xid: Option<u32>,
    pub(in crate::core) isolated: bool,
    /// Whether the kernel says it, and of this server and no other.
    pub(super) is_kernels_word: bool,
    /// Whether it is the kernel's word that work of this server or of a client of it has met an error.
    pub(super) is_kernels_fault: bool,
    /// The process that a witness which can't be wrong has named of several servers.
    pub(super) certain: Option<ProcessKey>,
    /// The client that says it of itself.
    pub(super) self_report: Option<SelfReport>,
    /// The GPUs that it names, where nobody but the kernel can have named them.
    pub(super) gpus: GpuSet,
}

impl Statement {
    pub(in crate::core) fn new(witness: &'static str, names: Option<Pid>, text: String) -> Self {
        Self {
            witness,
            names,
            text,
            fault: None,
            points_at: None,
            hints_at: None,
            is_hearsay: false,
            channel: None,
            xid: None,
            isolated: false,
            is_kernels_word: false,
            is_kernels_fault: false,
            certain: None,
            self_report: None,
            gpus: GpuSet::new(),
        }
    }

    pub(in crate::core) fn on(mut self, gpus: GpuSet) -> Self {
        self.gpus = gpus;
        self
    }

    pub(in crate::core) fn about(mut self, fault: MemoryFault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Whether a witness of memory faults says it.
    pub(super) fn is_of_memory(&self) -> bool {
        self.fault.is_some()
    }
}
