//! Room for slabs: how large a new one is and where it lies, and what of them is empty.

use super::{Emptied, LARGE, LARGEST, Slabs};
use crate::{
    cuda::types::CUdevice,
    kept::memory::{arena, region::PAGE},
    process::settings::succession,
};

/// A new slab is such a part of what the device's slabs hold.
const SHARE: u64 = 8;

impl Slabs {
    /// How large a new slab for a request should be, and how large it must be.
    pub(crate) fn slab_size(&self, device: CUdevice, size: u64) -> Option<(u64, u64)> {
        let least = size.checked_next_multiple_of(PAGE)?;
        if least >= LARGE {
            return Some((least, least));
        }
        let held: u64 =
            self.slabs.values().map(|slab| &slab.region).filter(|of| of.device == device).map(|of| of.size).sum();
        Some(((held / SHARE).next_multiple_of(PAGE).clamp(least, LARGEST), least))
    }

    /// A free address for a new slab, 0 if the driver is to choose. Nobody else gets it until the slab is added, and given
    /// back, or until [`Slabs::unclaim`].
    pub(crate) fn claim(&mut self, device: CUdevice, size: u64) -> u64 {
        // A standby leaves the addresses alone that its predecessor may have, and that it will need.
        let Some(first) = arena::of(device, succession::lane()) else { return 0 };
        let end = first + arena::LENGTH;
        let slabs = self.slabs.range(first..end).map(|(&base, slab)| (base, slab.region.size));
        let mut taken: Vec<(u64, u64)> =
            slabs.chain(self.claims.range(first..end).map(|(&at, &of)| (at, of))).collect();
        taken.sort_unstable();
        let mut at = first;
        for (base, length) in taken {
            if base.saturating_sub(at) >= size {
                break;
            }
            at = at.max(base + length);
        }
        if end.saturating_sub(at) < size {
            return 0;
        }
        self.claims.insert(at, size);
        at
    }

    /// The address is free again.
    pub(crate) fn unclaim(&mut self, address: u64) {
        self.claims.remove(&address);
    }

    /// The empty slabs of a device: where each begins, and its bytes.
    fn all_empty(&self, device: CUdevice) -> impl Iterator<Item = (u64, u64)> {
        let all = self.slabs.values().filter(move |slab| slab.region.device == device && slab.free.is_empty());
        all.map(|slab| (slab.region.base, slab.region.size))
    }

    /// Bytes of them.
    pub(in crate::kept::memory) fn empty(&self, device: CUdevice) -> u64 {
        self.all_empty(device).map(|(_, size)| size).sum()
    }

    /// Takes empty slabs of a device, which it needs for something else, but for so many bytes at most.
    pub(crate) fn take_empty(&mut self, device: CUdevice, kept: u64) -> Vec<Emptied> {
        let mut left = 0_u64;
        let is_taken = |(base, size): (u64, u64)| {
            left = left.saturating_add(size);
            (left > kept).then_some(base)
        };
        let bases: Vec<u64> = self.all_empty(device).filter_map(is_taken).collect();
        bases.into_iter().filter_map(|base| self.emptied(base)).collect()
    }

    /// Bytes of a device's slabs that are free for small requests.
    pub(crate) fn spare(&self, device: CUdevice) -> u64 {
        self.slabs
            .values()
            .filter(|slab| slab.is_shared && slab.region.device == device)
            .map(|slab| slab.free.free())
            .sum()
    }
}
