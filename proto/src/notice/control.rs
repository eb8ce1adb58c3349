//! Requests to the notice device: their numbers, and the structures that go with them.
//!
//! The numbers carry the structure's size, as `_IOR` and `_IOW` of `linux/ioctl.h` make them; the tests of this module
//! compare them, every size and every offset with the C header.

use super::{Mode, Wire};

const WRITES: u32 = 1;
const READS: u32 = 2;
const DIRECTION_SHIFT: u32 = 30;
const SIZE_SHIFT: u32 = 16;
const TYPE_SHIFT: u32 = 8;
/// The letter of the device's requests, `U`.
const LETTER: u32 = 'U' as u32;

const fn request(direction: u32, number: u32, size: usize) -> u32 {
    // Every structure here is far below the 16 KiB that the field can hold.
    let [low, high, ..] = size.to_le_bytes();
    direction << DIRECTION_SHIFT | u32::from_le_bytes([low, high, 0, 0]) << SIZE_SHIFT | LETTER << TYPE_SHIFT | number
}

/// Asks for [`Info`].
pub const INFO: u32 = request(READS, 0xe0, Info::SIZE);
/// Sets the [`Policy`]; needs `CAP_SYS_ADMIN` and a descriptor open for writing.
pub const SET_POLICY: u32 = request(WRITES, 0xe1, Policy::SIZE);
/// Asks for the [`Policy`].
pub const GET_POLICY: u32 = request(READS, 0xe2, Policy::SIZE);
/// Asks for [`Stats`].
pub const GET_STATS: u32 = request(READS, 0xe3, Stats::SIZE);
/// Asks for the description of what is alive once more. No argument.
pub const SNAPSHOT: u32 = request(0, 0xe4, 0);
/// Promises to end a condemned client: the kernel's deadline starts anew. As [`SET_POLICY`].
pub const CLAIM: u32 = request(WRITES, 0xe5, Claim::SIZE);
/// Gives up a dead client's page tables. As [`SET_POLICY`].
pub const RELEASE: u32 = request(WRITES, 0xe6, Claim::SIZE);

/// A policy flag: isolate a client even where nobody shares its time-slice group.
pub const ALONE: u32 = 1 << 0;

impl Wire for Mode {
    fn get(bytes: &[u8]) -> Self {
        Self(Wire::get(bytes))
    }
    fn put(self, bytes: &mut [u8]) {
        self.0.put(bytes);
    }
}

impl Wire for [u8; 32] {
    fn get(bytes: &[u8]) -> Self {
        bytes.try_into().expect("a field's slice has the field's size")
    }
    fn put(self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self);
    }
}

/// One table for each structure, both directions and the comparison with the C header.
macro_rules! structure {
    ($(#[$smeta:meta])* $name:ident = $size:literal { $( $(#[$meta:meta])* $field:ident: $ty:ty = $at:literal, )+ }) => {
        $(#[$smeta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$meta])* pub $field: $ty, )+
        }

        impl $name {
            /// Bytes of the structure.
            pub const SIZE: usize = $size;

            /// Reads it as the module wrote it.
            #[must_use]
            pub fn decode(bytes: &[u8; Self::SIZE]) -> Self {
                Self { $( $field: Wire::get(&bytes[$at..$at + <$ty as Wire>::SIZE]), )+ }
            }

            /// Its bytes, as the module reads them.
            #[must_use]
            pub fn encode(&self) -> [u8; Self::SIZE] {
                let mut bytes = [0; Self::SIZE];
                $( self.$field.put(&mut bytes[$at..$at + <$ty as Wire>::SIZE]); )+
                bytes
            }

            #[cfg(test)]
            const LAYOUT: &[(&str, usize, usize)] = &[ $( (stringify!($field), $at, <$ty as Wire>::SIZE), )+ ];
        }
    };
}

structure! {
    /// What the module is.
    Info = 48 {
        /// The layout's version, [`ABI_VERSION`](super::ABI_VERSION) for the one read here.
        version: u32 = 0,
        /// Bytes of a record.
        record_size: u32 = 4,
        /// Records that the module keeps for a slow reader.
        ring_records: u32 = 8,
        /// 1 where isolation is allowed on this driver version.
        tested: u32 = 12,
        /// The driver's version, NUL terminated.
        driver: [u8; 32] = 16,
    }
}

impl Info {
    /// The driver's version, such as `580.159.04`.
    #[must_use]
    pub fn driver_version(&self) -> String {
        let end = self.driver.iter().position(|byte| *byte == 0).unwrap_or(self.driver.len());
        String::from_utf8_lossy(&self.driver[..end]).into_owned()
    }
}

structure! {
    /// What the module does about faults and sudden deaths.
    Policy = 24 {
        /// [`ABI_VERSION`](super::ABI_VERSION).
        version: u32 = 0,
        /// What it does about faults.
        mode: Mode = 4,
        /// Milliseconds from a client's first isolated fault to SIGKILL, or [`NEVER`](super::NEVER).
        kill_ms: u32 = 8,
        /// Milliseconds for which a suddenly dead client's page tables are kept, 60,000 at most.
        hold_ms: u32 = 12,
        /// Sinks of one client, 4,096 at most.
        max_sinks: u32 = 16,
        /// [`ALONE`] or nothing.
        flags: u32 = 20,
    }
}

structure! {
    /// A client that somebody promises to end, or gives up.
    Claim = 16 {
        /// [`Notice::va_space_id`](super::Notice::va_space_id) of the client.
        va_space_id: u64 = 0,
        /// Milliseconds until the kernel's SIGKILL, or [`NEVER`](super::NEVER); for [`RELEASE`] of no meaning.
        kill_ms: u32 = 8,
        /// 0.
        reserved: u32 = 12,
    }
}

structure! {
    /// What the module has counted since it was loaded.
    Stats = 96 {
        /// Records written.
        records: u64 = 0,
        /// Records that readers lost.
        lost: u64 = 8,
        /// Fault records left out, of clients that fault too often.
        suppressed: u64 = 16,
        /// Fatal faults.
        faults: u64 = 24,
        /// Fatal faults made harmless.
        isolated: u64 = 32,
        /// Fatal faults left to the driver.
        passed: u64 = 40,
        /// Sinks in use or given back.
        sinks: u64 = 48,
        /// Clients that the kernel killed.
        killed: u64 = 56,
        /// Faults of dead subcontexts.
        zombies: u64 = 64,
        /// Clients whose page tables were kept.
        held: u64 = 72,
        /// Mappings refused to condemned clients.
        refused: u64 = 80,
        /// Address spaces alive now.
        clients: u64 = 88,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// A field's name, offset and size.
    type Field = (&'static str, usize, usize);

    /// Structures by their C names, with their sizes and layouts.
    fn structures() -> [(&'static str, usize, &'static [Field]); 4] {
        [
            ("uvm_mps_info", Info::SIZE, Info::LAYOUT),
            ("uvm_mps_policy", Policy::SIZE, Policy::LAYOUT),
            ("uvm_mps_claim", Claim::SIZE, Claim::LAYOUT),
            ("uvm_mps_stats", Stats::SIZE, Stats::LAYOUT),
        ]
    }

    #[test]
    fn every_request_size_and_offset_is_that_of_the_c_header() {
        let mut source = "#include <stddef.h>\n#include <sys/ioctl.h>\n#include \"uvm_mps.h\"\n".to_owned();
        let mut check = |condition: String| {
            writeln!(source, "_Static_assert({condition}, \"{condition}\");").expect("a string takes any text");
        };
        let numbers = [
            ("INFO", INFO),
            ("SET_POLICY", SET_POLICY),
            ("GET_POLICY", GET_POLICY),
            ("GET_STATS", GET_STATS),
            ("SNAPSHOT", SNAPSHOT),
            ("CLAIM", CLAIM),
            ("RELEASE", RELEASE),
        ];
        for (name, number) in numbers {
            check(format!("UVM_MPS_IOC_{name} == {number}u"));
        }
        check(format!("UVM_MPS_ALONE == {ALONE}u"));
        for (name, size, layout) in structures() {
            check(format!("sizeof(struct {name}) == {size}"));
            for (field, at, bytes) in layout {
                check(format!("offsetof(struct {name}, {field}) == {at}"));
                check(format!("sizeof(((struct {name} *)0)->{field}) == {bytes}"));
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("control.c");
        std::fs::write(&file, source).unwrap();
        let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../uvm-patch/uapi");
        let output = match Command::new("cc").arg("-fsyntax-only").arg("-I").arg(header).arg(file).output() {
            Ok(output) => output,
            Err(error) => {
                println!("Skipped(no C compiler: {error})");
                return;
            }
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn a_structure_reads_back_what_was_written_and_has_no_gap() {
        for (name, size, layout) in structures() {
            let mut end = 0;
            for (field, at, bytes) in layout {
                assert_eq!(*at, end, "{name}.{field}");
                end += bytes;
            }
            assert_eq!(end, size, "{name}");
        }
        let policy = Policy { version: 1, mode: Mode::ISOLATE, kill_ms: 2, hold_ms: 3, max_sinks: 4, flags: ALONE };
        assert_eq!(Policy::decode(&policy.encode()), policy);
        let claim = Claim { va_space_id: 1 << 40, kill_ms: 7, reserved: 0 };
        assert_eq!(Claim::decode(&claim.encode()), claim);
    }

    #[test]
    fn the_driver_version_ends_at_its_nul_or_at_the_fields_end() {
        let mut info = Info { version: 1, record_size: 128, ring_records: 4096, tested: 1, driver: [0; 32] };
        assert_eq!(info.driver_version(), "");
        info.driver[..10].copy_from_slice(b"580.159.04");
        assert_eq!(info.driver_version(), "580.159.04");
        info.driver = [b'9'; 32];
        assert_eq!(info.driver_version(), "9".repeat(32));
    }
}
