//! The structures of the tools ioctls by release: `uvm_ioctl.h` of NVIDIA's open kernel modules, 535.288.01, 550.163.01,
//! 555.58.02, 560.35.03, 565.57.01 and 580.142.
//!
//! As the kernel does, the release's own number of bytes is copied in and out, whatever the caller has there.

/// Branches that have the same structures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// Up to 545, and 550 before 550.54.
    Before550,
    /// 550.54 to 555.
    From550,
    /// 560.
    From560,
    /// From 565 on.
    From565,
}

/// `UVM_TOOLS_INIT_EVENT_TRACKER` and its second version.
pub(crate) const INIT: [u64; 2] = [56, 76];
/// `UVM_TOOLS_SET_NOTIFICATION_THRESHOLD`.
pub(crate) const SET_THRESHOLD: u64 = 57;
/// `UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS`.
pub(crate) const ENABLE_EVENTS: u64 = 58;
/// `UVM_TOOLS_GET_PROCESSOR_UUID_TABLE` and its second version, on a client's descriptor.
pub(crate) const TABLE: [u64; 2] = [64, 77];

/// `UvmToolsEventQueueVersion`, and the row of entries that goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// 64 bytes an entry.
    V1,
    /// 72 bytes an entry.
    V2,
}

impl Version {
    fn of_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            _ => None,
        }
    }

    /// Bytes of an entry.
    pub(crate) const fn entry_size(self) -> usize {
        match self {
            Self::V1 => 64,
            Self::V2 => 72,
        }
    }

    /// Places of the processor table.
    pub(crate) const fn processors(self) -> usize {
        match self {
            Self::V1 => 33,
            Self::V2 => 257,
        }
    }
}

/// An argument as the kernel has it: so many bytes, and where in them the status goes.
#[derive(Debug)]
pub(crate) struct Argument {
    pub(crate) bytes: Vec<u8>,
    pub(crate) status_at: usize,
}

impl Argument {
    /// A 32-bit number at an offset.
    pub(crate) fn number(&self, offset: usize) -> u32 {
        u32::from_le_bytes(core::array::from_fn(|index| self.bytes[offset + index]))
    }

    /// A 64-bit number at an offset.
    pub(crate) fn wide(&self, offset: usize) -> u64 {
        u64::from_le_bytes(core::array::from_fn(|index| self.bytes[offset + index]))
    }

    /// Puts a 32-bit number.
    pub(crate) fn put(&mut self, offset: usize, number: u32) {
        self.bytes[offset..offset + 4].copy_from_slice(&number.to_le_bytes());
    }
}

impl Release {
    /// The branch of `MPS_SIM_UVM_RELEASE`.
    pub(crate) fn load() -> Self {
        let number = std::env::var("MPS_SIM_UVM_RELEASE").ok().and_then(|text| text.parse::<u32>().ok());
        match number.unwrap_or(580) {
            0..550 => Self::Before550,
            550..560 => Self::From550,
            560..565 => Self::From560,
            _ => Self::From565,
        }
    }

    /// Bytes of a request's structure, and the offset of its status; `None` when the release does not know it.
    pub(crate) fn shape(self, request: u64) -> Option<(usize, usize)> {
        let is_new = self == Self::From565;
        Some(match request {
            56 => match self {
                Self::Before550 | Self::From565 => (56, 48),
                Self::From550 => (64, 48),
                Self::From560 => (56, 52),
            },
            76 if is_new => (56, 48),
            SET_THRESHOLD => (8, 4),
            ENABLE_EVENTS => (16, 8),
            64 => match self {
                Self::Before550 | Self::From560 => (16, 12),
                Self::From550 => (24, 12),
                Self::From565 => (16, 8),
            },
            77 if is_new => (16, 8),
            _ => return None,
        })
    }

    /// The version that a tracker gets; `None` for a number that there is none of.
    pub(crate) fn tracker_version(self, request: u64, argument: &mut Argument) -> Option<Version> {
        match self {
            Self::Before550 => Some(Version::V1),
            Self::From550 => {
                let version = Version::of_number(argument.number(52))?;
                argument.put(56, argument.number(52));
                Some(version)
            }
            Self::From560 => Version::of_number(argument.number(48)),
            Self::From565 => Some(if request == INIT[1] { Version::V2 } else { Version::V1 }),
        }
    }

    /// The version and the places of the table that are written; `None` for a number that there is none of.
    pub(crate) fn table_version(self, request: u64, argument: &mut Argument) -> Option<(Version, usize)> {
        let whole = |version: Version| (version, version.processors());
        match self {
            Self::Before550 => {
                argument.put(8, 33);
                Some(whole(Version::V1))
            }
            Self::From550 => {
                let count = usize::try_from(argument.number(8)).unwrap_or(usize::MAX);
                let (version, places) = match count {
                    0 => whole(Version::V1),
                    count => (Version::V2, count.min(Version::V2.processors())),
                };
                argument.put(16, if version == Version::V1 { 1 } else { 2 });
                Some((version, places))
            }
            Self::From560 => Version::of_number(argument.number(8)).map(whole),
            Self::From565 => Some(whole(if request == TABLE[1] { Version::V2 } else { Version::V1 })),
        }
    }
}
