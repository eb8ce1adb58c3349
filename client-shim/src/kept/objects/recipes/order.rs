//! The recipes in the order in which they can be followed, and what changes when they have been.

use std::sync::Arc;

use super::{Kept, Recipe, Recipes, Setting, views};
use crate::cuda::moved::Moves;

impl Recipe {
    /// The same with the handles of today.
    fn renamed(self, current: impl Fn(usize) -> usize) -> Self {
        match self {
            Self::Stream { context, flags, priority } => Self::Stream { context: current(context), flags, priority },
            Self::Event { context, flags } => Self::Event { context: current(context), flags },
            Self::Module { context, image, options } => Self::Module { context: current(context), image, options },
            Self::Function { module, name } => Self::Function { module: current(module), name },
            Self::Library { image, options } => Self::Library { image, options },
            Self::Kernel { library, name } => Self::Kernel { library: current(library), name },
            Self::LibraryModule { context, library } => {
                Self::LibraryModule { context: current(context), library: current(library) }
            }
            Self::KernelFunction { context, kernel } => {
                Self::KernelFunction { context: current(context), kernel: current(kernel) }
            }
            Self::HostRange { context, size, flags } => Self::HostRange { context: current(context), size, flags },
            Self::HostMemory { context, size, flags } => Self::HostMemory { context: current(context), size, flags },
            Self::Pool { device, properties } => Self::Pool { device, properties },
            Self::Variable { context, of, is_of_library, name, size } => {
                Self::Variable { context: current(context), of: current(of), is_of_library, name, size }
            }
            Self::ArrayMemory { context, address } => Self::ArrayMemory { context: current(context), address },
            Self::MipmappedArray { context, memory, address, layout, is_plain } => {
                let (context, memory) = (current(context), current(memory));
                Self::MipmappedArray { context, memory, address, layout, is_plain }
            }
            Self::Array { of, level } => Self::Array { of: current(of), level },
            Self::Texture { context, mut texture } => {
                texture.rename(&current);
                Self::Texture { context: current(context), texture }
            }
        }
    }
}

impl Recipes {
    /// Every object with its recipe, in the order in which they were made: what others are made of comes first, and where
    /// the driver puts what a module brings along depends on what is there already.
    pub(crate) fn in_order(&self) -> Vec<(usize, Recipe)> {
        let mut all: Vec<_> = self.by_handle.iter().collect();
        all.sort_by_key(|(_, kept)| kept.number);
        all.into_iter().map(|(handle, kept)| (*handle, kept.recipe.clone())).collect()
    }

    /// The numbers of all objects in that order: no other recipe has such a number, or had.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let mut all: Vec<_> = self.by_handle.values().map(|kept| kept.number).collect();
        all.sort_unstable();
        all
    }

    /// The number of one object.
    pub(crate) fn number_of(&self, handle: usize) -> Option<u64> {
        self.by_handle.get(&handle).map(|kept| kept.number)
    }

    /// What was set on objects and contexts.
    pub(crate) fn all_settings(&self) -> Vec<(usize, Setting, u64)> {
        self.settings.iter().map(|(&(object, setting), &value)| (object, setting, value)).collect()
    }

    /// The context that a stream was made in.
    pub(crate) fn stream_context(&self, stream: usize) -> Option<usize> {
        let recipe = self.by_handle.get(&stream).map(|kept| &kept.recipe);
        if let Some(Recipe::Stream { context, .. }) = recipe { Some(*context) } else { None }
    }

    /// Variables have other addresses now.
    pub(crate) fn move_windows(&mut self, moves: &Moves) {
        for ((_, setting), value) in &mut self.settings {
            *value = setting.moved(*value, moves);
        }
    }

    /// Every object has another handle now.
    pub(crate) fn rename(&mut self, current: impl Fn(usize) -> usize) {
        self.settled += 1;
        self.made_of.clear();
        self.made_in.clear();
        for (handle, Kept { number, recipe }) in std::mem::take(&mut self.by_handle) {
            let recipe = recipe.renamed(&current);
            let handle = if let Recipe::Texture { context, texture } = &recipe {
                // Its context has another handle.
                views::key_of(*context, texture.value).unwrap_or(handle)
            } else if recipe.has_address() {
                handle
            } else {
                current(handle)
            };
            self.put(handle, Kept { number, recipe });
        }
        let written = std::mem::take(&mut self.written).into_iter();
        self.written = written.map(|(variable, bytes)| (current(variable), bytes)).collect();
        self.still.iter_mut().for_each(|still| Arc::make_mut(still).rename(&current));
        self.still_number += 1;
        let settings = std::mem::take(&mut self.settings).into_iter();
        self.settings = settings.map(|((object, setting), value)| ((current(object), setting), value)).collect();
        self.addresses.values_mut().for_each(|(object, _)| *object = current(*object));
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::super::{Image, Recipe, Recipes, Setting};

    #[test]
    fn objects_come_after_what_they_are_made_of_and_are_found_by_their_new_handles() {
        let mut recipes = Recipes::default();
        recipes.keep(9, Recipe::Module { context: 0xc0, image: Image::Bytes([0; 4].into()), options: Vec::new() });
        recipes.keep(11, Recipe::HostRange { context: 0xc0, size: 1, flags: 0 });
        recipes.keep(1, Recipe::Function { module: 9, name: CString::from(c"f") });
        recipes.keep(10, Recipe::Library { image: Image::File(CString::from(c"l")), options: Vec::new() });
        recipes.keep(8, Recipe::Kernel { library: 10, name: CString::from(c"k") });
        recipes.keep(2, Recipe::KernelFunction { context: 0xc0, kernel: 8 });
        recipes.set(1, Setting::Cache(None), 3);
        let order: Vec<usize> = recipes.in_order().into_iter().map(|(handle, _)| handle).collect();
        assert_eq!(order, [9, 11, 1, 10, 8, 2]);
        let taken = recipes.take(10);
        recipes.put_back(taken);
        assert_eq!(recipes.in_order().len(), 6);
        recipes.rename(|handle| handle + 0x1000);
        assert_eq!(recipes.in_order().len(), 6);
        assert!(recipes.forget(0x1009) && !recipes.forget(0x1001), "the function went with the module");
        assert!(recipes.forget(11), "host memory keeps its address");
        assert_eq!(recipes.all_settings(), []);
    }
}
