//! A fatal fault as it lies in a queue: numbers, names, and whether it is anybody's doing.
//!
//! Read off `uvm_types.h` of NVIDIA's open kernel modules, the same in 535.288.01 to 595.45.04 but for
//! `UvmFaultTypeCcViolation`, which 535 and 550 do not have.

use crate::core::Access;
use crate::sys::uvm_abi::{FATAL_FAULT, Version};

/// The driver's name of a `UvmEventFaultType`, in plain words.
pub(crate) fn fault_name(kind: u8) -> String {
    let name = match kind {
        1 => "invalid PDE",
        2 => "invalid PTE",
        3 => "write",
        4 => "atomic",
        5 => "invalid PDE size",
        6 => "limit violation",
        7 => "unbound instance block",
        8 => "privilege violation",
        9 => "pitch mask violation",
        10 => "work creation",
        11 => "unsupported aperture",
        12 => "compression failure",
        13 => "unsupported kind",
        14 => "region violation",
        15 => "poison",
        16 => "CC violation",
        other => return format!("fault type {other}"),
    };
    name.to_owned()
}

/// The access of a `UvmEventMemoryAccessType`.
pub(crate) const fn access(kind: u8) -> Access {
    match kind {
        1 => Access::Read,
        2 => Access::Write,
        3 => Access::Atomic,
        4 => Access::Prefetch,
        other => Access::Other(other),
    }
}

/// `UvmEventFatalReason`: why the driver gave an access up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Nothing is mapped there (1).
    InvalidAddress,
    /// What is mapped there does not allow it (2).
    InvalidPermissions,
    /// The hardware reports a fault that no mapping could serve (3).
    InvalidFaultType,
    /// There was no memory to serve it (4). Meets every client that waits for a page then, guilty of nothing.
    OutOfMemory,
    /// Something in the driver or the hardware failed (5); as [`Reason::OutOfMemory`].
    InternalError,
    /// The processor may not touch it now (6).
    InvalidOperation,
    /// A number without a name here.
    Other(u8),
}

impl Reason {
    /// The reason of a number.
    #[must_use]
    pub const fn new(number: u8) -> Self {
        match number {
            1 => Self::InvalidAddress,
            2 => Self::InvalidPermissions,
            3 => Self::InvalidFaultType,
            4 => Self::OutOfMemory,
            5 => Self::InternalError,
            6 => Self::InvalidOperation,
            other => Self::Other(other),
        }
    }

    /// Whether the access itself was wrong, so that whoever made it is to blame: `uvm_gpu_replayable_faults.c` cancels
    /// everything that waits, of innocent clients too, for the other reasons.
    #[must_use]
    pub const fn is_culprits(self) -> bool {
        !matches!(self, Self::OutOfMemory | Self::InternalError)
    }
}

/// A fatal fault as it lies in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FatalFault {
    /// `UvmEventFaultType`; says nothing for the CPU.
    pub fault_type: u8,
    /// `UvmEventMemoryAccessType`.
    pub access_type: u8,
    /// Why it is fatal.
    pub reason: Reason,
    /// Index in the processor table.
    pub processor: u16,
    /// Virtual address.
    pub address: u64,
    /// When, in nanoseconds of `CLOCK_MONOTONIC_RAW` (`NV_GETTIME` in `nv-time.h`).
    pub time: u64,
}

impl FatalFault {
    /// Words of an entry that say something about a fatal fault, in both versions.
    pub const WORDS: usize = 3;

    /// Reads the first words of an entry; `None` for another event.
    #[must_use]
    pub fn decode(version: Version, words: [u64; Self::WORDS]) -> Option<Self> {
        let head = words[0].to_ne_bytes();
        let [kind, fault_type, access_type, ..] = head;
        let (processor, reason) = match version {
            Version::V1 => (u16::from(head[3]), head[4]),
            Version::V2 => (u16::from_ne_bytes([head[4], head[5]]), head[3]),
        };
        (kind == FATAL_FAULT).then_some(Self {
            fault_type,
            access_type,
            reason: Reason::new(reason),
            processor,
            address: words[1],
            time: words[2],
        })
    }

    /// The words that [`FatalFault::decode`] reads: what a kernel writes.
    #[must_use]
    pub fn encode(&self, version: Version) -> [u64; Self::WORDS] {
        let reason = match self.reason {
            Reason::InvalidAddress => 1,
            Reason::InvalidPermissions => 2,
            Reason::InvalidFaultType => 3,
            Reason::OutOfMemory => 4,
            Reason::InternalError => 5,
            Reason::InvalidOperation => 6,
            Reason::Other(number) => number,
        };
        let [low, high] = self.processor.to_ne_bytes();
        let mut head = [FATAL_FAULT, self.fault_type, self.access_type, 0, 0, 0, 0, 0];
        match version {
            Version::V1 => (head[3], head[4]) = (u8::try_from(self.processor).unwrap_or(u8::MAX), reason),
            Version::V2 => (head[3], head[4], head[5]) = (reason, low, high),
        }
        [u64::from_ne_bytes(head), self.address, self.time]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULT: FatalFault = FatalFault {
        fault_type: 2,
        access_type: 2,
        reason: Reason::InvalidAddress,
        processor: 1,
        address: 0x7f00_dead_0000,
        time: 1_234_567,
    };

    #[test]
    fn an_entry_of_each_version_has_the_drivers_bytes() {
        let first = FAULT.encode(Version::V1)[0].to_ne_bytes();
        assert_eq!(first, [6, 2, 2, 1, 1, 0, 0, 0]);
        let second = FatalFault { processor: 0x102, ..FAULT }.encode(Version::V2)[0].to_ne_bytes();
        assert_eq!(second[..4], [6, 2, 2, 1]);
        assert_eq!(u16::from_ne_bytes([second[4], second[5]]), 0x102);
        for version in [Version::V1, Version::V2] {
            assert_eq!(FatalFault::decode(version, FAULT.encode(version)), Some(FAULT));
        }
        assert_eq!(FatalFault::decode(Version::V1, [3, 0, 0]), None);
    }

    #[test]
    fn a_want_of_memory_is_nobodys_fault() {
        assert!(Reason::new(1).is_culprits() && Reason::new(2).is_culprits() && Reason::new(99).is_culprits());
        assert!(!Reason::new(4).is_culprits() && !Reason::new(5).is_culprits());
    }
}
