//! Notices of the patched UVM module: the records that `/dev/nvidia-uvm-mps` gives to a reader.
//!
//! Mirrors `uvm-patch/uapi/uvm_mps.h`, which says what each field means; a test here compiles that header and compares
//! every offset, size and number. Each record has 128 bytes. A newer module may use types, verdicts and flags that have
//! no name here: they are kept as numbers ([`open_enum!`](macro@crate::open_enum)).
//!
//! ```text
//!  0 magic, version, size   8 seq   16 time   24 GPU time   32 type, count   40 pids   48 VA space   56 GPU
//! 72 address   80 instance pointer   88 runlist, channel, TSG, VEID   104 fault source   112 fault facts   124 flags
//! ```

pub mod control;
mod numbers;

pub use numbers::{AccessType, CLASS_GLOBAL, FaultType, Mode, NoticeType, Sink, Verdict, class_text, flag, untried};

/// The first four bytes of every record, `MPSI`.
pub const MAGIC: u32 = 0x4953_504d;
/// The version of the layout that this module reads.
pub const ABI_VERSION: u16 = 1;
/// Bytes of a record. A read gives a whole number of records.
pub const RECORD_SIZE: usize = RECORD_BYTES as usize;
const RECORD_BYTES: u16 = 128;
/// A channel, TSG, runlist or VEID that is not known.
pub const UNKNOWN: u32 = u32::MAX;
/// A policy's `kill_ms` that means the kernel never kills.
pub const NEVER: u32 = u32::MAX;

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoticeError {
    /// Fewer bytes than a record has.
    #[error("{0} bytes are less than a record of {RECORD_SIZE}")]
    Short(usize),
    /// Not from this device.
    #[error("magic {0:#010x} is not a notice's")]
    Magic(u32),
    /// A layout that this program does not know.
    #[error("layout version {0} of {1} bytes is not supported")]
    Version(u16, u16),
}

/// A field's value in the record's bytes.
trait Wire: Copy {
    const SIZE: usize = size_of::<Self>();
    fn get(bytes: &[u8]) -> Self;
    fn put(self, bytes: &mut [u8]);
}

macro_rules! wire_number {
    ($($number:ty),+) => { $(
        impl Wire for $number {
            fn get(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("a field's slice has the field's size"))
            }
            fn put(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    )+ };
}
wire_number!(u8, u16, u32, u64);

macro_rules! wire_enum {
    ($($name:ty),+) => { $(
        impl Wire for $name {
            fn get(bytes: &[u8]) -> Self {
                Self(Wire::get(bytes))
            }
            fn put(self, bytes: &mut [u8]) {
                self.0.put(bytes);
            }
        }
    )+ };
}
wire_enum!(NoticeType, Verdict, Sink, FaultType, AccessType);

impl Wire for [u8; 16] {
    fn get(bytes: &[u8]) -> Self {
        bytes.try_into().expect("a field's slice has the field's size")
    }
    fn put(self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self);
    }
}

/// One table for the struct, both directions and the comparison with the C header.
macro_rules! record {
    ($( $(#[$meta:meta])* $field:ident: $ty:ty = $at:literal, )+) => {
        /// One record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Notice {
            $( $(#[$meta])* pub $field: $ty, )+
        }

        impl Notice {
            fn read(bytes: &[u8; RECORD_SIZE]) -> Self {
                Self { $( $field: Wire::get(&bytes[$at..$at + <$ty as Wire>::SIZE]), )+ }
            }

            fn write(&self, bytes: &mut [u8; RECORD_SIZE]) {
                $( self.$field.put(&mut bytes[$at..$at + <$ty as Wire>::SIZE]); )+
            }
        }

        #[cfg(test)]
        const LAYOUT: &[(&str, usize, usize)] = &[ $( (stringify!($field), $at, <$ty as Wire>::SIZE), )+ ];
    };
}

record! {
    /// The record's number, counted by the module; a gap is a loss.
    seq: u64 = 8,
    /// `CLOCK_BOOTTIME`, nanoseconds.
    time_ns: u64 = 16,
    /// The fault's own time stamp, nanoseconds, 0 if none.
    gpu_time_ns: u64 = 24,
    /// What the record tells.
    kind: NoticeType = 32,
    /// Lost or left-out records, or faults merged into one.
    count: u32 = 36,
    /// The client's process in the reader's PID namespace, 0 if not visible there.
    tgid: u32 = 40,
    /// The same in the initial PID namespace.
    tgid_init: u32 = 44,
    /// The client, a number never used again while the module is loaded; 0 if unknown.
    va_space_id: u64 = 48,
    /// The GPU, zeros if none.
    gpu_uuid: [u8; 16] = 56,
    /// The faulting address, a page's first; for `REFUSED` the ioctl.
    address: u64 = 72,
    /// The channel's instance block; bit 0 means system memory.
    instance_ptr: u64 = 80,
    /// The runlist, or [`UNKNOWN`].
    runlist_id: u32 = 88,
    /// The hardware channel, exact for channel records and non-replayable faults, else [`UNKNOWN`].
    channel_id: u32 = 92,
    /// The time-slice group, or [`UNKNOWN`].
    tsg_id: u32 = 96,
    /// The subcontext, relative to the MIG instance, or [`UNKNOWN`].
    ve_id: u32 = 100,
    /// The faulting MMU client.
    client_id: u16 = 104,
    /// Its GPC.
    gpc_id: u16 = 106,
    /// Its micro-TLB.
    utlb_id: u16 = 108,
    /// Its MMU engine.
    mmu_engine_id: u16 = 110,
    /// What was wrong with the access.
    fault_type: FaultType = 112,
    /// What the access wanted.
    access_type: AccessType = 113,
    /// A letter of the table in uvm-fault-isolation(4).
    fault_class: u8 = 114,
    /// The driver's `UvmEventFatalReason`.
    fatal_reason: u8 = 115,
    /// The driver's `UVM_GPU_CHANNEL_ENGINE_TYPE`.
    engine_type: u8 = 116,
    /// What the client has at the address.
    range_type: u8 = 117,
    /// What was done about the fault.
    verdict: Verdict = 118,
    /// How.
    sink: Sink = 119,
    /// The driver's status where the verdict is `FAILED`.
    nv_status: u32 = 120,
    /// Bits of [`flag`].
    flags: u32 = 124,
}

impl Notice {
    /// Reads one record.
    ///
    /// # Errors
    /// Too few bytes, a foreign magic, or a layout that is not [`ABI_VERSION`]'s.
    pub fn decode(bytes: &[u8]) -> Result<Self, NoticeError> {
        let Some(bytes) = bytes.first_chunk::<RECORD_SIZE>() else {
            return Err(NoticeError::Short(bytes.len()));
        };
        let magic = u32::get(&bytes[0..4]);
        if magic != MAGIC {
            return Err(NoticeError::Magic(magic));
        }
        let (version, size) = (u16::get(&bytes[4..6]), u16::get(&bytes[6..8]));
        if version != ABI_VERSION || usize::from(size) != RECORD_SIZE {
            return Err(NoticeError::Version(version, size));
        }
        Ok(Self::read(bytes))
    }

    /// The record's bytes, as the module writes them.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD_SIZE] {
        let mut bytes = [0; RECORD_SIZE];
        MAGIC.put(&mut bytes[0..4]);
        ABI_VERSION.put(&mut bytes[4..6]);
        RECORD_BYTES.put(&mut bytes[6..8]);
        self.write(&mut bytes);
        bytes
    }

    /// The GPU as NVIDIA's tools name it, `GPU-…`; `None` when the record is of none.
    #[must_use]
    pub fn gpu(&self) -> Option<String> {
        if self.gpu_uuid == [0; 16] {
            return None;
        }
        let mut text = String::from("GPU-");
        for (n, byte) in self.gpu_uuid.iter().enumerate() {
            if matches!(n, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            for digit in [byte >> 4, byte & 0xf] {
                text.extend(char::from_digit(u32::from(digit), 16));
            }
        }
        Some(text)
    }

    /// Whether all of `bits` (see [`flag`]) are set.
    #[must_use]
    pub const fn has(&self, bits: u32) -> bool {
        self.flags & bits == bits
    }
}

/// The records of one read, in order. What remains after the last whole record is an error of its own.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<Notice, NoticeError>> {
    bytes.chunks(RECORD_SIZE).map(Notice::decode)
}

#[cfg(test)]
mod tests;
