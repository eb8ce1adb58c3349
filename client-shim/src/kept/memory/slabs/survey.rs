//! What a copy of the driver that knows nothing must be told, and what changes when it has been.

use super::{Block, Emptied, Slabs};
use crate::{cuda::types::CUdevice, kept::memory::region::Region};

/// A slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlabRange {
    /// Its address.
    pub(crate) base: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// Whose memory it is.
    pub(crate) device: CUdevice,
    /// What keeps it, unless the program has closed that.
    pub(crate) descriptor: Option<i32>,
    /// A number that no other piece of memory has, or had.
    pub(crate) serial: u64,
}

impl Slabs {
    /// All slabs, by address.
    pub(crate) fn all(&self) -> Vec<SlabRange> {
        let ranges = self.slabs.values().map(|slab| {
            let Region { base, size, device, descriptor } = &slab.region;
            SlabRange {
                base: *base,
                size: *size,
                device: *device,
                descriptor: descriptor.number(),
                serial: descriptor.serial(),
            }
        });
        ranges.collect()
    }

    /// Which devices may use whose memory: owner and user.
    pub(crate) fn all_peers(&self) -> Vec<(CUdevice, CUdevice)> {
        self.peers.iter().flat_map(|(&owner, users)| users.iter().map(move |&user| (owner, user))).collect()
    }

    /// The work of all streams is gone: what waited for some of it is freed. The slabs that are empty then.
    pub(crate) fn free_all_pending(&mut self) -> Vec<Emptied> {
        let pending = std::mem::take(&mut self.pending);
        pending.into_iter().filter_map(|waiting| self.remove(waiting.address)).collect()
    }

    /// Contexts have other handles now.
    pub(crate) fn rename(&mut self, current: impl Fn(usize) -> usize) {
        for Block { context, .. } in self.blocks.values_mut() {
            *context = current(*context);
        }
        self.pools.rename(current);
    }
}
