//! Blocks that the program has freed in a stream's order: each waits for an event, unless somebody asks in the same order.

use super::Slabs;
use crate::{cuda::types::CUevent, kept::memory::extents::GRAIN};

/// What waits to be freed that is looked at for somebody who could have it.
const LOOKED_AT: usize = 256;

/// A block that is freed when the event has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    /// Its address.
    pub(crate) address: u64,
    /// Recorded where the program freed it.
    pub(crate) event: CUevent,
    /// The stream in whose order that was, by name; 0 for one that has ended.
    pub(crate) order: usize,
}

impl Slabs {
    /// Gives a block that was freed in a stream's order to who asks in the same order for as many bytes of the same pool; its
    /// address, and the event that nobody needs any longer.
    pub(crate) fn again(&mut self, order: usize, context: usize, pool: usize, size: u64) -> Option<(u64, CUevent)> {
        if order == 0 {
            return None;
        }
        let taken = size.next_multiple_of(GRAIN);
        let is_it = |waiting: &Pending| {
            let block = self.blocks.get(&waiting.address);
            waiting.order == order
                && block.is_some_and(|block| block.context == context && block.taken() == taken)
                && self.pools.of(waiting.address) == Some(pool)
        };
        let at = self.pending.iter().take(LOOKED_AT).position(is_it)?;
        let Pending { address, event, .. } = self.pending.remove(at)?;
        self.last_number += 1;
        let block = self.blocks.get_mut(&address)?;
        (block.size, block.number, block.is_freed) = (size, self.last_number, false);
        self.pools.gave(address);
        self.pools.took(pool, address, size);
        Some((address, event))
    }

    /// A stream by name, or with 0 any one, may have ended: what was freed in its order waits for that alone.
    pub(crate) fn order_ends(&mut self, stream: usize) {
        let ended = self.pending.iter_mut().filter(|waiting| stream == 0 || waiting.order == stream);
        ended.for_each(|waiting| waiting.order = 0);
    }
}
