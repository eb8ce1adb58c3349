//! What a spare copy of the driver has of the program's, and how it gets the rest.
//!
//! Each thing has a number that no other one has, or had: what is freed and allocated again at the same address, or given
//! out again under the same handle, is another one and is made anew. So nothing of what is no more is left in the copy.
#![expect(unsafe_code, reason = "calls the driver")]

mod ended;
mod memory;
mod textures;

use std::collections::{BTreeMap, BTreeSet};

use super::super::{
    memory::{Failed, Memory, Renamed, checked, length},
    objects::{self, Objects, enter},
};
use super::{
    contents::Variables,
    settled::{Numbers, Settings, Settled},
};
use crate::{
    cuda::types::{CUdevice, CUstream},
    kept::{
        self,
        code::stacks::STACK_SIZE,
        memory::{
            own::{Id, survey::OwnMapping},
            slabs::survey::SlabRange,
        },
        objects::{
            primary::Retained,
            recipes::{Recipe, Setting},
        },
    },
};
use ended::{End, Object};
use memory::Imported;

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
    enabled: Vec<(usize, usize)>,
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

impl Made {
    /// Nothing but contexts.
    pub(super) fn new(memory: &Memory, of_contexts: Renamed) -> Self {
        Self {
            contexts: memory.contexts.clone(),
            peers: memory.peers.clone(),
            enabled: memory.enabled.clone(),
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
