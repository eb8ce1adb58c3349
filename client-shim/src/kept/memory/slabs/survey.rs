//! What a copy of the driver that knows nothing must be told, and what changes when it has been.

use super::{Block, Emptied, Slab, Slabs};
use crate::{
    cuda::types::CUdevice,
    kept::memory::{kept_ranges::KeptRange, region::Region},
    process::descriptors::Held,
};

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

    /// Every slab that has a descriptor.
    pub(in crate::kept::memory) fn kept(&self) -> impl Iterator<Item = KeptRange> {
        self.slabs.values().filter_map(|slab| {
            let Region { base, size, device, descriptor } = &slab.region;
            Some(KeptRange { base: *base, size: *size, offset: 0, device: *device, descriptor: descriptor.number()? })
        })
    }

    /// Tells of every slab.
    pub(in crate::kept::memory) fn each_outside(&self, tell: &mut dyn FnMut(&Held, CUdevice, u64, u64)) {
        for Slab { region, .. } in self.slabs.values() {
            tell(&region.descriptor, region.device, region.size, region.base);
        }
    }

    /// Which devices may use whose memory: owner and user.
    pub(crate) fn all_peers(&self) -> Vec<(CUdevice, CUdevice)> {
        self.peers.iter().flat_map(|(&owner, users)| users.iter().map(move |&user| (owner, user))).collect()
    }

    /// The work of all streams is gone: what waited for some of it is freed. The slabs that are empty then.
    pub(crate) fn free_all_pending(&mut self) -> Vec<Emptied> {
        let pending = self.pending.take_all();
        pending.into_iter().filter_map(|freed| self.remove(freed)).collect()
    }

    /// Contexts have other handles now.
    pub(crate) fn rename(&mut self, current: impl Fn(usize) -> usize) {
        for Block { context, .. } in self.blocks.values_mut() {
            *context = current(*context);
        }
        self.pools.rename(current);
    }
}
