//! The numbers in a record, by name.

use crate::open_enum;

open_enum! {
    /// What a record tells.
    pub struct NoticeType: u32 {
        /// This reader lost `count` records.
        OVERRUN = 1,
        /// A channel was registered.
        CHANNEL_ADD = 2,
        /// A channel was detached.
        CHANNEL_DEL = 3,
        /// A process initialised a UVM descriptor.
        VASPACE_ADD = 4,
        /// The last trace of a client is gone.
        VASPACE_DEL = 5,
        /// A fatal fault; the verdict says what was done about it.
        FATAL_FAULT = 6,
        /// A fault of a dead subcontext: the driver cancels the whole TSG.
        ZOMBIE_FAULT = 7,
        /// The state that precedes the events is complete.
        SNAPSHOT_END = 8,
        /// `count` fault records of this client were left out.
        SUPPRESSED = 9,
        /// The kernel sent SIGKILL to this client.
        KILLED = 10,
        /// A client died with channels: its page tables are kept for a while.
        HELD = 11,
        /// They are no longer kept.
        HOLD_END = 12,
        /// A condemned client asked for a mapping; `address` is the ioctl.
        REFUSED = 13,
    }
}

open_enum! {
    /// What was done about a fatal fault.
    pub struct Verdict: u8 {
        /// The module does not isolate: the driver cancelled.
        PASSED = 0,
        /// The first fault of this client, made harmless.
        ISOLATED = 1,
        /// A later fault of a condemned client, made harmless.
        REPEAT = 2,
        /// Nobody shares the TSG: left to the driver.
        NOT_SHARED = 3,
        /// A class that cannot be isolated.
        CLASS = 4,
        /// Tried without success; `nv_status` says why.
        FAILED = 5,
        /// This client has used up its sinks or retries.
        LIMIT = 6,
        /// The module has no entry for the client.
        STRANGER = 7,
        /// Isolation was never tried on such a machine; `nv_status` has bits of [`untried`].
        UNTRIED = 8,
    }
}

impl Verdict {
    /// Whether the other clients of the TSG are unharmed.
    #[must_use]
    pub const fn is_harmless(self) -> bool {
        matches!(self, Self::ISOLATED | Self::REPEAT)
    }
}

open_enum! {
    /// How a fault was made harmless.
    pub struct Sink: u8 {
        /// It was not.
        NONE = 0,
        /// Sparse entries: loads give 0, stores vanish.
        SPARSE = 1,
        /// One private 4 KiB page.
        PAGE = 2,
        /// An existing mapping, rewritten to sparse entries.
        REMAP_SPARSE = 3,
        /// An existing mapping, rewritten to the private page.
        REMAP_PAGE = 4,
        /// Dead managed memory, served as if the access were allowed.
        PERMIT = 5,
    }
}

open_enum! {
    /// The driver's `uvm_fault_type_t`: the same numbers from 535 to 595, where a later one only has more of them.
    pub struct FaultType: u8 {
        /// No entry in a page directory.
        INVALID_PDE = 0,
        /// No entry in a page table.
        INVALID_PTE = 1,
        /// An atomic operation where none is allowed.
        ATOMIC = 2,
        /// A store to read-only memory.
        WRITE = 3,
        /// A load from write-only memory.
        READ = 4,
        /// A page size that the directory does not have.
        PDE_SIZE = 5,
        /// An address beyond the hardware's limit.
        VA_LIMIT_VIOLATION = 6,
        /// No instance block.
        UNBOUND_INST_BLOCK = 7,
        /// Privileged memory.
        PRIV_VIOLATION = 8,
        /// A pitch that the mask forbids.
        PITCH_MASK_VIOLATION = 9,
        /// Work that created work.
        WORK_CREATION = 10,
        /// An aperture that the access does not support.
        UNSUPPORTED_APERTURE = 11,
        /// Compressed memory that could not be read.
        COMPRESSION_FAILURE = 12,
        /// A page kind that the access does not support.
        UNSUPPORTED_KIND = 13,
        /// A region that may not be touched.
        REGION_VIOLATION = 14,
        /// Memory with an uncorrectable error.
        POISONED = 15,
        /// Confidential memory.
        CC_VIOLATION = 16,
    }
}

impl FaultType {
    /// What an operator reads, such as `invalid PTE`.
    #[must_use]
    pub fn text(self) -> String {
        match self.name() {
            Some(name) => {
                let words: Vec<String> = name
                    .split('_')
                    .map(|word| match word {
                        "PDE" | "PTE" | "VA" | "CC" => word.to_owned(),
                        "INST" => "instance".to_owned(),
                        "PRIV" => "privilege".to_owned(),
                        other => other.to_lowercase(),
                    })
                    .collect();
                words.join(" ")
            }
            None => format!("fault type {}", self.0),
        }
    }
}

/// What a record's `fault_class` means, as the table in uvm-fault-isolation(4) has it; `None` for a later letter.
#[must_use]
pub const fn class_text(class: u8) -> Option<&'static str> {
    Some(match class {
        b'A' => "nothing at the address",
        b'B' => "external range, nothing mapped there",
        b'C' => "external range, store or atomic denied",
        b'D' => "managed memory, denied",
        b'E' => "heterogeneous memory management",
        b'F' => "page tables of the CPU",
        b'G' => "address out of the page tables' reach",
        b'H' => "address beyond the hardware's limit",
        b'I' => "kind, privilege, compression or aperture",
        b'J' => "poisoned memory",
        b'K' => "unbound instance block",
        b'L' => "the driver's own ranges",
        b'M' => "prefetch",
        b'P' => "dead subcontext",
        CLASS_GLOBAL => "out of memory, ECC or internal error",
        _ => return None,
    })
}

/// The class of errors that are nobody's fault: the driver then cancels a whole batch of faults, innocent ones included.
pub const CLASS_GLOBAL: u8 = b'Q';

open_enum! {
    /// The driver's `uvm_fault_access_type_t`: the same numbers from 535 to 595.
    pub struct AccessType: u8 {
        /// A prefetch.
        PREFETCH = 0,
        /// A load.
        READ = 1,
        /// A store.
        WRITE = 2,
        /// An atomic operation that the GPU may do in its cache.
        ATOMIC_WEAK = 3,
        /// An atomic operation that others must see.
        ATOMIC_STRONG = 4,
    }
}

open_enum! {
    /// What the module does about faults.
    pub struct Mode: u32 {
        /// No records, the driver's own behaviour.
        OFF = 0,
        /// Records, the driver's own behaviour.
        OBSERVE = 1,
        /// Records, and fatal faults end in sinks.
        ISOLATE = 2,
    }
}

/// What isolation was never tried on, as bits.
pub mod untried {
    /// A driver version that is on no list.
    pub const DRIVER: u32 = 1;
    /// Page tables of another format.
    pub const FORMAT: u32 = 2;
    /// A client on several GPUs.
    pub const GPUS: u32 = 4;
    /// A GPU in MIG mode.
    pub const MIG: u32 = 8;
    /// Heterogeneous memory management.
    pub const HMM: u32 = 16;
    /// Each with what to call it.
    pub const ALL: [(u32, &str); 5] = [
        (DRIVER, "this driver's version"),
        (FORMAT, "this GPU's page tables"),
        (GPUS, "a client on several GPUs"),
        (MIG, "MIG"),
        (HMM, "heterogeneous memory management"),
    ];
}

/// Bits of [`Notice::flags`].
pub mod flag {
    /// An SM's fault; without it, a copy engine's or the host's.
    pub const REPLAYABLE: u32 = 1 << 0;
    /// `ve_id` is meaningful.
    pub const SUBCONTEXT: u32 = 1 << 1;
    /// The kernel has sent SIGKILL.
    pub const KILL_SENT: u32 = 1 << 2;
    /// State at the time of opening, not an event.
    pub const SNAPSHOT: u32 = 1 << 3;
    /// The client has had an isolated fault.
    pub const CONDEMNED: u32 = 1 << 4;
    /// The client is dead and its page tables are kept.
    pub const HELD: u32 = 1 << 5;
}
