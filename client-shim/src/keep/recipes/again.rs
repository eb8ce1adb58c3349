//! The recipes in the order in which they can be followed, and what changes when they have been.

use super::{Recipe, Recipes, Setting};

impl Recipe {
    /// Objects of an earlier step are what those of a later one are made of.
    const fn step(&self) -> u8 {
        match self {
            Self::Library { .. } | Self::Module { .. } => 0,
            Self::Kernel { .. } | Self::LibraryModule { .. } => 1,
            Self::Function { .. } | Self::KernelFunction { .. } => 2,
            Self::Stream { .. } | Self::Event { .. } | Self::HostRange { .. } | Self::HostMemory { .. } => 3,
        }
    }

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
        }
    }
}

impl Recipes {
    /// Every object with its recipe, those that others are made of first.
    pub(crate) fn in_order(&self) -> Vec<(usize, Recipe)> {
        let mut all: Vec<_> = self.by_handle.iter().map(|(handle, recipe)| (*handle, recipe.clone())).collect();
        all.sort_by_key(|(_, recipe)| recipe.step());
        all
    }

    /// What was set on objects and contexts.
    pub(crate) fn all_settings(&self) -> Vec<(usize, Setting, u64)> {
        self.settings.iter().map(|(&(object, setting), &value)| (object, setting, value)).collect()
    }

    /// The context that a stream was made in.
    pub(crate) fn stream_context(&self, stream: usize) -> Option<usize> {
        let recipe = self.by_handle.get(&stream);
        if let Some(Recipe::Stream { context, .. }) = recipe { Some(*context) } else { None }
    }

    /// Every object has another handle now.
    pub(crate) fn rename(&mut self, current: impl Fn(usize) -> usize) {
        let objects = std::mem::take(&mut self.by_handle).into_iter();
        self.by_handle = objects
            .map(|(handle, recipe)| {
                (if recipe.has_address() { handle } else { current(handle) }, recipe.renamed(&current))
            })
            .collect();
        let settings = std::mem::take(&mut self.settings).into_iter();
        self.settings = settings.map(|((object, setting), value)| ((current(object), setting), value)).collect();
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::super::{Image, Recipe, Recipes, Setting};

    #[test]
    fn objects_come_after_what_they_are_made_of_and_are_found_by_their_new_handles() {
        let mut recipes = Recipes::default();
        recipes.keep(1, Recipe::Function { module: 9, name: CString::from(c"f") });
        recipes.keep(2, Recipe::KernelFunction { context: 0xc0, kernel: 8 });
        recipes.keep(8, Recipe::Kernel { library: 10, name: CString::from(c"k") });
        recipes.keep(9, Recipe::Module { context: 0xc0, image: Image::Bytes([0; 4].into()), options: Vec::new() });
        recipes.keep(10, Recipe::Library { image: Image::File(CString::from(c"l")), options: Vec::new() });
        recipes.keep(11, Recipe::HostRange { context: 0xc0, size: 1, flags: 0 });
        recipes.set(1, Setting::Cache(None), 3);
        let order: Vec<usize> = recipes.in_order().into_iter().map(|(handle, _)| handle).collect();
        let place = |handle| order.iter().position(|of| *of == handle);
        assert!(place(9) < place(1) && place(10) < place(8) && place(8) < place(2));
        recipes.rename(|handle| handle + 0x1000);
        assert_eq!(recipes.in_order().len(), 6);
        assert!(recipes.forget(0x1009) && !recipes.forget(0x1001), "the function went with the module");
        assert!(recipes.forget(11), "host memory keeps its address");
        assert_eq!(recipes.all_settings(), []);
    }
}
