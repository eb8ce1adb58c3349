//! How blocks end, and slabs with the last one in them.

use std::collections::BTreeSet;

use super::{Asked, Block, Emptied, Freed, Settled, Slab, Slabs};
use crate::{cuda::types::CUevent, kept::memory::region::PAGE};

impl Slabs {
    /// A block that was freed, unless its context has ended since, and its address may be another one's.
    fn freed(&self, Freed { address, number }: Freed) -> Option<&Block> {
        self.blocks.get(&address).filter(|block| block.number == number)
    }

    /// The context that a block was allocated in.
    pub(crate) fn context_of(&self, freed: Freed) -> Option<usize> {
        self.freed(freed).map(|block| block.context)
    }

    /// Bytes of a block that waits for its end.
    pub(crate) fn size_of(&self, freed: Freed) -> Option<u64> {
        self.freed(freed).map(|block| block.size)
    }

    /// What somebody has asked of what waits; a block that is free then is leaving until [`Self::has_left`].
    pub(crate) fn settle(&mut self, asked: Asked, has_come: bool) -> Settled {
        let settled = self.pending.settle(asked, has_come);
        self.leaving += usize::from(settled.free.is_some());
        settled
    }

    /// A block that [`Self::settle`] has found is given back.
    pub(crate) fn has_left(&mut self) {
        self.leaving = self.leaving.saturating_sub(1);
    }

    /// Whether some thread gives back what is free.
    pub(crate) fn is_any_leaving(&self) -> bool {
        self.leaving > 0
    }

    /// Frees a block, if it is still there; the slab if that was the last one in it.
    pub(crate) fn remove(&mut self, freed: Freed) -> Option<Emptied> {
        self.freed(freed)?;
        let address = freed.address;
        let block = self.blocks.remove(&address)?;
        let pool = self.pools.of(address);
        self.pools.gave(address);
        let slab = self.slabs.get_mut(&block.slab).expect("a block lies in a slab");
        slab.free.give(address - block.slab, block.taken());
        let (is_empty, can_be_spare) = (slab.free.is_empty(), slab.is_shared && slab.region.size == PAGE);
        if !is_empty {
            return None;
        }
        // What a pool is told to keep stays until memory is short.
        if pool.is_some_and(|pool| self.empty(block.device) <= self.pools.keeps(pool)) {
            return None;
        }
        // One small empty slab is kept, so that a program that allocates and frees again and again does not pay for it.
        let other = self.spare_slabs.get(&block.device).filter(|base| **base != block.slab);
        let is_other_empty = other.and_then(|base| self.slabs.get(base)).is_some_and(|other| other.free.is_empty());
        if can_be_spare && !is_other_empty {
            self.spare_slabs.insert(block.device, block.slab);
            return None;
        }
        self.emptied(block.slab)
    }

    pub(super) fn emptied(&mut self, base: u64) -> Option<Emptied> {
        let Slab { region, .. } = self.slabs.remove(&base)?;
        self.claims.insert(region.base, region.size);
        Some(Emptied(region))
    }

    /// Frees everything that was allocated in a context, or waited for its work, when it has ended: the slabs that are empty then,
    /// and the events of other contexts that nobody needs any more.
    pub(crate) fn remove_context(&mut self, context: usize) -> (Vec<Emptied>, Vec<CUevent>) {
        let ended = self.blocks.iter().filter(|(_, block)| block.context == context);
        let mut gone: Vec<Freed> = ended.map(|(&address, block)| Freed { address, number: block.number }).collect();
        let numbers: BTreeSet<u64> = gone.iter().map(|freed| freed.number).collect();
        self.deferred.retain(|freed| !numbers.contains(&freed.number));
        gone.extend(self.pending.events_end(context));
        let events = self.pending.blocks_end(|number| numbers.contains(&number));
        (gone.into_iter().filter_map(|freed| self.remove(freed)).collect(), events)
    }
}
