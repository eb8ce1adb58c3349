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

use crate::open_enum;

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
wire_enum!(NoticeType, Verdict, Sink);

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
    /// The driver's `uvm_fault_type_t`.
    fault_type: u8 = 112,
    /// The driver's `uvm_fault_access_type_t`.
    access_type: u8 = 113,
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
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// `name numbers…` as the C program prints them, or why it cannot be built here.
    fn c_layout() -> Result<BTreeMap<String, Vec<u64>>, String> {
        let patch = Path::new(env!("CARGO_MANIFEST_DIR")).join("../uvm-patch");
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let program = dir.path().join("abi");
        let cc = Command::new("cc")
            .arg("-I")
            .arg(patch.join("uapi"))
            .arg(patch.join("core/test/abi_test.c"))
            .arg("-o")
            .arg(&program)
            .output()
            .map_err(|e| format!("no C compiler: {e}"))?;
        assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
        let output = Command::new(&program).output().expect("the program was just built");
        let text = String::from_utf8(output.stdout).expect("it prints ASCII");
        Ok(text
            .lines()
            .map(|line| {
                let mut words = line.split(' ');
                let name = words.next().expect("a name").to_owned();
                (name, words.map(|n| n.parse().expect("a number")).collect())
            })
            .collect())
    }

    #[test]
    fn every_offset_size_and_number_is_that_of_the_c_header() {
        let c = match c_layout() {
            Ok(c) => c,
            Err(reason) => {
                println!("Skipped({reason})");
                return;
            }
        };
        let head = [("magic", 0, 4), ("version", 4, 2), ("size", 6, 2)];
        for (name, at, size) in head.iter().chain(LAYOUT) {
            let name = if *name == "kind" { "type" } else { name };
            assert_eq!(c[&format!("record.{name}")], [*at as u64, *size as u64], "{name}");
        }
        assert_eq!(c.keys().filter(|k| k.starts_with("record.")).count(), head.len() + LAYOUT.len());
        assert_eq!(LAYOUT.iter().map(|f| f.2).sum::<usize>() + 8, RECORD_SIZE, "no padding");

        let number = |name: &str| c[&format!("UVM_MPS_{name}")][0];
        assert_eq!(number("MAGIC"), u64::from(MAGIC));
        assert_eq!(number("ABI_VERSION"), u64::from(ABI_VERSION));
        assert_eq!(number("RECORD_SIZE"), RECORD_SIZE as u64);
        assert_eq!(number("UNKNOWN"), u64::from(UNKNOWN));
        assert_eq!(number("NEVER"), u64::from(NEVER));
        let flags = ["REPLAYABLE", "SUBCONTEXT", "KILL_SENT", "SNAPSHOT", "CONDEMNED", "HELD"];
        let ours = [flag::REPLAYABLE, flag::SUBCONTEXT, flag::KILL_SENT, flag::SNAPSHOT, flag::CONDEMNED, flag::HELD];
        for (name, value) in flags.iter().zip(ours) {
            assert_eq!(number(&format!("F_{name}")), u64::from(value), "{name}");
        }
        let (mut types, mut verdicts, mut sinks, mut modes) = (0, 0, 0, 0);
        for n in 0..=u8::MAX {
            if let Some(name) = NoticeType(n.into()).name() {
                assert_eq!(number(name), u64::from(n));
                types += 1;
            }
            if let Some(name) = Verdict(n).name() {
                assert_eq!(number(name), u64::from(n));
                verdicts += 1;
            }
            if let Some(name) = Sink(n).name() {
                assert_eq!(number(&format!("SINK_{name}")), u64::from(n));
                sinks += 1;
            }
            if let Some(name) = Mode(n.into()).name() {
                assert_eq!(number(name), u64::from(n));
                modes += 1;
            }
        }
        assert_eq!((types, verdicts, sinks, modes), (13, 8, 6, 3));
    }

    fn sample() -> Notice {
        let mut bytes = [0; RECORD_SIZE];
        for (n, byte) in (0u8..).zip(&mut bytes) {
            *byte = n;
        }
        Notice::read(&bytes)
    }

    #[test]
    fn a_record_reads_back_what_was_written() {
        let notice = sample();
        assert_eq!(Notice::decode(&notice.encode()), Ok(notice));
        assert_eq!(notice.seq, 0x0f0e_0d0c_0b0a_0908);
        assert_eq!(notice.flags, 0x7f7e_7d7c);
    }

    #[test]
    fn foreign_short_and_newer_bytes_are_told_apart() {
        let good = sample().encode();
        assert_eq!(Notice::decode(&good[..127]), Err(NoticeError::Short(127)));
        let mut bytes = good;
        bytes[0] ^= 1;
        assert_eq!(Notice::decode(&bytes), Err(NoticeError::Magic(MAGIC ^ 1)));
        let mut bytes = good;
        bytes[4] = 2;
        assert_eq!(Notice::decode(&bytes), Err(NoticeError::Version(2, 128)));
        let mut bytes = good;
        bytes[6] = 136;
        assert_eq!(Notice::decode(&bytes), Err(NoticeError::Version(1, 136)));
    }

    #[test]
    fn one_read_gives_its_records_in_order_and_names_a_torn_end() {
        let mut first = sample();
        first.seq = 1;
        let mut second = sample();
        second.seq = 2;
        let mut bytes = [first.encode(), second.encode()].concat();
        bytes.extend([0; 5]);
        let all: Vec<_> = records(&bytes).collect();
        assert_eq!(all, [Ok(first), Ok(second), Err(NoticeError::Short(5))]);
    }

    #[test]
    fn a_harmless_verdict_is_one_of_two() {
        let harmless: Vec<_> = (0..=u8::MAX).map(Verdict).filter(|v| v.is_harmless()).collect();
        assert_eq!(harmless, [Verdict::ISOLATED, Verdict::REPEAT]);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_what_encodes_back_or_to_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..300), real: bool) {
            if real && bytes.len() >= 8 {
                bytes[..8].copy_from_slice(&sample().encode()[..8]);
            }
            match Notice::decode(&bytes) {
                Ok(notice) => prop_assert_eq!(&notice.encode()[..], &bytes[..RECORD_SIZE]),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
