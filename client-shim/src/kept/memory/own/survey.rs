//! What a copy of the driver that knows nothing must be told, and what changes when it has been.

use super::{Id, Mapping, Own};
use crate::cuda::types::CUmemAccessDesc;

/// An allocation of the program's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnAllocation {
    /// Its number.
    pub(crate) id: Id,
    /// What keeps it, if anything does.
    pub(crate) descriptor: Option<i32>,
    /// The program's handles, and how often each must be released.
    pub(crate) handles: Vec<(u64, u64)>,
}

/// A mapping of the program's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnMapping {
    /// Its address.
    pub(crate) base: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// Bytes from the beginning of the allocation.
    pub(crate) offset: u64,
    /// Which allocation, if it is one that is known.
    pub(crate) id: Option<Id>,
    /// Who may use it.
    pub(crate) access: Vec<CUmemAccessDesc>,
}

impl Own {
    /// All allocations.
    pub(crate) fn all_allocations(&self) -> Vec<OwnAllocation> {
        let handles_of = |id: Id| self.handles.iter().filter(move |(_, (of, _))| *of == id);
        let all = self.allocations.iter().map(|(&id, allocation)| OwnAllocation {
            id,
            descriptor: allocation.descriptor.as_ref().and_then(|held| held.number()),
            handles: handles_of(id).map(|(handle, (_, count))| (*handle, *count)).collect(),
        });
        all.collect()
    }

    /// All mappings, by address.
    pub(crate) fn all_mappings(&self) -> Vec<OwnMapping> {
        let all = self.mappings.iter().map(|(&base, mapping)| {
            let Mapping { size, id, offset, access } = mapping.clone();
            OwnMapping { base, size, offset, id, access }
        });
        all.collect()
    }

    /// All reserved ranges: address and size at the driver.
    pub(crate) fn all_reservations(&self) -> Vec<(u64, u64)> {
        self.reservations.iter().map(|(&base, found)| (base, found.reserved)).collect()
    }

    /// Allocations have other handles now.
    pub(crate) fn rename(&mut self, current: impl Fn(usize) -> usize) {
        let number = |handle: u64| {
            usize::try_from(handle).map_or(handle, |handle| u64::try_from(current(handle)).unwrap_or(u64::MAX))
        };
        self.handles = std::mem::take(&mut self.handles).into_iter().map(|(handle, of)| (number(handle), of)).collect();
    }
}
