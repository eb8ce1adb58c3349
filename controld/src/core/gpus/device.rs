//! A GPU as the vendor's answers about devices need it.

use remps_proto::admin::reply::DeviceRow;

/// From compute capability 9.0 (Hopper) on a chunk of a static partition has this many SMs, before that half of it.
const HOPPER_CHUNK: u32 = 8;
const HOPPER: u32 = 9;

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// Its row in `device_query`.
    pub row: DeviceRow,
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Major compute capability.
    pub major: u32,
}

impl Device {
    /// How many multiprocessors a chunk of a static partition has.
    pub(crate) fn chunk(&self) -> u32 {
        if self.major >= HOPPER { HOPPER_CHUNK } else { HOPPER_CHUNK / 2 }
    }
}
