//! Contexts and memory in a fresh copy of the driver: the same primary contexts, the same memory at the same addresses.
#![expect(unsafe_code, reason = "calls the driver")]

use std::{collections::BTreeMap, ptr};

use crate::{
    cuda::{
        result::CUresult,
        types::{CUcontext, CUdevice, CUmemGenericAllocationHandle, c_int},
    },
    kept::{
        self,
        memory::{
            arena,
            own::{
                Id,
                survey::{OwnAllocation, OwnMapping},
            },
            region::{self, DESCRIPTOR, NotReserved},
            slabs::survey::SlabRange,
        },
        objects::primary::Retained,
    },
    recovery::private,
};

/// A call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    /// Of the driver.
    pub(super) call: &'static str,
    /// Its answer.
    pub(super) answer: CUresult,
}

/// The call that a copy's contexts are made by.
pub(super) const MAKES_CONTEXT: &str = "cuDevicePrimaryCtxRetain";

/// An answer that must be a success.
pub(super) fn checked(call: &'static str, answer: CUresult) -> Result<(), Failed> {
    if answer.is_success() { Ok(()) } else { Err(Failed { call, answer }) }
}

/// The driver has given another address than the one asked for, or refused.
pub(super) const ADDRESS_TAKEN: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;

/// Everything that has an address, as it was.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) slabs: Vec<SlabRange>,
    /// Which devices may use the slabs of which: owner and user.
    pub(super) peers: Vec<(CUdevice, CUdevice)>,
    /// Which contexts have enabled access to the memory of which: owner and user.
    pub(super) enabled: Vec<(usize, usize)>,
    pub(super) allocations: Vec<OwnAllocation>,
    pub(super) mappings: Vec<OwnMapping>,
    reservations: Vec<(u64, u64)>,
    /// By device.
    pub(super) contexts: Vec<(CUdevice, Retained)>,
}

/// Old and new handles.
pub(super) type Renamed = BTreeMap<usize, usize>;

pub(super) fn length(size: u64) -> usize {
    usize::try_from(size).expect("addresses have 64 bits here")
}

fn handle_of(number: u64) -> usize {
    usize::try_from(number).expect("handles have 64 bits here")
}

impl Memory {
    /// What there is; the reasons for which it cannot all be had again.
    pub(super) fn survey() -> (Option<Self>, Vec<String>) {
        let known = |objects: &mut kept::objects::Objects| {
            (objects.contexts.retained().collect(), objects.contexts.peers().collect())
        };
        let (contexts, enabled) = kept::objects(known).unwrap_or_default();
        let found = kept::memory(|kept::memory::Memory { slabs, own, .. }| Self {
            slabs: slabs.all(),
            peers: slabs.all_peers(),
            enabled,
            allocations: own.all_allocations(),
            mappings: own.all_mappings(),
            reservations: own.all_reservations(),
            contexts,
        });
        let Ok(memory) = found else { return (None, vec!["nothing is kept in this process".to_owned()]) };
        let mut obstacles = Vec::new();
        if memory.slabs.iter().any(|slab| slab.descriptor.is_none()) {
            obstacles.push("a descriptor of kept memory was closed".to_owned());
        }
        if memory.allocations.iter().any(|allocation| allocation.descriptor.is_none()) {
            obstacles.push("an allocation by cuMemCreate has no descriptor".to_owned());
        }
        if memory.mappings.iter().any(|mapping| mapping.id.is_none()) {
            obstacles.push("something is mapped that is no allocation".to_owned());
        }
        (Some(memory), obstacles)
    }

    /// All mapped ranges, address and size.
    pub(super) fn ranges(&self) -> Vec<(u64, u64)> {
        let own = self.mappings.iter().map(|mapping| (mapping.base, mapping.size));
        self.slabs.iter().map(|slab| (slab.base, slab.size)).chain(own).collect()
    }

    /// Slabs that have addresses for themselves, which the driver chose.
    fn slabs_apart(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.slabs.iter().map(|slab| (slab.base, slab.size));
        all.filter(|(base, size)| !arena::holds(*base, *size))
    }

    /// All reserved ranges, address and size.
    pub(super) fn reserved(&self) -> Vec<(u64, u64)> {
        arena::all().into_iter().chain(self.slabs_apart()).chain(self.reservations.iter().copied()).collect()
    }

    /// Adds the handles of contexts that the program has the handles of and does not retain: cudart's own, of devices that
    /// the program does not use.
    pub(super) fn name_contexts(&self, renamed: &mut Renamed) -> Result<(), Failed> {
        for (device, of) in &self.contexts {
            if of.context != 0 && !renamed.contains_key(&of.context) {
                let now = private::primary_of(*device).map_err(|(call, answer)| Failed { call, answer })?;
                renamed.insert(of.context, now.0);
            }
        }
        Ok(())
    }

    /// The same primary contexts, as often retained; the first one is current.
    pub(super) fn make_contexts(
        &self,
        mut retain: impl FnMut(CUdevice) -> Result<CUcontext, Failed>,
    ) -> Result<Renamed, Failed> {
        let mut renamed = Renamed::new();
        for (device, retained) in &self.contexts {
            if let Some(flags) = retained.flags {
                let answer = driver!(context::cuDevicePrimaryCtxSetFlags_v2(*device, flags));
                checked("cuDevicePrimaryCtxSetFlags", answer)?;
            }
            for _ in 0..retained.count {
                let context = retain(*device)?;
                if renamed.insert(retained.context, context.0).is_none() {
                    checked("cuCtxSetCurrent", driver!(context::cuCtxSetCurrent(context)))?;
                }
            }
        }
        for (owner, user) in &self.enabled {
            if let (Some(owner), Some(user)) = (renamed.get(owner), renamed.get(user)) {
                checked("cuCtxSetCurrent", driver!(context::cuCtxSetCurrent(CUcontext(*user))))?;
                checked("cuCtxEnablePeerAccess", driver!(context::cuCtxEnablePeerAccess(CUcontext(*owner), 0)))?;
            }
        }
        Ok(renamed)
    }

    /// The same memory at the same addresses. Handles of allocations that the program has are renamed.
    pub(super) fn map(&self, contexts: &Renamed) -> Result<Renamed, Failed> {
        for (base, size) in self.reserved() {
            reserve(base, size)?;
        }
        for slab in &self.slabs {
            let handle = import(slab.descriptor)?;
            checked("cuMemMap", driver!(mapping::cuMemMap(slab.base, length(slab.size), 0, handle, 0)))?;
            // The mapping and the descriptor hold it.
            let _nothing_to_do = driver!(mapping::cuMemRelease(handle));
        }
        self.allow_slabs()?;
        let mut renamed = contexts.clone();
        let mut imported = BTreeMap::new();
        for allocation in &self.allocations {
            imported.insert(allocation.id, import(allocation.descriptor)?);
        }
        for mapping in &self.mappings {
            let handle =
                mapping.id.and_then(|id| imported.get(&id)).copied().unwrap_or(CUmemGenericAllocationHandle(0));
            let (base, size, offset) = (mapping.base, length(mapping.size), length(mapping.offset));
            checked("cuMemMap", driver!(mapping::cuMemMap(base, size, offset, handle, 0)))?;
            if !mapping.access.is_empty() {
                let (list, count) = (mapping.access.as_ptr(), mapping.access.len());
                checked("cuMemSetAccess", driver!(mapping::cuMemSetAccess(base, size, list, count)))?;
            }
        }
        self.hold(&imported, &mut renamed)?;
        Ok(renamed)
    }

    /// Has each allocation held as often as the program does, and renames its handles.
    pub(super) fn hold(
        &self,
        imported: &BTreeMap<Id, CUmemGenericAllocationHandle>,
        renamed: &mut Renamed,
    ) -> Result<(), Failed> {
        for allocation in &self.allocations {
            let handle = imported[&allocation.id];
            let mapped = self.mappings.iter().find(|mapping| mapping.id == Some(allocation.id)).map(|of| of.base);
            let mut held = 0;
            for (number, references) in &allocation.handles {
                renamed.insert(handle_of(*number), handle.0);
                held += references;
            }
            match (held, mapped) {
                (0, _) => checked("cuMemRelease", driver!(mapping::cuMemRelease(handle)))?,
                (1, _) | (_, None) => {}
                (_, Some(base)) => {
                    for _ in 1..held {
                        let mut again = CUmemGenericAllocationHandle(0);
                        let place = ptr::with_exposed_provenance_mut(length(base));
                        let answer = driver!(mapping::cuMemRetainAllocationHandle(&raw mut again, place));
                        checked("cuMemRetainAllocationHandle", answer)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Access to slabs, for each run of slabs of one device that touch in one call, since a call is what costs.
    fn allow_slabs(&self) -> Result<(), Failed> {
        let mut rest = self.slabs.as_slice();
        while let Some(first) = rest.first() {
            let mut end = first.base;
            let together = rest
                .iter()
                .take_while(|slab| {
                    let touches = slab.base == end && slab.device == first.device;
                    end = slab.base + slab.size;
                    touches
                })
                .count();
            let (run, after) = rest.split_at(together);
            let users: Vec<CUdevice> = self.users(first.device);
            let size = run.iter().map(|slab| slab.size).sum();
            if region::allow(first.base, size, &users).is_err() {
                for slab in run {
                    region::allow(slab.base, slab.size, &users)
                        .map_err(|answer| Failed { call: "cuMemSetAccess", answer })?;
                }
            }
            rest = after;
        }
        Ok(())
    }

    pub(super) fn users(&self, device: CUdevice) -> Vec<CUdevice> {
        let peers = self.peers.iter().filter(|(owner, _)| *owner == device).map(|(_, user)| *user);
        std::iter::once(device).chain(peers).collect()
    }
}

pub(super) fn reserve(base: u64, size: u64) -> Result<(), Failed> {
    region::reserve_at(base, size).map_err(|why| match why {
        NotReserved::Driver(answer) => Failed { call: "cuMemAddressReserve", answer },
        NotReserved::Elsewhere => Failed { call: "cuMemAddressReserve at the same address", answer: ADDRESS_TAKEN },
    })
}

pub(super) fn import(descriptor: Option<c_int>) -> Result<CUmemGenericAllocationHandle, Failed> {
    let mut handle = CUmemGenericAllocationHandle(0);
    let number = usize::try_from(descriptor.unwrap_or(-1)).unwrap_or(usize::MAX);
    let place = ptr::without_provenance_mut(number);
    let answer = driver!(mapping::cuMemImportFromShareableHandle(&raw mut handle, place, DESCRIPTOR));
    checked("cuMemImportFromShareableHandle", answer)?;
    Ok(handle)
}
