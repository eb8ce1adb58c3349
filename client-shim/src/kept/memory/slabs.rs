//! What the program has by allocation: blocks, in slabs, on devices. Pure bookkeeping: it calls nobody.
//!
//! A request of [`LARGE`] bytes or more has a slab of its own. Smaller ones share slabs whose size grows with what the
//! device holds already: a part of it ([`room`]), between [`PAGE`] and [`LARGEST`]. So a program with little memory wastes
//! little, one with much has few slabs (a remap costs about 37 µs for each, published for an A100), and what is lost by
//! rounding stays below that share.

mod ending;
mod ordered;
mod room;
pub(crate) mod survey;

pub(crate) use ordered::{Again, Asked, Freed, Pending, Settled, Wish};

use ordered::Ordered;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    extents::{Extents, GRAIN},
    pools::known::Pools,
    region::{PAGE, Region},
};
use crate::{cuda::types::CUdevice, process::descriptors::Held};

/// From this size on a request has a slab of its own, in bytes.
const LARGE: u64 = 32 << 20;
/// Largest slab for several requests, in bytes.
const LARGEST: u64 = 256 << 20;
/// An empty slab is taken again for a request that leaves such a part of it at most.
const SLACK: u64 = 8;

/// A slab.
#[derive(Debug)]
struct Slab {
    /// Its memory.
    region: Region,
    free: Extents,
    /// Whether it is for several requests.
    is_shared: bool,
}

/// What the program was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Bytes asked for.
    pub(crate) size: u64,
    /// Context that was current: the memory ends with it.
    pub(crate) context: usize,
    /// Whose memory it is.
    pub(crate) device: CUdevice,
    /// A number that no other block has, or had.
    pub(crate) number: u64,
    slab: u64,
    /// The program has freed it, and it waits for its end.
    is_freed: bool,
}

impl Block {
    /// Bytes taken.
    fn taken(&self) -> u64 {
        self.size.next_multiple_of(GRAIN)
    }
}

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The block's number, which no other one has, or had.
    pub(super) block: u64,
    /// Its address.
    pub(super) start: u64,
    /// Its bytes.
    pub(super) length: u64,
    /// Such a number of the slab.
    pub(super) slab: u64,
    /// The slab's address.
    pub(super) base: u64,
    /// The slab's bytes.
    pub(super) size: u64,
}

/// A slab that is no more. Its addresses are claimed until its memory is given back ([`freeing`](super::freeing)): whoever
/// had them before that could not map anything there.
#[derive(Debug)]
#[must_use = "its memory is to be given back"]
pub(crate) struct Emptied(pub(super) Region);

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Slabs {
    /// By address.
    slabs: BTreeMap<u64, Slab>,
    /// Addresses of slabs that are being made or given back, and bytes.
    claims: BTreeMap<u64, u64>,
    /// By address.
    blocks: BTreeMap<u64, Block>,
    /// By device, the others that may use its memory.
    peers: BTreeMap<CUdevice, BTreeSet<CUdevice>>,
    /// By device, the last one that was kept though it was empty.
    spare_slabs: BTreeMap<CUdevice, u64>,
    /// Freed by the program in a stream's order.
    pub(crate) pending: Ordered,
    /// Freed by the program while a stream was being captured.
    pub(crate) deferred: Vec<Freed>,
    /// How many blocks are known to be free and not given back yet.
    leaving: usize,
    last_number: u64,
    /// What of the blocks is of pools.
    pub(crate) pools: Pools,
}

impl Slabs {
    /// Places a block in a slab that has room, at a multiple of `alignment`; its address. From the size of a page on it
    /// begins with one, as memory of the driver's does: network cards and other processes want it whole.
    pub(crate) fn place(&mut self, device: CUdevice, context: usize, size: u64, alignment: u64) -> Option<u64> {
        let taken = size.checked_next_multiple_of(GRAIN)?;
        if taken >= LARGE {
            return self.place_alone(device, context, size);
        }
        let alignment = if taken >= PAGE { PAGE } else { alignment };
        let mut slabs = self.slabs.values_mut().filter(|slab| slab.is_shared && slab.region.device == device);
        let (base, start) =
            slabs.find_map(|slab| Some((slab.region.base, slab.free.take_aligned(taken, alignment)?)))?;
        Some(self.note(base, start, device, context, size))
    }

    /// The same for a block that has a slab for itself, if one of about that size is kept empty.
    fn place_alone(&mut self, device: CUdevice, context: usize, size: u64) -> Option<u64> {
        let length = size.checked_next_multiple_of(PAGE)?;
        let all = self.slabs.values_mut().filter(|slab| !slab.is_shared && slab.region.device == device);
        let fits =
            |slab: &&mut Slab| (length..=length + length / SLACK).contains(&slab.region.size) && slab.free.is_empty();
        let slab = all.filter(fits).min_by_key(|slab| slab.region.size)?;
        let base = slab.region.base;
        slab.free.take_at(0, size.next_multiple_of(GRAIN)).then(|| self.note(base, 0, device, context, size))
    }

    /// Adds a slab and places a block in it, for which it is large enough.
    pub(crate) fn add(&mut self, region: Region, context: usize, size: u64) -> u64 {
        let (base, device) = (region.base, region.device);
        let mut free = Extents::new(region.size);
        let taken = size.next_multiple_of(GRAIN);
        let start = free.take(taken).expect("the slab was made for it");
        self.unclaim(base);
        self.slabs.insert(base, Slab { region, free, is_shared: taken < LARGE });
        self.note(base, start, device, context, size)
    }

    fn note(&mut self, slab: u64, start: u64, device: CUdevice, context: usize, size: u64) -> u64 {
        self.last_number += 1;
        self.blocks
            .insert(slab + start, Block { size, context, device, number: self.last_number, slab, is_freed: false });
        slab + start
    }

    /// Notes that the program frees the block at an address; `None` if it has none there.
    pub(crate) fn mark_freed(&mut self, address: u64) -> Option<Block> {
        let block = self.blocks.get_mut(&address).filter(|block| !block.is_freed)?;
        block.is_freed = true;
        Some(*block)
    }

    /// Takes that note back: the program is told that it could not be freed.
    pub(crate) fn unmark_freed(&mut self, address: u64) {
        if let Some(block) = self.blocks.get_mut(&address) {
            block.is_freed = false;
        }
    }

    /// The block that an address lies in, and where it begins.
    pub(crate) fn around(&self, address: u64) -> Option<(u64, Block)> {
        let (&start, &block) = self.blocks.range(..=address).next_back()?;
        (!block.is_freed && address - start < block.size).then_some((start, block))
    }

    /// Whether an address lies in a slab and in no block of the program's.
    pub(crate) fn is_hole(&self, address: u64) -> bool {
        let slab = self.slabs.range(..=address).next_back().map(|(_, slab)| &slab.region);
        slab.is_some_and(|slab| address - slab.base < slab.size) && self.around(address).is_none()
    }

    /// Whether an address lies in a slab.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.around(address).is_some() || self.is_hole(address)
    }

    /// The block that an address lies in, and its slab.
    pub(super) fn piece_around(&self, address: u64) -> Option<Piece> {
        let (start, block) = self.around(address)?;
        let Region { base, size, descriptor, .. } = &self.slabs.get(&block.slab)?.region;
        Some(Piece {
            block: block.number,
            start,
            length: block.size,
            slab: descriptor.serial(),
            base: *base,
            size: *size,
        })
    }

    /// What keeps the slab of the block of this number, which the program has not freed.
    pub(super) fn held(&self, number: u64) -> Option<&Held> {
        let block = self.blocks.values().find(|block| block.number == number && !block.is_freed)?;
        Some(&self.slabs.get(&block.slab)?.region.descriptor)
    }

    /// A copy of the descriptor of the slab that a block lies in, where the slab begins, and its bytes.
    pub(super) fn copy_around(&self, address: u64) -> Option<(Held, u64, u64)> {
        let (_, block) = self.around(address)?;
        let region = &self.slabs.get(&block.slab)?.region;
        Some((region.descriptor.copy_for_the_vault()?, region.base, region.size))
    }

    /// The devices that may use a device's memory, besides itself.
    pub(crate) fn peers(&self, device: CUdevice) -> Vec<CUdevice> {
        self.peers.get(&device).into_iter().flatten().copied().collect()
    }

    /// Notes that `user` may use the memory of `owner`; the ranges that are there already.
    pub(crate) fn add_peer(&mut self, owner: CUdevice, user: CUdevice) -> Vec<(u64, u64)> {
        self.peers.entry(owner).or_default().insert(user);
        let regions = self.slabs.values().map(|slab| &slab.region).filter(|region| region.device == owner);
        regions.map(|region| (region.base, region.size)).collect()
    }

    /// Adds a predecessor's slab with those parts of it, address and bytes, that are known to be used; the rest is free
    /// for small requests. Parts that are not in it, or that meet others, are left out.
    pub(crate) fn adopt(&mut self, region: Region, context: usize, blocks: &[(u64, u64)]) {
        let (base, device) = (region.base, region.device);
        let mut free = Extents::new(region.size);
        let mut taken = Vec::new();
        for &(address, size) in blocks {
            let Some(start) = address.checked_sub(base).filter(|start| start.is_multiple_of(GRAIN)) else { continue };
            if size > 0 && free.take_at(start, size.next_multiple_of(GRAIN)) {
                taken.push((start, size));
            }
        }
        self.slabs.insert(base, Slab { region, free, is_shared: true });
        for (start, size) in taken {
            self.note(base, start, device, context, size);
        }
    }

    /// Slabs, bytes of slabs, blocks, bytes of blocks, slabs whose descriptor the program has not closed.
    pub(crate) fn totals(&self) -> [u64; 5] {
        let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        [
            count(self.slabs.len()),
            self.slabs.values().map(|slab| slab.region.size).sum(),
            count(self.blocks.len()),
            self.blocks.values().map(|block| block.size).sum(),
            count(self.slabs.values().filter(|slab| slab.region.descriptor.number().is_some()).count()),
        ]
    }
}

#[cfg(test)]
mod tests;
