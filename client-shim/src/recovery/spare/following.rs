//! What a spare copy of the driver has of the program's, and how it gets the rest.
//!
//! Each thing has a number that no other one has, or had: what is freed and allocated again at the same address, or given
//! out again under the same handle, is another one and is made anew. So nothing of what is no more is left in the copy.
#![expect(unsafe_code, reason = "calls the driver")]

mod textures;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    ptr,
};

use super::super::{
    memory::{ADDRESS_TAKEN, Failed, Memory, Renamed, checked, import, length, reserve},
    objects::{self, Objects, enter},
    rest,
};
use super::{
    contents::Variables,
    settled::{Numbers, Settings, Settled},
};
use crate::{
    cuda::{
        result::CUresult,
        types::{
            CUcontext, CUdevice, CUevent, CUexternalMemory, CUlibrary, CUmemGenericAllocationHandle, CUmemoryPool,
            CUmipmappedArray, CUmodule, CUstream, Key as _,
        },
    },
    kept::{
        self,
        code::stacks::STACK_SIZE,
        memory::{
            arena,
            own::{Id, survey::OwnMapping},
            region,
            slabs::survey::SlabRange,
        },
        objects::{
            primary::Retained,
            recipes::{Recipe, Setting},
        },
    },
};

/// What must be called when an object is no more.
#[derive(Clone, Copy, Debug)]
enum End {
    Stream,
    Event,
    Module,
    Library,
    Pool,
    Host,
    ArrayMemory,
    MipmappedArray,
    Texture,
    Surface,
    /// It goes with something else, or stays.
    Nothing,
}

impl End {
    fn of(recipe: &Recipe) -> Self {
        match recipe {
            Recipe::Stream { .. } => Self::Stream,
            Recipe::Event { .. } => Self::Event,
            Recipe::Module { .. } => Self::Module,
            Recipe::Library { .. } => Self::Library,
            Recipe::Pool { properties: Some(_), .. } => Self::Pool,
            Recipe::HostRange { .. } | Recipe::HostMemory { .. } => Self::Host,
            Recipe::ArrayMemory { .. } => Self::ArrayMemory,
            Recipe::MipmappedArray { .. } => Self::MipmappedArray,
            Recipe::Texture { texture, .. } if texture.how.is_some() => Self::Texture,
            Recipe::Texture { .. } => Self::Surface,
            Recipe::Pool { properties: None, .. }
            | Recipe::Function { .. }
            | Recipe::Kernel { .. }
            | Recipe::LibraryModule { .. }
            | Recipe::KernelFunction { .. }
            | Recipe::Array { .. }
            | Recipe::Variable { .. } => Self::Nothing,
        }
    }

    fn call(self, handle: usize) {
        let _gone_anyway = match self {
            Self::Stream => driver!(stream::cuStreamDestroy_v2(CUstream(handle))),
            Self::Event => driver!(event::cuEventDestroy_v2(CUevent(handle))),
            Self::Module => driver!(module::cuModuleUnload(CUmodule(handle))),
            Self::Library => driver!(library::cuLibraryUnload(CUlibrary(handle))),
            Self::Pool => driver!(pool::cuMemPoolDestroy(CUmemoryPool(handle))),
            Self::Host => driver!(host::cuMemHostUnregister(ptr::with_exposed_provenance_mut(handle))),
            Self::ArrayMemory => driver!(external::cuDestroyExternalMemory(CUexternalMemory(handle))),
            Self::MipmappedArray => driver!(array::cuMipmappedArrayDestroy(CUmipmappedArray(handle))),
            Self::Texture => driver!(array::cuTexObjectDestroy(handle.key())),
            Self::Surface => driver!(array::cuSurfObjectDestroy(handle.key())),
            Self::Nothing => CUresult::CUDA_SUCCESS,
        };
    }
}

/// An object that was made.
#[derive(Clone, Copy, Debug)]
struct Object {
    /// Of its recipe.
    number: u64,
    /// A texture's or surface's value.
    handle: usize,
    /// The copy's context, of what ends in it alone; 0 for the others.
    context: usize,
    end: End,
}

impl Object {
    fn end(self) {
        if self.context != 0 && enter(self.context).is_err() {
            return;
        }
        self.end.call(self.handle);
    }
}

/// Whether the program has contexts where the copy has them. One of which it has the handle alone, or which has flags, is
/// nothing that could be made: a program that asks what another GPU's context is called keeps its copy.
fn are_the_same(wanted: &[(CUdevice, Retained)], known: &[(CUdevice, Retained)]) -> bool {
    let there = |all: &[(CUdevice, Retained)]| -> BTreeSet<(CUdevice, usize)> {
        all.iter().filter(|(_, of)| of.count > 0).map(|(device, of)| (*device, of.context)).collect()
    };
    there(wanted) == there(known)
}

/// Whether the program has any object of this handle.
fn is_known(handle: usize) -> bool {
    kept::recipes(|recipes| recipes.is_kept(handle)).unwrap_or(true)
}

/// Whether the program has this object yet.
fn is_still_there(handle: usize, number: u64) -> bool {
    kept::recipes(|recipes| recipes.number_of(handle) == Some(number)).unwrap_or(false)
}

/// All that the copy has.
#[derive(Debug)]
pub(super) struct Made {
    contexts: Vec<(CUdevice, Retained)>,
    peers: Vec<(CUdevice, CUdevice)>,
    of_contexts: Renamed,
    reserved: BTreeSet<(u64, u64)>,
    slabs: BTreeMap<u64, SlabRange>,
    allocations: BTreeMap<Id, Imported>,
    /// By address.
    mappings: BTreeMap<u64, OwnMapping>,
    /// By the program's handle.
    objects: BTreeMap<usize, Object>,
    settings: Settings,
    variables: Variables,
    graphs: Settled,
    /// Whether something was left out that is neither here nor gone.
    is_waiting: bool,
}

/// An allocation that was imported.
#[derive(Clone, Copy, Debug)]
struct Imported {
    handle: CUmemGenericAllocationHandle,
    /// How often it must be released: 0 for one that its mappings alone hold.
    held: u64,
}

impl Made {
    /// Nothing but contexts.
    pub(super) fn new(memory: &Memory, of_contexts: Renamed) -> Self {
        Self {
            contexts: memory.contexts.clone(),
            peers: memory.peers.clone(),
            of_contexts,
            reserved: BTreeSet::new(),
            slabs: BTreeMap::new(),
            allocations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            objects: BTreeMap::new(),
            settings: Settings::default(),
            variables: Variables::default(),
            graphs: Settled::default(),
            is_waiting: false,
        }
    }

    /// Whether it lacks textures of an array that the program is just destroying. There is a change when it has.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// The copy's contexts.
    pub(super) fn contexts(&self) -> impl Iterator<Item = usize> {
        self.of_contexts.values().copied()
    }

    /// Devices that the program has a context of.
    pub(super) fn devices(&self) -> impl Iterator<Item = CUdevice> {
        self.contexts.iter().filter(|(_, of)| of.count > 0).map(|(device, _)| *device)
    }

    /// Makes the copy have the same memory as the program, at the same addresses; how many things were otherwise.
    ///
    /// # Errors
    /// It cannot have it, or its contexts are no longer those of the program: then it is of no use.
    pub(super) fn follow_memory(&mut self, memory: &Memory) -> Result<u64, Failed> {
        if !are_the_same(&memory.contexts, &self.contexts) || memory.peers != self.peers {
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
                checked("cuDevicePrimaryCtxRetain", answer)?;
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

    /// Makes the copy have an object for each recipe, but those that are just ending; how many things were otherwise.
    ///
    /// # Errors
    /// One cannot be made.
    pub(super) fn follow_objects(&mut self, wanted: &Objects) -> Result<u64, Failed> {
        let mut count = 0;
        let all = || wanted.recipes.iter().zip(&wanted.numbers);
        let numbers: BTreeMap<usize, u64> = all().map(|((handle, _), number)| (*handle, *number)).collect();
        let lost = self.settings.lost(wanted)?;
        let is_gone = |handle: &usize, of: &mut Object| {
            numbers.get(handle) != Some(&of.number) || (lost.contains(handle) && matches!(of.end, End::Stream))
        };
        let mut gone: Vec<Object> = self.objects.extract_if(.., is_gone).map(|(_, of)| of).collect();
        // What was made of something goes before it.
        gone.sort_unstable_by_key(|of| std::cmp::Reverse(of.number));
        for object in gone {
            object.end();
            count += 1;
        }
        let mut renamed = self.renamed();
        for ((handle, recipe), number) in all() {
            if self.objects.contains_key(handle) || matches!(recipe, Recipe::Texture { .. }) {
                continue;
            }
            let made = match objects::make(*handle, recipe, &renamed) {
                Ok(made) => made,
                // The program has ended it meanwhile.
                Err(_) if !is_still_there(*handle, *number) => continue,
                Err(failed) => return Err(failed),
            };
            if recipe.has_handle() {
                renamed.insert(*handle, made);
            }
            let of = if let Recipe::ArrayMemory { context, .. } | Recipe::MipmappedArray { context, .. } = recipe {
                renamed.get(context)
            } else {
                None
            };
            let context = of.copied().unwrap_or_default();
            self.objects.insert(*handle, Object { number: *number, handle: made, context, end: End::of(recipe) });
            count += 1;
        }
        Ok(count + self.follow_textures(wanted, &numbers, &renamed)?)
    }

    /// Handles of contexts and objects, by the program's.
    fn renamed(&self) -> Renamed {
        let mut renamed = self.of_contexts.clone();
        // What has an address is not in the way: nothing is called as one of these.
        let has_handle = |end: &End| !matches!(end, End::Host | End::Texture | End::Surface);
        let objects = self.objects.iter().filter(|(_, of)| has_handle(&of.end));
        renamed.extend(objects.map(|(handle, of)| (*handle, of.handle)));
        renamed
    }

    /// Has everything set as the program has, but stacks as long as they are small; how many things were otherwise.
    pub(super) fn follow_settings(&mut self, wanted: &Objects, are_stacks_small: bool) -> Result<u64, Failed> {
        self.settings.follow(wanted, &self.numbers(), &self.renamed(), are_stacks_small)
    }

    /// Has variables contain what is known of them; how many did not.
    pub(super) fn follow_variables(&mut self, wanted: &Objects) -> Result<u64, Failed> {
        self.variables.follow(wanted, &self.numbers(), &self.renamed())
    }

    /// Makes the copy have the same graphs, but those that are changing, as long as that is not enough; how many were
    /// otherwise.
    pub(super) fn follow_graphs(
        &mut self,
        wanted: &Objects,
        left: (&BTreeSet<usize>, fn() -> bool),
    ) -> Result<u64, Failed> {
        let renamed = self.renamed();
        let graphs = wanted.graphs.moved(&wanted.moves(&renamed, |address| address));
        self.graphs.follow(&graphs, &self.numbers(), &renamed, left)
    }

    fn numbers(&self) -> Numbers {
        self.objects.iter().map(|(handle, of)| (*handle, of.number)).collect()
    }

    /// The stack limit that the program has set for one of the copy's contexts, if it has.
    pub(super) fn stack_of(&self, context: usize, wanted: &Objects) -> Option<usize> {
        let name = self.of_contexts.iter().find(|(_, now)| **now == context).map(|(name, _)| *name)?;
        let is_it = |(of, setting, _): &&(usize, Setting, u64)| (*of, *setting) == (name, Setting::Limit(STACK_SIZE));
        wanted.settings.iter().find(is_it).map(|(.., value)| length(*value))
    }

    /// Everything by the handles of today, for a program that is to go on with the copy.
    pub(super) fn handed_over(&self, memory: &Memory) -> Renamed {
        let mut renamed = self.renamed();
        for allocation in &memory.allocations {
            let Some(known) = self.allocations.get(&allocation.id) else { continue };
            renamed.extend(allocation.handles.iter().map(|(number, _)| (length(*number), known.handle.0)));
        }
        self.graphs.name(&mut renamed);
        renamed
    }

    /// Whether every context lives.
    pub(super) fn lives(&self) -> Result<(), Failed> {
        self.contexts().try_for_each(|context| {
            enter(context)?;
            checked("cuStreamQuery", driver!(stream::cuStreamQuery(CUstream(0))))
        })
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
