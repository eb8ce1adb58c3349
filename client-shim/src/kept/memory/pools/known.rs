//! Which pools there are, and what of our memory counts as theirs. Pure bookkeeping.
//!
//! Memory that a program asks a pool for is made like all other memory here; the driver's pool stays empty, and keeps
//! what was set on it.

use std::collections::BTreeMap;

use crate::cuda::types::CUdevice;

/// A pool of which memory is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    /// Whose memory it gives.
    pub(crate) device: CUdevice,
    /// The most that it may have in bytes; 0 for all that there is.
    most: u64,
    /// How many bytes it may hold before what is not used is given back.
    threshold: u64,
    used: u64,
    high: u64,
    /// The most bytes that were found to be used or kept for it.
    most_reserved: u64,
    /// A number that no other pool has, or had: a handle is given out again.
    number: u64,
}

/// What was allocated from a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// The pool, by its handle and by its number.
    handle: usize,
    number: u64,
    /// Bytes.
    size: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    by_handle: BTreeMap<usize, Pool>,
    /// By address.
    pieces: BTreeMap<u64, Piece>,
    last_number: u64,
}

impl Pools {
    /// A pool is known from now on, or still.
    pub(crate) fn know(&mut self, handle: usize, device: CUdevice, most: u64) {
        let number = self.last_number + 1;
        let pool = self.by_handle.entry(handle);
        let known = pool.or_insert(Pool { device, most, threshold: 0, used: 0, high: 0, most_reserved: 0, number });
        self.last_number = self.last_number.max(known.number);
    }

    /// A pool by its handle.
    pub(crate) fn get(&self, handle: usize) -> Option<Pool> {
        self.by_handle.get(&handle).copied()
    }

    /// A pool is destroyed; what was allocated from it stays, and is of none.
    pub(crate) fn forget(&mut self, handle: usize) -> Option<Pool> {
        self.by_handle.remove(&handle)
    }

    /// The driver has not destroyed it. What of its memory was freed meanwhile is used no longer.
    pub(crate) fn restore(&mut self, handle: usize, pool: Pool) {
        let used = self.pieces.values().filter(|piece| piece.number == pool.number).map(|piece| piece.size).sum();
        self.by_handle.insert(handle, Pool { used, ..pool });
    }

    /// A piece was allocated from a pool.
    pub(crate) fn took(&mut self, handle: usize, address: u64, size: u64) {
        if let Some(pool) = self.by_handle.get_mut(&handle) {
            pool.used += size;
            pool.high = pool.high.max(pool.used);
            pool.most_reserved = pool.most_reserved.max(pool.used);
            self.pieces.insert(address, Piece { handle, number: pool.number, size });
        }
    }

    /// The pool that a piece of memory was allocated from, as long as there is one.
    pub(in crate::kept::memory) fn of(&self, address: u64) -> Option<usize> {
        let piece = self.pieces.get(&address)?;
        let pool = self.by_handle.get(&piece.handle)?;
        (pool.number == piece.number).then_some(piece.handle)
    }

    /// A piece of memory is gone, of whichever pool or none.
    pub(in crate::kept::memory) fn gave(&mut self, address: u64) {
        if let Some(Piece { handle, number, size }) = self.pieces.remove(&address)
            && let Some(pool) = self.by_handle.get_mut(&handle).filter(|pool| pool.number == number)
        {
            pool.used = pool.used.saturating_sub(size);
        }
    }

    /// What a pool may hold before something is given back.
    pub(crate) fn set_threshold(&mut self, handle: usize, threshold: u64) {
        if let Some(pool) = self.by_handle.get_mut(&handle) {
            pool.threshold = threshold;
        }
    }

    /// How many bytes it may hold that are not used.
    pub(in crate::kept::memory) fn keeps(&self, handle: usize) -> u64 {
        self.get(handle).map_or(0, |pool| pool.threshold.saturating_sub(pool.used))
    }

    /// Bytes that are used or kept for a pool, of so many that its device keeps empty, and at most since that was begun. What
    /// is empty is kept for each pool of the device whose threshold is above what it uses.
    pub(in crate::kept::memory) fn reserved(&mut self, handle: usize, empty: u64) -> [u64; 2] {
        let keeps = self.keeps(handle);
        let Some(pool) = self.by_handle.get_mut(&handle) else { return [0; 2] };
        let now = pool.used.saturating_add(empty.min(keeps));
        pool.most_reserved = pool.most_reserved.max(now);
        [now, pool.most_reserved]
    }

    /// What was reserved at most begins anew, with so many bytes that the device keeps empty.
    pub(in crate::kept::memory) fn begin_most_reserved(&mut self, handle: usize, empty: u64) {
        if let Some(pool) = self.by_handle.get_mut(&handle) {
            pool.most_reserved = 0;
        }
        self.reserved(handle, empty);
    }

    /// What was used at most begins anew.
    pub(crate) fn begin_high(&mut self, handle: usize) {
        if let Some(pool) = self.by_handle.get_mut(&handle) {
            pool.high = pool.used;
        }
    }

    /// Pools have other handles now.
    pub(in crate::kept::memory) fn rename(&mut self, current: impl Fn(usize) -> usize) {
        let pools = std::mem::take(&mut self.by_handle).into_iter();
        self.by_handle = pools.map(|(handle, pool)| (current(handle), pool)).collect();
        self.pieces.values_mut().for_each(|piece| piece.handle = current(piece.handle));
    }
}

impl Pool {
    /// Whether it may have so many bytes more.
    pub(crate) fn has_room(&self, size: u64) -> bool {
        self.most == 0 || self.used.saturating_add(size) <= self.most
    }

    /// Bytes used now, and at most since that was begun.
    pub(crate) fn usage(&self) -> [u64; 2] {
        [self.used, self.high]
    }
}

#[cfg(test)]
mod tests {
    use super::{Pool, Pools};

    #[test]
    fn what_is_allocated_counts_until_it_is_gone_whatever_the_pool_is_called() {
        let mut pools = Pools::default();
        pools.know(0x10, 0, 100);
        pools.took(0x10, 0x1000, 60);
        assert!(pools.get(0x10).is_some_and(|pool| pool.has_room(40) && !pool.has_room(41)));
        assert_eq!((pools.of(0x1000), pools.of(0x2000)), (Some(0x10), None));
        pools.know(0x10, 0, 0);
        pools.rename(|handle| handle + 1);
        pools.took(0x11, 0x2000, 30);
        pools.gave(0x1000);
        pools.gave(0x1000);
        assert_eq!(pools.get(0x11).map(|pool| pool.usage()), Some([30, 90]));
        pools.begin_high(0x11);
        assert_eq!(pools.get(0x11).map(|pool| pool.usage()), Some([30, 30]));
        let gone = pools.forget(0x11).expect("it was there");
        assert_eq!(pools.of(0x2000), None, "its pool is gone");
        pools.gave(0x2000);
        pools.restore(0x11, gone);
        assert_eq!(pools.get(0x10), None);
        pools.took(0x10, 0x3000, 5);
        assert_eq!((pools.pieces.len(), pools.get(0x11)), (0, Some(Pool { used: 0, ..gone })));
    }

    #[test]
    fn memory_of_a_pool_that_is_destroyed_is_none_of_the_next_one_with_its_handle() {
        let mut pools = Pools::default();
        pools.know(0x10, 0, 100);
        pools.took(0x10, 0x1000, 60);
        assert!(pools.forget(0x10).is_some());
        pools.know(0x10, 0, 100);
        assert_eq!(pools.of(0x1000), None);
        pools.took(0x10, 0x2000, 5);
        pools.gave(0x1000);
        assert_eq!(pools.get(0x10).map(|pool| pool.usage()), Some([5, 5]));
    }

    #[test]
    fn what_is_freed_while_the_driver_refuses_to_destroy_its_pool_is_no_longer_used() {
        let mut pools = Pools::default();
        pools.know(0x10, 0, 100);
        pools.took(0x10, 0x1000, 60);
        pools.took(0x10, 0x2000, 5);
        let pool = pools.forget(0x10).expect("it was there");
        pools.gave(0x1000);
        pools.restore(0x10, pool);
        assert_eq!((pools.of(0x2000), pools.get(0x10).map(|pool| pool.usage())), (Some(0x10), Some([5, 65])));
    }

    #[test]
    fn what_is_kept_empty_is_reserved_as_far_as_the_pool_may_hold_it() {
        let mut pools = Pools::default();
        pools.know(0x10, 0, 0);
        pools.took(0x10, 0x1000, 60);
        assert_eq!(pools.reserved(0x10, 40), [60, 60], "it is told to keep nothing");
        pools.set_threshold(0x10, 80);
        assert_eq!([pools.reserved(0x10, 40), pools.reserved(0x10, 5)], [[80, 80], [65, 80]]);
        pools.gave(0x1000);
        assert_eq!(pools.reserved(0x10, 100), [80, 80]);
        pools.begin_high(0x10);
        assert_eq!((pools.reserved(0x10, 0), pools.get(0x10).map(|pool| pool.usage())), ([0, 80], Some([0, 0])));
        pools.begin_most_reserved(0x10, 20);
        assert_eq!([pools.reserved(0x10, 0), pools.reserved(0x20, 20)], [[0, 20], [0, 0]]);
    }
}
