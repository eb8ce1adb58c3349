//! Libraries, modules, functions, streams, events, arrays and host ranges in a fresh copy of the driver, by their recipes.
#![expect(unsafe_code, reason = "calls the driver")]

use std::{collections::BTreeMap, ffi::c_uint};

use super::{
    graphs::Graphs,
    memory::{Failed, Renamed, checked},
    set_again, textures, variables,
};
use crate::cuda::moved::{Move, Moves};
use crate::{
    cuda::{
        result::CUresult,
        types::{
            CUcontext, CUevent, CUexternalMemory, CUfunction, CUjit_option, CUkernel, CUlibrary, CUmemoryPool,
            CUmipmappedArray, CUmodule, CUstream, Key as _, c_void,
        },
    },
    kept::{
        self,
        code::still::{self, Name, Still},
        memory::{arrays::view, pinned},
        objects::recipes::{Image, JitOption, Recipe, Setting},
        work::progress,
    },
};

/// Options of the compiler as the driver takes them.
struct Options {
    names: Vec<CUjit_option>,
    values: Vec<*mut c_void>,
}

impl Options {
    fn new(options: &[JitOption]) -> Self {
        let names = options.iter().map(|(name, _)| *name).collect();
        let values = options.iter().map(|(_, value)| std::ptr::without_provenance_mut(*value)).collect();
        Self { names, values }
    }

    fn count(&self) -> c_uint {
        c_uint::try_from(self.names.len()).unwrap_or_default()
    }
}

/// Objects that are made again, by their handles of before.
pub(super) struct Objects {
    pub(super) recipes: Vec<(usize, Recipe)>,
    /// Of each recipe: no other one has it, or had.
    pub(super) numbers: Vec<u64>,
    pub(super) settings: Vec<(usize, Setting, u64)>,
    /// What variables have had written to them: addresses and bytes.
    pub(super) written: Vec<(usize, Vec<u8>)>,
    /// What was read of variables when the program was at rest, if it has been since.
    pub(super) still: Option<Still>,
    pub(super) graphs: Graphs,
}

impl Objects {
    /// All that there are.
    pub(super) fn survey() -> Self {
        let given = progress::given();
        let found = kept::recipes(|recipes| {
            let still = recipes.still(given).cloned();
            (recipes.in_order(), recipes.numbers(), recipes.all_settings(), recipes.all_written(), still)
        });
        let (recipes, numbers, settings, written, still) = found.unwrap_or_default();
        Self { recipes, numbers, settings, written, still, graphs: Graphs::survey() }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.recipes.len() + self.graphs.count()
    }

    /// Modules and libraries that begin anew with something that may have been another by then, each with why.
    pub(super) fn anew(&self) -> BTreeMap<usize, String> {
        still::anew(&self.recipes, self.still.as_ref())
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
        set_again::apply(&self.settings, &self.recipes, renamed)?;
        self.write(renamed)?;
        self.write_still(renamed)?;
        self.graphs.make(renamed, &self.moves(renamed, |address| address))
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

/// Makes one object; its handle.
pub(super) fn make(handle: usize, recipe: &Recipe, renamed: &Renamed) -> Result<usize, Failed> {
    let missing = |call| Failed { call, answer: CUresult(400) };
    let of = |call, handle: &usize| renamed.get(handle).copied().ok_or(missing(call));
    match recipe {
        Recipe::Library { image, options } => {
            let mut library = CUlibrary(0);
            let mut options = Options::new(options);
            let (count, names, values) = (options.count(), options.names.as_mut_ptr(), options.values.as_mut_ptr());
            let (into, null) = (&raw mut library, std::ptr::null_mut());
            let answer = match image {
                Image::Bytes(bytes) => {
                    let code = bytes.as_ptr().cast();
                    let no_values = std::ptr::null_mut();
                    driver!(library::cuLibraryLoadData(into, code, names, values, count, null, no_values, 0))
                }
                Image::File(path) => {
                    let no_values = std::ptr::null_mut();
                    let path = path.as_ptr();
                    driver!(library::cuLibraryLoadFromFile(into, path, names, values, count, null, no_values, 0))
                }
            };
            checked("cuLibraryLoadData", answer)?;
            Ok(library.0)
        }
        Recipe::Module { context, image, options } => {
            enter(of("cuModuleLoadData", context)?)?;
            let mut module = CUmodule(0);
            let mut options = Options::new(options);
            let answer = match image {
                Image::Bytes(bytes) if options.names.is_empty() => {
                    driver!(module::cuModuleLoadData(&raw mut module, bytes.as_ptr().cast()))
                }
                Image::Bytes(bytes) => {
                    let (names, values) = (options.names.as_mut_ptr(), options.values.as_mut_ptr());
                    let count = options.count();
                    let image = bytes.as_ptr().cast();
                    driver!(module::cuModuleLoadDataEx(&raw mut module, image, count, names, values))
                }
                Image::File(path) => driver!(module::cuModuleLoad(&raw mut module, path.as_ptr())),
            };
            checked("cuModuleLoadData", answer)?;
            Ok(module.0)
        }
        Recipe::Function { module, name } => {
            let mut function = CUfunction(0);
            let module = CUmodule(of("cuModuleGetFunction", module)?);
            let answer = driver!(module::cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
            checked("cuModuleGetFunction", answer)?;
            Ok(function.0)
        }
        Recipe::Kernel { library, name } => {
            let mut kernel = CUkernel(0);
            let library = CUlibrary(of("cuLibraryGetKernel", library)?);
            let answer = driver!(library::cuLibraryGetKernel(&raw mut kernel, library, name.as_ptr()));
            checked("cuLibraryGetKernel", answer)?;
            Ok(kernel.0)
        }
        Recipe::LibraryModule { context, library } => {
            enter(of("cuLibraryGetModule", context)?)?;
            let mut module = CUmodule(0);
            let library = CUlibrary(of("cuLibraryGetModule", library)?);
            checked("cuLibraryGetModule", driver!(library::cuLibraryGetModule(&raw mut module, library)))?;
            Ok(module.0)
        }
        Recipe::KernelFunction { context, kernel } => {
            enter(of("cuKernelGetFunction", context)?)?;
            let mut function = CUfunction(0);
            let kernel = CUkernel(of("cuKernelGetFunction", kernel)?);
            checked("cuKernelGetFunction", driver!(kernel::cuKernelGetFunction(&raw mut function, kernel)))?;
            Ok(function.0)
        }
        Recipe::Variable { context, of: parent, is_of_library, name, size } => {
            let (mut address, mut bytes) = (0, 0);
            let (into, length) = (&raw mut address, &raw mut bytes);
            let (call, answer) = if *is_of_library {
                enter(of("cuLibraryGetGlobal", context)?)?;
                let library = CUlibrary(of("cuLibraryGetGlobal", parent)?);
                let answer = driver!(library::cuLibraryGetGlobal(into, length, library, name.as_ptr()));
                ("cuLibraryGetGlobal", answer)
            } else {
                enter(of("cuModuleGetGlobal", context)?)?;
                let module = CUmodule(of("cuModuleGetGlobal", parent)?);
                ("cuModuleGetGlobal", driver!(module::cuModuleGetGlobal_v2(into, length, module, name.as_ptr())))
            };
            checked(call, answer)?;
            // The same image has it, or it is another file by now.
            if bytes != *size {
                return Err(Failed { call: "cuModuleGetGlobal of the same size", answer: CUresult(500) });
            }
            usize::try_from(address).map_err(|_| Failed { call, answer: CUresult(500) })
        }
        Recipe::Stream { context, flags, priority } => {
            enter(of("cuStreamCreate", context)?)?;
            let mut stream = CUstream(0);
            let answer = match priority {
                None => driver!(stream::cuStreamCreate(&raw mut stream, *flags)),
                Some(priority) => driver!(stream::cuStreamCreateWithPriority(&raw mut stream, *flags, *priority)),
            };
            checked("cuStreamCreate", answer)?;
            Ok(stream.0)
        }
        Recipe::Event { context, flags } => {
            enter(of("cuEventCreate", context)?)?;
            let mut event = CUevent(0);
            checked("cuEventCreate", driver!(event::cuEventCreate(&raw mut event, *flags)))?;
            Ok(event.0)
        }
        Recipe::Pool { device, properties } => {
            let mut pool = CUmemoryPool(0);
            let (call, answer) = match properties {
                None => {
                    let answer = driver!(pool::cuDeviceGetDefaultMemPool(&raw mut pool, *device));
                    ("cuDeviceGetDefaultMemPool", answer)
                }
                Some(words) => {
                    let answer = driver!(pool::cuMemPoolCreate(&raw mut pool, words.as_ptr().cast()));
                    ("cuMemPoolCreate", answer)
                }
            };
            checked(call, answer)?;
            Ok(pool.0)
        }
        Recipe::HostRange { context, size, flags } => {
            enter(of("cuMemHostRegister", context)?)?;
            let start = std::ptr::with_exposed_provenance_mut::<c_void>(handle);
            checked("cuMemHostRegister", driver!(host::cuMemHostRegister_v2(start, *size, *flags)))?;
            Ok(handle)
        }
        Recipe::HostMemory { context, size, .. } => {
            enter(of("cuMemHostRegister", context)?)?;
            pinned::register(handle, *size).map_err(|answer| Failed { call: "cuMemHostRegister", answer })?;
            Ok(handle)
        }
        Recipe::ArrayMemory { context, address } => {
            enter(of("cuImportExternalMemory", context)?)?;
            Ok(view::import(*address)?.0)
        }
        Recipe::MipmappedArray { context, memory, address, layout, .. } => {
            const CALL: &str = "cuExternalMemoryGetMappedMipmappedArray";
            enter(of(CALL, context)?)?;
            Ok(view::map(CUexternalMemory(of(CALL, memory)?), *address, layout)?.0)
        }
        Recipe::Array { of: mipmapped, level } => {
            let mipmapped = CUmipmappedArray(of("cuMipmappedArrayGetLevel", mipmapped)?);
            Ok(view::level(mipmapped, *level)?.0)
        }
        // Their values depend on each other.
        Recipe::Texture { .. } => Err(missing("cuTexObjectCreate")),
    }
}
