//! Libraries, modules, functions, streams, events, arrays and host ranges in a fresh copy of the driver, by their recipes.
#![expect(unsafe_code, reason = "calls the driver")]

mod by_recipe;

pub(super) use by_recipe::make;

use std::{collections::BTreeMap, sync::Arc};

use super::{
    graphs::Graphs,
    memory::{Failed, Renamed, checked},
    set_again, textures, variables,
};
use crate::cuda::moved::{Move, Moves};
use crate::{
    cuda::{
        result::CUresult,
        types::{CUcontext, Key as _},
    },
    kept::{
        self,
        code::still::{self, Name, Still},
        memory::arrays::view,
        objects::recipes::{Recipe, Setting},
        work::progress,
    },
};

/// Objects that are made again, by their handles of before.
pub(super) struct Objects {
    pub(super) recipes: Vec<(usize, Recipe)>,
    /// Of each recipe: no other one has it, or had.
    pub(super) numbers: Vec<u64>,
    pub(super) settings: Vec<(usize, Setting, u64)>,
    /// What variables have had written to them: addresses and bytes.
    pub(super) written: Vec<(usize, Vec<u8>)>,
    /// What was read of variables when the program was at rest, if it has been since.
    pub(super) still: Option<Arc<Still>>,
    /// Of what that is: nothing else has it.
    pub(super) still_number: u64,
    pub(super) graphs: Graphs,
}

impl Objects {
    /// All that there are.
    pub(super) fn survey() -> Self {
        let given = progress::given();
        let found = kept::recipes(|recipes| {
            let still = (recipes.still(given).cloned(), recipes.still_number());
            (recipes.in_order(), recipes.numbers(), recipes.all_settings(), recipes.all_written(), still)
        });
        let (recipes, numbers, settings, written, (still, still_number)) = found.unwrap_or_default();
        Self { recipes, numbers, settings, written, still, still_number, graphs: Graphs::survey() }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.recipes.len() + self.graphs.count()
    }

    /// Modules and libraries that begin anew with something that may have been another by then, each with why.
    pub(super) fn anew(&self) -> BTreeMap<usize, String> {
        still::anew(&self.recipes, self.still.as_deref())
    }

    /// Memory of the host that devices reach: address and size.
    pub(super) fn host_ranges(&self) -> Vec<(u64, u64)> {
        let ranges = self.recipes.iter().filter_map(|(start, recipe)| {
            let (Recipe::HostRange { size, .. } | Recipe::HostMemory { size, .. }) = recipe else { return None };
            // What processes wait for each other by is none of the program's.
            if kept::shared::is_page(*start) {
                return None;
            }
            Some((start.key(), size.key()))
        });
        ranges.collect()
    }

    /// Makes them all. `renamed` has the contexts, and gets the objects.
    pub(super) fn make(&self, renamed: &mut Renamed) -> Result<(), Failed> {
        for (handle, recipe) in &self.recipes {
            if matches!(recipe, Recipe::Texture { .. }) {
                continue;
            }
            let made = make(*handle, recipe, renamed)?;
            if recipe.has_handle() {
                renamed.insert(*handle, made);
            }
        }
        textures::make(&textures::of(&self.recipes), &BTreeMap::new(), renamed)?;
        self.finish(renamed)
    }

    /// What is done when each object of a recipe is there, and made of such: settings, variables, graphs.
    pub(super) fn finish(&self, renamed: &mut Renamed) -> Result<(), Failed> {
        let moves = self.moves(renamed, |address| address);
        set_again::apply(&self.settings, &self.recipes, renamed, &moves)?;
        self.write(renamed)?;
        self.write_still(renamed)?;
        self.graphs.make(renamed, &moves)
    }

    /// The variables, which have moved, with their addresses of before by another name.
    pub(super) fn moves(&self, renamed: &Renamed, name_of: impl Fn(usize) -> usize) -> Moves {
        let moved = self.recipes.iter().filter_map(|(handle, recipe)| {
            let Recipe::Variable { size, .. } = recipe else { return None };
            let to = renamed.get(handle)?;
            Some(Move { from: name_of(*handle).key(), size: size.key(), to: to.key() })
        });
        Moves::new(moved.collect())
    }

    /// Gives variables what the program has written to them.
    fn write(&self, renamed: &Renamed) -> Result<(), Failed> {
        for (address, bytes) in &self.written {
            let variable = self.recipes.iter().rev().find_map(|(start, recipe)| {
                let Recipe::Variable { context, size, .. } = recipe else { return None };
                (*start..start + size).contains(address).then_some((context, start))
            });
            let Some((context, start)) = variable else { continue };
            let (Some(context), Some(now)) = (renamed.get(context), renamed.get(start)) else { continue };
            enter(*context)?;
            let address = now + (address - start);
            let answer = driver!(copy::cuMemcpyHtoD_v2(address.key(), bytes.as_ptr().cast(), bytes.len()));
            checked("cuMemcpyHtoD", answer)?;
        }
        Ok(())
    }

    /// Gives variables what was read of them when the program was at rest.
    fn write_still(&self, renamed: &Renamed) -> Result<(), Failed> {
        let Some(still) = &self.still else { return Ok(()) };
        let missing = Failed { call: "cuModuleGetGlobal", answer: CUresult(400) };
        let now = |handle: &usize| renamed.get(handle).copied().ok_or(missing);
        let mut current = None;
        let mut found = Vec::new();
        for (name, bytes) in &still.variables {
            let name = Name { context: now(&name.context)?, of: now(&name.of)?, ..name.clone() };
            if current.replace(name.context) != Some(name.context) {
                enter(name.context)?;
            }
            let (address, size) =
                variables::find(&name).map_err(|answer| Failed { call: "cuModuleGetGlobal", answer })?;
            if size != bytes.len() {
                return Err(Failed { call: "cuModuleGetGlobal of the same size", answer: CUresult(500) });
            }
            found.push((name.context, address, bytes.as_slice()));
        }
        found.sort_unstable_by_key(|(context, address, _)| (*context, *address));
        // Those that touch in one call, since a call is what costs.
        for run in found
            .chunk_by(|(context, address, bytes), (other, next, _)| context == other && address + bytes.len() == *next)
        {
            let Some((context, address, _)) = run.first() else { continue };
            enter(*context)?;
            let write = |address: usize, bytes: &[u8]| {
                let answer = driver!(copy::cuMemcpyHtoD_v2(address.key(), bytes.as_ptr().cast(), bytes.len()));
                checked("cuMemcpyHtoD", answer)
            };
            let together: Vec<u8> = run.iter().flat_map(|(_, _, bytes)| *bytes).copied().collect();
            if write(*address, &together).is_err() {
                run.iter().try_for_each(|(_, address, bytes)| write(*address, bytes))?;
            }
        }
        Ok(())
    }
}

impl From<view::Refused> for Failed {
    fn from(view::Refused { call, answer }: view::Refused) -> Self {
        Self { call, answer }
    }
}

pub(super) fn enter(context: usize) -> Result<(), Failed> {
    checked("cuCtxSetCurrent", driver!(context::cuCtxSetCurrent(CUcontext(context))))
}
