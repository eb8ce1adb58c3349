//! Memory pools: a default one for each device, and the program's own.
//!
//! As documented of the real driver: a device's current pool is the default one until another is set and again when that
//! is destroyed; a default pool cannot be destroyed; memory outlives its pool. Assumed: as much is reserved as is used.

use crate::codes::{Code, Outcome};
use crate::copies::first_handle;
use crate::tables::Table;

/// Handles of default pools are between those of primary contexts and all others.
const FIRST_DEFAULT: usize = 0x8_0000;
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD` and those before it are set; the others are counts.
const LAST_SETTING: u32 = 4;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`, `…_HIGH`, `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`, `…_HIGH`.
const HIGHS: [u32; 2] = [6, 8];
const CURRENTS: [u32; 2] = [5, 7];

/// A pool.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Device ordinal.
    pub(crate) device: u32,
    /// The most that it may have in bytes, 0 for all that there is.
    most: usize,
    used: usize,
    /// The most that was reserved and used, since each was begun anew.
    highs: [usize; 2],
    /// Of attributes that were set.
    settings: Table<u32, u64>,
    /// What other devices may do, by ordinal.
    access: Table<u32, u32>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    by_handle: Table<usize, Pool>,
    /// By device, if it is not the default one.
    current: Table<u32, usize>,
    /// Handles of destroyed pools that have no memory any more: a new one gets the latest, as from an allocator of objects.
    spare: Vec<usize>,
    /// Of each piece of memory: its pool and bytes.
    of: Table<usize, (usize, usize)>,
}

impl Pools {
    /// A device's default pool.
    pub(crate) fn default_of(device: u32) -> usize {
        first_handle() + FIRST_DEFAULT + usize::try_from(device).expect("an ordinal is small") * 0x1000
    }

    /// The pool that a device allocates from.
    pub(crate) fn current(&self, device: u32) -> usize {
        self.current.get(&device).copied().unwrap_or_else(|| Self::default_of(device))
    }

    /// A pool by its handle.
    pub(crate) fn get(&mut self, handle: usize, devices: usize) -> Outcome<&mut Pool> {
        let ordinals = 0..u32::try_from(devices).map_err(|_| Code::UNKNOWN)?;
        if let Some(device) = ordinals.into_iter().find(|device| Self::default_of(*device) == handle) {
            return Ok(self.by_handle.entry(handle).or_insert_with(|| Pool { device, ..Pool::default() }));
        }
        self.by_handle.get_mut(&handle).ok_or(Code::INVALID_VALUE)
    }

    /// A new one; its handle, which is `other` where none is free again.
    pub(crate) fn create(&mut self, other: usize, device: u32, most: usize) -> usize {
        let handle = self.spare.pop().unwrap_or(other);
        self.by_handle.insert(handle, Pool { device, most, ..Pool::default() });
        handle
    }

    /// One goes.
    pub(crate) fn destroy(&mut self, handle: usize, devices: usize) -> Outcome {
        let device = self.get(handle, devices)?.device;
        if Self::default_of(device) == handle {
            return Err(Code::INVALID_VALUE);
        }
        self.by_handle.remove(&handle);
        self.current.retain(|_, current| *current != handle);
        if self.of.values().all(|(pool, _)| *pool != handle) {
            self.spare.push(handle);
        }
        Ok(())
    }

    /// A device allocates from this one from now on.
    pub(crate) fn set_current(&mut self, device: u32, handle: usize, devices: usize) -> Outcome {
        if self.get(handle, devices)?.device != device {
            return Err(Code::INVALID_VALUE);
        }
        self.current.insert(device, handle);
        Ok(())
    }

    /// Whether it may have so many bytes more.
    pub(crate) fn check(&mut self, handle: usize, size: usize, devices: usize) -> Outcome {
        let pool = self.get(handle, devices)?;
        if pool.most > 0 && pool.used + size > pool.most { Err(Code::OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// The pool that a piece of memory is from.
    pub(crate) fn pool_of(&self, address: usize) -> Option<usize> {
        self.of.get(&address).map(|(pool, _)| *pool)
    }

    /// Memory of a pool is there.
    pub(crate) fn took(&mut self, handle: usize, address: usize, size: usize) {
        if let Some(pool) = self.by_handle.get_mut(&handle) {
            pool.used += size;
            pool.highs = pool.highs.map(|high| high.max(pool.used));
        }
        self.of.insert(address, (handle, size));
    }

    /// Memory is gone, of whichever pool or none.
    pub(crate) fn gave(&mut self, address: usize) {
        if let Some((handle, size)) = self.of.remove(&address)
            && let Some(pool) = self.by_handle.get_mut(&handle)
        {
            pool.used -= size;
        }
    }
}

impl Pool {
    /// An attribute's value.
    pub(crate) fn attribute(&self, attribute: u32) -> Outcome<u64> {
        let count = |count: usize| u64::try_from(count).map_err(|_| Code::UNKNOWN);
        match attribute {
            _ if CURRENTS.contains(&attribute) => count(self.used),
            _ if HIGHS.contains(&attribute) => count(self.highs[usize::from(attribute == HIGHS[1])]),
            LAST_SETTING => Ok(self.settings.get(&attribute).copied().unwrap_or(0)),
            1..LAST_SETTING => Ok(self.settings.get(&attribute).copied().unwrap_or(1)),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// Whether an attribute has 32 bits, and not 64.
    pub(crate) fn is_short(attribute: u32) -> bool {
        attribute < LAST_SETTING
    }

    /// Sets an attribute; what was highest can only begin anew.
    pub(crate) fn set_attribute(&mut self, attribute: u32, value: u64) -> Outcome {
        match (attribute, value) {
            (1..=LAST_SETTING, _) => {
                self.settings.insert(attribute, value);
                Ok(())
            }
            (_, 0) if HIGHS.contains(&attribute) => {
                self.highs[usize::from(attribute == HIGHS[1])] = self.used;
                Ok(())
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// What another device may do: `CUmemAccess_flags`.
    pub(crate) fn access(&self, device: u32) -> u32 {
        if device == self.device { 3 } else { self.access.get(&device).copied().unwrap_or(0) }
    }

    /// Sets that.
    pub(crate) fn allow(&mut self, device: u32, flags: u32) -> Outcome {
        if device == self.device && flags != 3 {
            return Err(Code::INVALID_VALUE);
        }
        self.access.insert(device, flags);
        Ok(())
    }
}
