//! How to make again what a program has besides memory. Pure bookkeeping.
//!
//! A recipe is kept by the driver's handle, which stays the object's name for the program. What is made of something
//! goes with it: functions with their module, kernels with their library, and everything with its context.

mod by_address;
mod order;
mod recipe;
mod views;

pub(crate) use by_address::{HostMemory, MOST_WRITTEN};
pub(crate) use recipe::{Image, JitOption, KINDS, Recipe, Setting, code_of};
pub(crate) use views::{Layout, OfArray, Texture, key_of};

use super::{still::Still, written::Written};

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CString, c_uint},
    ops::Range,
    sync::Arc,
};

/// Bytes of images that are kept at most; more are not recoverable.
const MOST_IMAGE_BYTES: u64 = 2 << 30;

/// A recipe, and how many were kept before it.
#[derive(Debug)]
struct Kept {
    number: u64,
    recipe: Recipe,
}

/// An object with what was made of it and set on it, until the driver has destroyed it.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    recipes: Vec<(usize, Kept)>,
    written: Vec<(usize, Written)>,
    settings: Vec<((usize, Setting), u64)>,
}

impl Taken {
    /// Handles of all of them.
    pub(crate) fn handles(&self) -> impl Iterator<Item = usize> {
        self.recipes.iter().map(|(handle, _)| *handle)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Recipes {
    by_handle: BTreeMap<usize, Kept>,
    /// What each object was made of, and each context: that, and the object.
    made_of: BTreeSet<(usize, usize)>,
    made_in: BTreeSet<(usize, usize)>,
    /// Of the next one.
    number: u64,
    /// By object, the last value of each setting.
    settings: BTreeMap<(usize, Setting), u64>,
    /// Of those that are of addresses, by address: the object and the attribute. One that is gone may still be here.
    addresses: BTreeMap<u64, (usize, c_uint)>,
    image_bytes: u64,
    /// By variable, what the program has written there.
    written: BTreeMap<usize, Written>,
    written_bytes: usize,
    /// What variables had in them when the program was last at rest.
    still: Option<Arc<Still>>,
    /// What that is has this number, and nothing else has.
    still_number: u64,
    /// How many changes there had been by then.
    read_after: u64,
    /// How often a recipe was kept or taken out.
    changes: u64,
    /// How often anything else may have changed.
    settled: u64,
}

/// Where an object's settings are.
fn settings_of(object: usize) -> Range<(usize, Setting)> {
    (object, Setting::FIRST)..(object.saturating_add(1), Setting::FIRST)
}

/// What was made of something, or in it.
fn with(pairs: &BTreeSet<(usize, usize)>, of: usize) -> impl Iterator<Item = usize> {
    pairs.range((of, 0)..=(of, usize::MAX)).map(|(_, object)| *object)
}

impl Recipes {
    /// Keeps a recipe; whether there was room for its image.
    pub(crate) fn keep(&mut self, handle: usize, recipe: Recipe) -> bool {
        // A handle that is given out again was destroyed in a way that nobody saw.
        self.forget(handle);
        let bytes = recipe.image_bytes();
        if self.image_bytes.saturating_add(bytes) > MOST_IMAGE_BYTES {
            return false;
        }
        self.image_bytes += bytes;
        self.put(handle, Kept { number: self.number, recipe });
        self.number += 1;
        self.changes += 1;
        true
    }

    fn put(&mut self, handle: usize, kept: Kept) {
        self.made_of.extend(kept.recipe.parent().map(|of| (of, handle)));
        self.made_in.extend(kept.recipe.context().map(|context| (context, handle)));
        self.by_handle.insert(handle, kept);
    }

    fn remove(&mut self, handle: usize) -> Option<Kept> {
        let kept = self.by_handle.remove(&handle)?;
        if let Some(of) = kept.recipe.parent() {
            self.made_of.remove(&(of, handle));
        }
        if let Some(context) = kept.recipe.context() {
            self.made_in.remove(&(context, handle));
        }
        Some(kept)
    }

    /// Keeps the recipe of something that the driver gives out again and again with one handle.
    pub(crate) fn keep_first(&mut self, handle: usize, recipe: impl FnOnce() -> Recipe) {
        if !self.by_handle.contains_key(&handle) {
            self.keep(handle, recipe());
        }
    }

    /// Forgets an object and what was made of it; whether it was known.
    pub(crate) fn forget(&mut self, handle: usize) -> bool {
        !self.take(handle).recipes.is_empty()
    }

    /// Takes an object and what was made of it out.
    pub(crate) fn take(&mut self, handle: usize) -> Taken {
        let mut taken = Taken::default();
        let mut left = vec![handle];
        while let Some(handle) = left.pop() {
            let Some(kept) = self.remove(handle) else { continue };
            self.image_bytes -= kept.recipe.image_bytes();
            left.extend(with(&self.made_of, handle));
            taken.written.extend(self.forget_written(handle).map(|written| (handle, written)));
            taken.settings.extend(self.settings.extract_if(settings_of(handle), |_, _| true));
            self.changes += 1;
            self.is_still_no_more(handle);
            taken.recipes.push((handle, kept));
        }
        taken
    }

    /// Puts back what was taken: the driver has refused to destroy it. A spare copy may have ended its own meanwhile, with
    /// what it had set on it and made of it, so it is another one from now on.
    pub(crate) fn put_back(&mut self, taken: Taken) {
        let back: Vec<usize> = taken.handles().collect();
        self.settled += 1;
        self.image_bytes += taken.recipes.iter().map(|(_, kept)| kept.recipe.image_bytes()).sum::<u64>();
        self.written_bytes += taken.written.iter().map(|(_, written)| written.cost()).sum::<usize>();
        self.written.extend(taken.written);
        for (handle, Kept { recipe, .. }) in taken.recipes {
            self.put(handle, Kept { number: self.number, recipe });
            self.number += 1;
            self.changes += 1;
        }
        self.with_textures_of(&back, |_| {});
        self.settings.extend(taken.settings);
        // What was known of it is forgotten, and it is there all the same.
        self.still = None;
    }

    /// Forgets everything that was made in a context; the host memory among it.
    pub(crate) fn forget_context(&mut self, context: usize) -> Vec<HostMemory> {
        self.settled += 1;
        let made_in_it: Vec<usize> = with(&self.made_in, context).collect();
        let memory = made_in_it.iter().filter_map(|handle| self.host_memory(*handle)).collect();
        for handle in made_in_it {
            self.forget(handle);
        }
        self.settings.extract_if(settings_of(context), |_, _| true).for_each(drop);
        self.is_still_no_more(context);
        memory
    }

    /// Events that were made in a context.
    pub(crate) fn events_in(&self, context: usize) -> impl Iterator<Item = usize> {
        let is_event = |handle: &usize| matches!(self.by_handle[handle].recipe, Recipe::Event { .. });
        with(&self.made_in, context).filter(move |handle| self.by_handle.contains_key(handle) && is_event(handle))
    }

    /// What an object is, by its handle.
    pub(crate) fn kind_of(&self, handle: usize) -> Option<&'static str> {
        self.by_handle.get(&handle).filter(|kept| !kept.recipe.has_address()).map(|kept| KINDS[kept.recipe.kind()])
    }

    /// The image and the name of a kernel, by its handle.
    pub(crate) fn code_of(&self, kernel: usize) -> Option<(Image, CString)> {
        let recipe_of = |handle: usize| self.by_handle.get(&handle).map(|kept| &kept.recipe);
        code_of(recipe_of(kernel)?, recipe_of).map(|(image, name)| (image.clone(), name.to_owned()))
    }

    /// Whether an object's recipe is kept.
    pub(crate) fn is_kept(&self, handle: usize) -> bool {
        self.by_handle.contains_key(&handle)
    }

    /// Whether any recipe was kept or taken out since the variables were read.
    pub(crate) fn is_changed(&self) -> bool {
        self.changes != self.read_after
    }

    /// How often any recipe was kept or taken out.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// How often anything was set, or written to variables or read of them.
    pub(crate) fn settled(&self) -> u64 {
        self.settled
    }

    /// The variables were read, after so many changes. Whether nothing has changed meanwhile.
    pub(crate) fn is_still(&mut self, still: Still, changes: u64) -> bool {
        self.settled += 1;
        let is_current = self.changes == changes;
        self.still = Some(still).filter(|_| is_current).map(Arc::new);
        self.still_number += 1;
        self.read_after = changes;
        is_current
    }

    /// What variables have in them, if all streams have been given as much work as when they were read.
    pub(crate) fn still(&self, given: u64) -> Option<&Arc<Still>> {
        self.still.as_ref().filter(|still| still.given == given)
    }

    /// The number of what variables have in them, which is another one for anything else that they have.
    pub(crate) fn still_number(&self) -> u64 {
        self.still_number
    }

    /// Nothing is known any more of what this has in its variables.
    fn is_still_no_more(&mut self, handle: usize) {
        if let Some(still) = self.still.as_mut().filter(|still| still.has(handle)) {
            Arc::make_mut(still).forget(handle);
            self.still_number += 1;
        }
    }

    /// All libraries.
    pub(crate) fn libraries(&self) -> Vec<usize> {
        let all = self.by_handle.iter().filter(|(_, kept)| matches!(kept.recipe, Recipe::Library { .. }));
        all.map(|(handle, _)| *handle).collect()
    }

    /// Notes a setting.
    pub(crate) fn set(&mut self, object: usize, setting: Setting, value: u64) {
        self.settled += 1;
        self.settings.insert((object, setting), value);
        if let Setting::PointerAttribute(attribute, address) = setting {
            self.addresses.insert(address, (object, attribute));
        }
    }

    /// Memory is gone: what was set on addresses there is set on nothing.
    pub(crate) fn forget_addresses(&mut self, memory: &Range<u64>) {
        for (address, (object, attribute)) in self.addresses.extract_if(memory.clone(), |_, _| true) {
            self.settled += 1;
            self.settings.remove(&(object, Setting::PointerAttribute(attribute, address)));
        }
    }

    /// A stream has the attributes of another one, and no others.
    pub(crate) fn copy_attributes(&mut self, to: usize, from: usize) {
        self.settled += 1;
        if to == from {
            return;
        }
        let is_attribute = |setting: &Setting| matches!(setting, Setting::StreamAttribute(..));
        self.settings.extract_if(settings_of(to), |(_, setting), _| is_attribute(setting)).for_each(drop);
        let copies: Vec<_> = self
            .settings
            .range(settings_of(from))
            .filter(|((_, setting), _)| is_attribute(setting))
            .map(|((_, setting), value)| ((to, *setting), *value))
            .collect();
        self.settings.extend(copies);
    }

    /// Notes a setting that one object alone can have.
    pub(crate) fn set_alone(&mut self, object: usize, setting: Setting, value: u64) {
        self.settings.retain(|(_, of), _| *of != setting);
        self.set(object, setting, value);
    }

    /// How many there are of each of [`KINDS`] but graphs, and bytes of images.
    pub(crate) fn totals(&self) -> ([u64; KINDS.len()], u64) {
        let mut counts = [0; KINDS.len()];
        for kept in self.by_handle.values() {
            counts[kept.recipe.kind()] += 1;
        }
        (counts, self.image_bytes)
    }
}

#[cfg(test)]
mod tests;
