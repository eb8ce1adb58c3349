//! The memory of a spare copy of the driver: its contexts, and what is mapped there as in the program.
#![expect(unsafe_code, reason = "calls the driver")]

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    ptr,
};

use super::{
    super::super::{
        memory::{ADDRESS_TAKEN, Failed, MAKES_CONTEXT, Memory, checked, import, length, reserve},
        objects::enter,
        rest,
    },
    Made,
};
use crate::{
    cuda::{
        result::CUresult,
        types::{CUcontext, CUdevice, CUmemGenericAllocationHandle},
    },
    kept::{
        memory::{
            arena,
            own::{Id, survey::OwnMapping},
            region,
        },
        objects::primary::Retained,
    },
};

/// An allocation that was imported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Imported {
    pub(super) handle: CUmemGenericAllocationHandle,
    /// How often it must be released: 0 for one that its mappings alone hold.
    pub(super) held: u64,
}

/// Whether the program has contexts where the copy has them. One of which it has the handle alone, or which has flags, is
/// nothing that could be made: a program that asks what another GPU's context is called keeps its copy.
fn are_the_same(wanted: &[(CUdevice, Retained)], known: &[(CUdevice, Retained)]) -> bool {
    let there = |all: &[(CUdevice, Retained)]| -> BTreeSet<(CUdevice, usize)> {
        all.iter().filter(|(_, of)| of.count > 0).map(|(device, of)| (*device, of.context)).collect()
    };
    there(wanted) == there(known)
}

impl Made {
    /// Makes the copy have the same memory as the program, at the same addresses; how many things were otherwise.
    ///
    /// # Errors
    /// It cannot have it, or its contexts are no longer those of the program: then it is of no use.
    pub(in super::super) fn follow_memory(&mut self, memory: &Memory) -> Result<u64, Failed> {
        if !are_the_same(&memory.contexts, &self.contexts)
            || (&memory.peers, &memory.enabled) != (&self.peers, &self.enabled)
        {
            return Err(Failed { call: "a look at the same contexts", answer: CUresult(201) });
        }
        self.retain_and_set(memory)?;
        let Some(first) = self.of_contexts.values().next() else { return Ok(0) };
        enter(*first)?;
        let count = self.let_go(memory)? + self.map(memory)?;
        if count > 0 {
            self.settings.memory_has_changed();
        }
        Ok(count + self.hold(memory)?)
    }

    /// Has each context retained as often as the program has, with the same flags.
    fn retain_and_set(&mut self, memory: &Memory) -> Result<(), Failed> {
        for (device, wanted) in &memory.contexts {
            let place = self.contexts.iter().position(|(known, _)| known == device).unwrap_or_else(|| {
                self.contexts.push((*device, Retained::default()));
                self.contexts.len() - 1
            });
            let (_, of) = &mut self.contexts[place];
            of.context = wanted.context;
            if let Some(flags) = wanted.flags.filter(|_| of.flags != wanted.flags) {
                let answer = driver!(context::cuDevicePrimaryCtxSetFlags_v2(*device, flags));
                checked("cuDevicePrimaryCtxSetFlags", answer)?;
                of.flags = wanted.flags;
            }
            while of.count < wanted.count {
                let mut context = CUcontext(0);
                let answer = driver!(context::cuDevicePrimaryCtxRetain(&raw mut context, *device));
                checked(MAKES_CONTEXT, answer)?;
                of.count += 1;
            }
            while of.count > wanted.count {
                let answer = driver!(context::cuDevicePrimaryCtxRelease_v2(*device));
                checked("cuDevicePrimaryCtxRelease", answer)?;
                of.count -= 1;
            }
        }
        Ok(())
    }

    /// What the program has no longer.
    fn let_go(&mut self, memory: &Memory) -> Result<u64, Failed> {
        let mut count = 0;
        let unmap = |base, size| checked("cuMemUnmap", driver!(mapping::cuMemUnmap(base, length(size))));
        let mappings: BTreeMap<u64, &OwnMapping> = memory.mappings.iter().map(|of| (of.base, of)).collect();
        for (base, gone) in self.mappings.extract_if(.., |base, of| mappings.get(base) != Some(&&*of)) {
            unmap(base, gone.size)?;
            count += 1;
        }
        let slabs: BTreeSet<u64> = memory.slabs.iter().map(|slab| slab.serial).collect();
        for (_, gone) in self.slabs.extract_if(.., |serial, _| !slabs.contains(serial)) {
            unmap(gone.base, gone.size)?;
            count += 1;
        }
        let allocations: BTreeSet<Id> = memory.allocations.iter().map(|of| of.id).collect();
        for (_, gone) in self.allocations.extract_if(.., |id, _| !allocations.contains(id)) {
            for _ in 0..gone.held {
                checked("cuMemRelease", driver!(mapping::cuMemRelease(gone.handle)))?;
            }
            count += 1;
        }
        let reserved: BTreeSet<(u64, u64)> = memory.reserved().into_iter().collect();
        for (base, size) in self.reserved.extract_if(.., |range| !reserved.contains(range)) {
            checked("cuMemAddressFree", driver!(mapping::cuMemAddressFree(base, length(size))))?;
            count += 1;
        }
        Ok(count)
    }

    /// What it has besides.
    fn map(&mut self, memory: &Memory) -> Result<u64, Failed> {
        let mut count = 0;
        let new: Vec<_> = memory.reserved().into_iter().filter(|range| !self.reserved.contains(range)).collect();
        if new.iter().any(|(base, size)| !arena::is_apart(*base, *size)) {
            // There the kernel may put something else as soon as it is taken out of the maps.
            return Err(Failed { call: "memory in the places of this library", answer: ADDRESS_TAKEN });
        }
        if !new.is_empty() {
            rest::clear(&new);
        }
        for (base, size) in new {
            reserve(base, size)?;
            self.reserved.insert((base, size));
            count += 1;
        }
        for slab in memory.slabs.iter().filter(|slab| !self.slabs.contains_key(&slab.serial)).collect::<Vec<_>>() {
            let handle = import(slab.descriptor)?;
            let mapped = checked("cuMemMap", driver!(mapping::cuMemMap(slab.base, length(slab.size), 0, handle, 0)));
            // The mapping and the descriptor hold it.
            let _nothing_to_do = driver!(mapping::cuMemRelease(handle));
            mapped?;
            self.slabs.insert(slab.serial, *slab);
            region::allow(slab.base, slab.size, &memory.users(slab.device))
                .map_err(|answer| Failed { call: "cuMemSetAccess", answer })?;
            count += 1;
        }
        for allocation in &memory.allocations {
            if let Entry::Vacant(place) = self.allocations.entry(allocation.id) {
                place.insert(Imported { handle: import(allocation.descriptor)?, held: 1 });
                count += 1;
            }
        }
        for of in memory.mappings.iter().filter(|of| !self.mappings.contains_key(&of.base)).collect::<Vec<_>>() {
            let handle = self.handle_for(of.id, memory)?;
            let (base, size, offset) = (of.base, length(of.size), length(of.offset));
            checked("cuMemMap", driver!(mapping::cuMemMap(base, size, offset, handle, 0)))?;
            self.mappings.insert(of.base, of.clone());
            if !of.access.is_empty() {
                let (list, length) = (of.access.as_ptr(), of.access.len());
                checked("cuMemSetAccess", driver!(mapping::cuMemSetAccess(base, size, list, length)))?;
            }
            count += 1;
        }
        Ok(count)
    }

    /// The handle of an allocation that is to be mapped.
    fn handle_for(&mut self, id: Option<Id>, memory: &Memory) -> Result<CUmemGenericAllocationHandle, Failed> {
        let none = CUmemGenericAllocationHandle(0);
        let Some(known) = id.and_then(|id| self.allocations.get_mut(&id)) else { return Ok(none) };
        if known.held == 0 {
            let descriptor = memory.allocations.iter().find(|of| Some(of.id) == id).and_then(|of| of.descriptor);
            *known = Imported { handle: import(descriptor)?, held: 1 };
        }
        Ok(known.handle)
    }

    /// Has each allocation held as often as the program does; how many were not.
    fn hold(&mut self, memory: &Memory) -> Result<u64, Failed> {
        let mut count = 0;
        let mapped: BTreeMap<Id, u64> = memory.mappings.iter().filter_map(|of| Some((of.id?, of.base))).collect();
        for allocation in &memory.allocations {
            let wanted: u64 = allocation.handles.iter().map(|(_, references)| references).sum();
            let Some(known) = self.allocations.get_mut(&allocation.id).filter(|known| known.held != wanted) else {
                continue;
            };
            while known.held > wanted {
                checked("cuMemRelease", driver!(mapping::cuMemRelease(known.handle)))?;
                known.held -= 1;
                count += 1;
            }
            while known.held < wanted
                && let Some(base) = mapped.get(&allocation.id)
            {
                let mut again = CUmemGenericAllocationHandle(0);
                let place = ptr::with_exposed_provenance_mut(length(*base));
                let answer = driver!(mapping::cuMemRetainAllocationHandle(&raw mut again, place));
                checked("cuMemRetainAllocationHandle", answer)?;
                *known = Imported { handle: if known.held == 0 { again } else { known.handle }, held: known.held + 1 };
                count += 1;
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::{Retained, are_the_same};

    #[test]
    fn contexts_are_those_that_are_retained() {
        let (first, second) = (0xc0, 0xc1);
        let of = |context, count| Retained { context, count, flags: None };
        let alone = [(0, of(first, 1))];
        for beside in [of(second, 0), Retained { flags: Some(4), ..of(0, 0) }] {
            assert!(are_the_same(&[alone[0], (1, beside)], &alone), "{beside:?} is nothing that could be made");
        }
        assert!(are_the_same(&[(0, of(first, 3))], &alone), "how often, is set");
        let both = [alone[0], (1, of(second, 1))];
        assert!(!are_the_same(&both, &alone) && !are_the_same(&alone, &both));
        assert!(!are_the_same(&[alone[0], (1, of(second, 0))], &both), "it has ended");
        assert!(!are_the_same(&[(0, of(second, 1))], &alone), "it is another one");
    }
}
