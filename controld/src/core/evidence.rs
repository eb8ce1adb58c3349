//! What witnesses say about a fault.
//!
//! | witness | certain about who | seen after the launch (H200, 580) |
//! |---|---|---|
//! | patched module's notice | yes | not measured on a GPU |
//! | UVM tools queue of one process | yes: the queue belongs to that process | 0.1 to 0.8 ms, memory faults only |
//! | preload library in the process | yes: the process speaks of itself, and only of itself | 9 to 16 ms |
//! | the server's own status | no | |
//! | the server's log | nobody: it names bystanders, and anybody may write it, so it only makes the daemon ask | |
//! | Xid line of the kernel | no: it names bystanders, or the server | |
//! | end of a process | no: victims end too | |

use crate::core::ids::{Pid, ServerEpoch};
use core::fmt;
use serde::Serialize;

/// A process that cannot be taken for a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ProcessKey {
    /// Its pid in the daemon's namespace.
    pub pid: Pid,
    /// When it was started, in clock ticks since boot (`/proc/PID/stat`, field 22); 0 when that could not be read.
    pub start_time: u64,
}

/// What a faulting access wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An atomic operation.
    Atomic,
    /// A prefetch.
    Prefetch,
    /// An instruction fetch, or something this release has no name for.
    Other(u8),
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read => f.write_str("read"),
            Self::Write => f.write_str("write"),
            Self::Atomic => f.write_str("atomic"),
            Self::Prefetch => f.write_str("prefetch"),
            Self::Other(number) => write!(f, "access {number}"),
        }
    }
}

/// One access to GPU memory that nothing could serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryFault {
    /// GPU virtual address, in bytes.
    pub address: u64,
    /// What was wanted.
    pub access: Access,
    /// The driver's name of the fault type, such as `invalid PTE`.
    pub kind: String,
    /// The GPU, as `GPU-…`; `None` when the witness does not say.
    pub gpu: Option<String>,
}

/// What became of a memory fault, by the patched module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// The culprit alone is condemned; nobody else notices anything.
    Isolated,
    /// The module only watched, or could not isolate it: everybody on the server is lost.
    Passed {
        /// Why, in the module's word.
        reason: String,
    },
}

/// Whom an Xid concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum XidClass {
    /// 13, 31, 43, 45, 68, 109: an application did this, and the GPU is sound.
    Application,
    /// ECC, row remapping, containment.
    Memory,
    /// NVLink and NVSwitch.
    Link,
    /// The GPU fell off the bus, or the bus reports errors.
    Bus,
    /// Driver, firmware and everything else.
    Other,
}

/// How a process ended, as far as the kernel told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum End {
    /// It returned this status.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
    /// The kernel killed it for want of memory.
    OutOfMemory,
    /// It is gone, and nobody could say how.
    Unknown,
}

/// A statement of a witness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// The UVM tools queue of a process has a fatal fault.
    UvmEvent {
        /// Whose queue.
        process: ProcessKey,
        fault: MemoryFault,
        /// Whether the queue is of an address space that the process had when it had one server only.
        is_of_own_server: bool,
    },
    /// The patched module has met a fatal fault of a process.
    Notice {
        process: ProcessKey,
        fault: MemoryFault,
        /// The hardware channel, where the fault names it exactly.
        channel: Option<u32>,
        /// What became of it.
        isolation: Isolation,
    },
    /// The patched module has met a fault of a dead client's work, which it can't keep from the others.
    ZombieFault { process: ProcessKey, fault: MemoryFault },
    /// A process has told of its own error by the preload library.
    Shim {
        /// Who speaks, as the kernel says.
        process: ProcessKey,
        /// The `CUresult` it saw.
        error: u32,
        /// Whether the error came to a call for work that this process had launched, before anybody else's.
        own_work: bool,
        /// The server that the failed copy of its driver is on, as it says; `None` if it does not.
        server: Option<ServerEpoch>,
    },
    /// A record of the log FIFO that speaks of a fault.
    ServerLog {
        /// The server that the record says it is from. Anybody may say so.
        server: Pid,
        /// The client it names; wrong more often than not, and forged as easily.
        named: Option<Pid>,
        /// Whether it names it in the one phrase that was right whenever it was seen on a GPU: `Worker is in reset`,
        /// said of the client whose own worker met the error. A hint, and no proof.
        blames: bool,
        text: String,
    },
    /// A server says that it is in a fault.
    ServerStatus { server: ServerEpoch },
    /// A line of the kernel.
    Xid {
        number: u32,
        /// Whom it concerns.
        class: XidClass,
        /// The GPU's address on the bus, as `0000:3b:00`.
        bus: String,
        /// The MIG GPU instance, by its number.
        instance: Option<u32>,
        /// The process it names: a bystander or the server, seldom the culprit.
        pid: Option<Pid>,
        /// The channel it names: under MPS one of the server's, whoever it was.
        channel: Option<u32>,
        /// The line after the number.
        text: String,
    },
}
