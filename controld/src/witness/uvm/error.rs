//! Why a client could not be watched, or its descriptors not be kept.

use std::io;
use std::time::Duration;

/// Why it came to nothing. [`AttachError::concerns_everybody`] says what to make of it.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// There is no UVM driver here, or its device file is missing.
    #[error("{what}")]
    NoDevice {
        /// What is missing.
        what: String,
    },
    /// The daemon may not look into the process, or not open the tools device.
    #[error(
        "{what}: not permitted; the daemon needs CAP_SYS_PTRACE in the client's user namespace, or the client's uid"
    )]
    NotPermitted {
        /// What was tried.
        what: &'static str,
        /// The kernel's word.
        #[source]
        source: io::Error,
    },
    /// The process has no initialised UVM address space that is not watched already.
    #[error("the process has no new UVM address space yet")]
    NotYet,
    /// The process has ended.
    #[error("the process has ended")]
    Gone,
    /// The process has so many descriptors that the daemon does not look through all of them.
    #[error("no UVM descriptor among the first {looked_at} of the process")]
    TooManyDescriptors {
        /// How many were looked at.
        looked_at: usize,
    },
    /// A look into the process hangs in the kernel, in a file system that does not answer.
    #[error("looking into the process hangs since {after:?}")]
    Stuck {
        /// How long it has been waited for.
        after: Duration,
    },
    /// So many looks or closings hang already that none more is begun.
    #[error("too many looks into processes hang")]
    Exhausted,
    /// The driver refused.
    #[error("{call}: the UVM driver answers {status:#x}")]
    Kernel {
        /// The call.
        call: &'static str,
        /// `NV_STATUS`.
        status: u32,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The error.
        #[source]
        source: io::Error,
    },
}

impl AttachError {
    /// Whether it would be the same with every client, so that it is said once and not for each.
    #[must_use]
    pub fn concerns_everybody(&self) -> bool {
        match self {
            Self::NoDevice { .. } | Self::Exhausted => true,
            // What a process may do to another depends on both; that this kernel has no such call does not.
            Self::System { source, .. } => source.raw_os_error() == Some(libc::ENOSYS),
            Self::NotPermitted { .. }
            | Self::NotYet
            | Self::Gone
            | Self::TooManyDescriptors { .. }
            | Self::Stuck { .. }
            | Self::Kernel { .. } => false,
        }
    }

    /// Sorts the error of a call that concerns a process.
    pub(super) fn of_process(what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { what, source },
            Some(libc::ESRCH | libc::ENOENT) => Self::Gone,
            _ => Self::System { what, source },
        }
    }
}
