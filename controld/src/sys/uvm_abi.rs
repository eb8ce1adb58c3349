//! Numbers and layouts of the UVM tools interface.
//!
//! Read off the headers `uvm_ioctl.h` and `uvm_types.h` and the code in `uvm_tools.c` and `uvm_api.h` of NVIDIA's open
//! kernel modules, releases 535.288.01, 545.29.06, 550.40.07, 550.54.14, 550.163.01, 555.58.02, 560.35.03, 565.57.01,
//! 570.211.01, 580.142 and 595.45.04. An ioctl's request is its bare number; the kernel copies as many bytes as its own
//! release has in the structure, in and out, and answers 0 with the outcome in a status word. Where that word lies in
//! `INIT_EVENT_TRACKER` (56) differs:
//!
//! | release | bytes from 48 on |
//! |---|---|
//! | up to 545 and the first of 550 | status |
//! | 550.54 to 555 | status, version wanted (in), version granted (out) |
//! | 560 | version wanted (in), status |
//! | from 565 | status; and `INIT_EVENT_TRACKER_V2` (76) with the same structure |
//!
//! So 76 is tried first, which answers `EINVAL` before 565. Then 56 with "version 1 wanted" in both places: no driver
//! has a status 1 (`NV_ERR_BROKEN_FB`) for this call, so a first word that is still 1 was not written to, and the status
//! is in the second.
//!
//! `GET_PROCESSOR_UUID_TABLE` is a call on a client's own descriptor: 77 from 565 with the status at byte 8, and 64
//! before, with the status at byte 12 and at byte 8 the count of entries (0 asks 550.54 to 555 for the table of version
//! 1) or, in 560, the version wanted.

/// `UVM_TOOLS_INIT_EVENT_TRACKER`.
pub(crate) const INIT_EVENT_TRACKER: u32 = 56;
/// `UVM_TOOLS_SET_NOTIFICATION_THRESHOLD`.
pub(crate) const SET_NOTIFICATION_THRESHOLD: u32 = 57;
/// `UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS`.
pub(crate) const EVENT_QUEUE_ENABLE_EVENTS: u32 = 58;
/// `UVM_TOOLS_GET_PROCESSOR_UUID_TABLE`.
pub(crate) const GET_PROCESSOR_UUID_TABLE: u32 = 64;
/// `UVM_TOOLS_INIT_EVENT_TRACKER_V2`.
pub(crate) const INIT_EVENT_TRACKER_V2: u32 = 76;
/// `UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_V2`.
pub(crate) const GET_PROCESSOR_UUID_TABLE_V2: u32 = 77;

/// `UvmToolsEventQueueVersion_V1`, wanted from the releases that ask.
pub(crate) const VERSION_1: u32 = 1;
/// `UvmEventTypeFatalFault`.
pub(crate) const FATAL_FAULT: u8 = 6;
/// The bit that enables [`FATAL_FAULT`], alone of all events: the others cost the client time at every migration.
pub(crate) const ENABLE_FATAL_FAULT: u64 = 1 << FATAL_FAULT;
/// Index of the CPU in every processor table; GPUs follow.
pub(crate) const CPU_INDEX: u16 = 0;

/// `NV_OK`.
pub(crate) const STATUS_OK: u32 = 0;
/// `NV_ERR_ILLEGAL_ACTION`: the descriptor is not, or not yet, that of an address space.
pub(crate) const STATUS_ILLEGAL_ACTION: u32 = 0x16;
/// `NV_ERR_INSUFFICIENT_PERMISSIONS`: the descriptor is none that UVM knows, as one opened with `O_PATH`.
pub(crate) const STATUS_INSUFFICIENT_PERMISSIONS: u32 = 0x1b;

/// Which of the two entry layouts a queue has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// 64 bytes, 8-bit processor index; all releases.
    V1,
    /// 72 bytes, 16-bit processor index; from 565 by the ioctl of its own.
    V2,
}

impl Version {
    /// Bytes of an entry.
    #[must_use]
    pub const fn entry_size(self) -> usize {
        match self {
            Self::V1 => 64,
            Self::V2 => 72,
        }
    }

    /// Number of the ioctl that makes a tracker with such a queue.
    #[must_use]
    pub const fn init_request(self) -> u32 {
        match self {
            Self::V1 => INIT_EVENT_TRACKER,
            Self::V2 => INIT_EVENT_TRACKER_V2,
        }
    }
}

/// Argument of `INIT_EVENT_TRACKER`, as long as the longest of all releases has it.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct InitEventTracker {
    /// Page-aligned address of the entries.
    pub queue_buffer: u64,
    /// How many entries; a power of two, at least 2. 0 makes a counter tracker, which is something else.
    pub queue_entries: u64,
    /// Page-aligned address of the control page.
    pub control_buffer: u64,
    /// For counters only.
    pub processor: [u8; 16],
    /// For counters only.
    pub all_processors: u32,
    /// Number of the client's descriptor in the calling process.
    pub uvm_fd: i32,
    /// Status and versions, in the order of the release; see the module's table.
    pub tail: [u32; 4],
}

impl InitEventTracker {
    /// An argument for a queue of this version, without the addresses.
    pub(crate) fn new(version: Version, queue_entries: u32, uvm_fd: i32) -> Self {
        let tail = match version {
            Version::V1 => [VERSION_1, VERSION_1, 0, 0],
            Version::V2 => [u32::MAX, 0, 0, 0],
        };
        Self { queue_entries: u64::from(queue_entries), all_processors: 1, uvm_fd, tail, ..Self::default() }
    }

    /// The status that the kernel has put there.
    pub(crate) const fn status(&self, version: Version) -> u32 {
        match version {
            Version::V1 if self.tail[0] == VERSION_1 => self.tail[1],
            Version::V1 | Version::V2 => self.tail[0],
        }
    }
}

/// Argument of `SET_NOTIFICATION_THRESHOLD`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetNotificationThreshold {
    /// How many entries make the descriptor readable.
    pub threshold: u32,
    /// Outcome.
    pub status: u32,
}

/// Argument of `EVENT_QUEUE_ENABLE_EVENTS`.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EnableEvents {
    /// A bit for each event type.
    pub events: u64,
    /// Outcome.
    pub status: u32,
    /// Padding.
    pub reserved: u32,
}

/// Argument of both `GET_PROCESSOR_UUID_TABLE` calls, as long as the longest of all releases has it.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct GetProcessorTable {
    /// Address of the table.
    pub table: u64,
    /// Bytes 8, 12, 16 and 20; see the module's text.
    pub tail: [u32; 4],
}

const _: () = {
    assert!(size_of::<InitEventTracker>() == 64);
    assert!(core::mem::offset_of!(InitEventTracker, control_buffer) == 16);
    assert!(core::mem::offset_of!(InitEventTracker, processor) == 24);
    assert!(core::mem::offset_of!(InitEventTracker, all_processors) == 40);
    assert!(core::mem::offset_of!(InitEventTracker, uvm_fd) == 44);
    assert!(core::mem::offset_of!(InitEventTracker, tail) == 48);
    assert!(size_of::<SetNotificationThreshold>() == 8);
    assert!(size_of::<EnableEvents>() == 16);
    assert!(core::mem::offset_of!(EnableEvents, status) == 8);
    assert!(size_of::<GetProcessorTable>() == 24);
    assert!(core::mem::offset_of!(GetProcessorTable, tail) == 8);
    assert!(Version::V1.entry_size().is_multiple_of(size_of::<u64>()));
    assert!(Version::V2.entry_size().is_multiple_of(size_of::<u64>()));
    assert!(DROPPED + size_of::<u64>() * EVENT_TYPES == CONTROL_SIZE);
};

/// Offsets in the control page.
pub(crate) const GET_AHEAD: usize = 0;
/// See [`GET_AHEAD`].
pub(crate) const GET_BEHIND: usize = 4;
/// See [`GET_AHEAD`]; the driver writes it, and in tests what stands for it.
#[cfg(test)]
pub(crate) const PUT_AHEAD: usize = 8;
/// See [`GET_AHEAD`].
pub(crate) const PUT_BEHIND: usize = 12;
/// Offset of the counters of dropped events, 64 bits for each event type.
pub(crate) const DROPPED: usize = 16;
/// `UvmEventNumTypesAll`, the private types for tests included.
pub(crate) const EVENT_TYPES: usize = 64;
/// Bytes of the control page that are used.
pub(crate) const CONTROL_SIZE: usize = 528;

/// A processor's UUID, as in the processor table.
pub(crate) type Uuid = [u8; 16];

/// A GPU's UUID as `nvidia-smi` prints it; `None` for the zeros of an empty place.
pub(crate) fn gpu_name(uuid: &Uuid) -> Option<String> {
    if *uuid == Uuid::default() {
        return None;
    }
    let mut name = String::from("GPU");
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 0 | 4 | 6 | 8 | 10) {
            name.push('-');
        }
        name.push_str(&format!("{byte:02x}"));
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_found_in_every_releases_structure() {
        let asked = InitEventTracker::new(Version::V1, 64, 7);
        let answered = |tail: [u32; 4]| InitEventTracker { tail, ..asked }.status(Version::V1);
        // Up to 545, 550.54 to 555 and from 565: the first word is the status.
        assert_eq!(answered([0, 1, 0, 0]), STATUS_OK);
        assert_eq!(answered([0x16, 1, 1, 0]), STATUS_ILLEGAL_ACTION);
        // 560: the first word stays what was asked for.
        assert_eq!(answered([1, 0, 0, 0]), STATUS_OK);
        assert_eq!(answered([1, 0x16, 0, 0]), STATUS_ILLEGAL_ACTION);
        // Nobody has answered: not taken for a success.
        assert_ne!(asked.status(Version::V1), STATUS_OK);
        assert_ne!(InitEventTracker::new(Version::V2, 64, 7).status(Version::V2), STATUS_OK);
    }

    #[test]
    fn a_uuid_is_printed_as_nvidia_smi_does() {
        let uuid: Uuid = core::array::from_fn(|index| u8::try_from(index * 16 + 1).unwrap());
        assert_eq!(gpu_name(&uuid).unwrap(), "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1");
        assert_eq!(gpu_name(&Uuid::default()), None);
    }
}
