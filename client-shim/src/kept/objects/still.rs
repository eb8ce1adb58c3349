//! What variables had in them when the program was last known to be at rest.
//!
//! A module that is made again begins with what its image has. What kernels have written to its variables since then is
//! nowhere but in the GPU, in memory that goes with the context. So it is read while nothing runs
//! ([`idle`](crate::recovery)), and as long as no stream has been given any work since, every variable still has it:
//! kernels, copies and sets are all work. This is the whole proof; nobody here knows which kernel writes what.
//!
//! | a module or library | after a recovery has |
//! |---|---|
//! | that was read, and no work was given since | what was read |
//! | that was loaded since, and no work was given since | what its image has, as it had |
//! | of which something could not be read: a heap, managed memory, what nobody can look into | begun anew, and the program is told |
//! | when work was given since: with variables that kernels can write, or of which the program has an address | begun anew, and the program is told |
//!
//! Pure bookkeeping.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CString,
};

use super::{
    contents::{Code, Place},
    recipes::{Image, Recipe},
};

/// Bytes of variables that are read at most. What is more is told.
pub(crate) const MOST_BYTES: usize = 16 << 20;

/// A variable, as the driver is asked for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    /// With this context current.
    pub(crate) context: usize,
    /// Module or library.
    pub(crate) of: usize,
    pub(crate) is_of_library: bool,
    pub(crate) name: CString,
}

/// What is to be read of all modules and libraries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Variables, with the module or library that they count for.
    pub(crate) variables: BTreeMap<Name, usize>,
    /// Modules and libraries of which not everything can be read: why.
    pub(crate) missing: BTreeMap<usize, String>,
    /// All modules and libraries.
    known: BTreeSet<usize>,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Still {
    /// How much work all streams had been given by then.
    pub(crate) given: u64,
    pub(crate) variables: Vec<(Name, Vec<u8>)>,
    missing: BTreeMap<usize, String>,
    known: BTreeSet<usize>,
    /// Contexts, modules and libraries that variables are named by.
    named: BTreeSet<usize>,
}

/// Why a module of this image, with these of its addresses asked for, begins anew unless it is read; `None` if it does
/// not.
fn why_anew(image: &Image, is_asked: bool) -> Option<String> {
    let Image::Bytes(code) = image else {
        // It may be another one by now, too, and nobody knows which the driver has read.
        return Some("it came from a file that nobody could read beside the driver".to_owned());
    };
    let contents = code.contents();
    let unread = contents.unread.first().cloned();
    let heap = || contents.has_heap.then(|| "the device's heap".to_owned());
    let managed =
        || contents.variables.values().any(|place| *place == Place::Managed).then(|| "managed memory".to_owned());
    let written = || (is_asked || !contents.is_fixed()).then(|| "written since it was last at rest".to_owned());
    unread.or_else(heap).or_else(managed).or_else(written)
}

/// Whether nothing helps but to say so.
fn why_missing(image: &Image) -> Option<String> {
    let is_readable = |code: &Code| {
        let contents = code.contents();
        contents.unread.is_empty()
            && !contents.has_heap
            && !contents.variables.values().any(|place| *place == Place::Managed)
    };
    match image {
        Image::Bytes(code) if is_readable(code) => None,
        Image::Bytes(_) | Image::File(_) => why_anew(image, false),
    }
}

/// The module or library that a variable of this parent counts for.
fn owner(recipes: &BTreeMap<usize, &Recipe>, of: usize) -> usize {
    if let Some(Recipe::LibraryModule { library, .. }) = recipes.get(&of) { *library } else { of }
}

impl Wanted {
    /// What there is to be read of these in these contexts.
    pub(crate) fn of(recipes: &[(usize, Recipe)], contexts: &[usize]) -> Self {
        let by_handle: BTreeMap<usize, &Recipe> = recipes.iter().map(|(handle, recipe)| (*handle, recipe)).collect();
        let mut wanted = Self::default();
        for (handle, recipe) in recipes {
            let (of, image) = match recipe {
                Recipe::Module { context, image, .. } => (std::slice::from_ref(context), image),
                Recipe::Library { image, .. } => (contexts, image),
                Recipe::Variable { context, of, is_of_library, name, .. } => {
                    let name = Name { context: *context, of: *of, is_of_library: *is_of_library, name: name.clone() };
                    wanted.variables.insert(name, owner(&by_handle, *of));
                    continue;
                }
                Recipe::Stream { .. }
                | Recipe::Event { .. }
                | Recipe::Function { .. }
                | Recipe::Kernel { .. }
                | Recipe::LibraryModule { .. }
                | Recipe::KernelFunction { .. }
                | Recipe::HostRange { .. }
                | Recipe::HostMemory { .. }
                | Recipe::ArrayMemory { .. }
                | Recipe::MipmappedArray { .. }
                | Recipe::Array { .. }
                | Recipe::Texture { .. }
                | Recipe::Pool { .. } => continue,
            };
            wanted.known.insert(*handle);
            if let Some(why) = why_missing(image) {
                wanted.missing.insert(*handle, why);
                continue;
            }
            let Image::Bytes(code) = image else { continue };
            let is_of_library = matches!(recipe, Recipe::Library { .. });
            for name in code.contents().written() {
                let Ok(name) = CString::new(name) else { continue };
                let names =
                    of.iter().map(|context| Name { context: *context, of: *handle, is_of_library, name: name.clone() });
                wanted.variables.extend(names.map(|name| (name, *handle)));
            }
        }
        wanted.variables.retain(|_, owner| !wanted.missing.contains_key(owner));
        wanted
    }

    /// It was read when so much work had been given; what could not be is missing.
    pub(crate) fn read(mut self, given: u64, variables: Vec<(Name, Vec<u8>)>, missing: Vec<(usize, String)>) -> Still {
        self.missing.extend(missing);
        let named = variables.iter().flat_map(|(name, _)| [name.context, name.of]).collect();
        Still { given, variables, missing: self.missing, known: self.known, named }
    }
}

impl Still {
    /// Whether a module or library would have begun anew if nothing else happens before.
    pub(crate) fn is_whole(&self) -> bool {
        self.missing.is_empty()
    }

    /// Modules and libraries of which not everything could be read: why.
    pub(crate) fn missing(&self) -> &BTreeMap<usize, String> {
        &self.missing
    }

    /// Whether anything is known by this handle: most objects that end have no variables.
    pub(crate) fn has(&self, handle: usize) -> bool {
        self.known.contains(&handle) || self.named.contains(&handle)
    }

    /// A module or library is another one from now on, or a context is.
    pub(crate) fn forget(&mut self, handle: usize) {
        if self.known.remove(&handle) {
            self.missing.remove(&handle);
        }
        if self.named.remove(&handle) {
            self.variables.retain(|(name, _)| name.of != handle && name.context != handle);
        }
    }

    /// Everything has another handle now.
    pub(crate) fn rename(&mut self, current: impl Fn(usize) -> usize) {
        let named: BTreeMap<usize, usize> = self.named.iter().map(|handle| (*handle, current(*handle))).collect();
        let current_of = |handle: usize| named.get(&handle).copied().unwrap_or(handle);
        // Those of a module follow each other.
        let mut last = None;
        for (name, _) in &mut self.variables {
            let (before, now) = match last {
                Some((before, now)) if before == (name.context, name.of) => (before, now),
                _ => ((name.context, name.of), (current_of(name.context), current_of(name.of))),
            };
            last = Some((before, now));
            (name.context, name.of) = now;
        }
        self.named = named.into_values().collect();
        self.known = self.known.iter().map(|handle| current(*handle)).collect();
        let missing = std::mem::take(&mut self.missing).into_iter();
        self.missing = missing.map(|(handle, why)| (current(handle), why)).collect();
    }
}

/// Modules and libraries that begin anew with something that may have been another by then, each with why. `still` is what
/// was read, if no work was given since.
pub(crate) fn anew(recipes: &[(usize, Recipe)], still: Option<&Still>) -> BTreeMap<usize, String> {
    let by_handle: BTreeMap<usize, &Recipe> = recipes.iter().map(|(handle, recipe)| (*handle, recipe)).collect();
    let asked: BTreeSet<usize> = recipes
        .iter()
        .filter_map(|(_, recipe)| {
            let Recipe::Variable { of, .. } = recipe else { return None };
            Some(owner(&by_handle, *of))
        })
        .collect();
    let found = recipes.iter().filter_map(|(handle, recipe)| {
        let (Recipe::Module { image, .. } | Recipe::Library { image, .. }) = recipe else { return None };
        let why = match still {
            Some(still) if still.known.contains(handle) => still.missing.get(handle).cloned(),
            // Loaded since, and nothing has run since; but what is in a file may be another by now.
            Some(_) if matches!(image, Image::Bytes(_)) => None,
            _ => why_anew(image, asked.contains(handle)),
        };
        Some((*handle, why?))
    });
    found.collect()
}

#[cfg(test)]
mod tests;
