//! One object in a fresh copy of the driver, by its recipe.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_uint;

use super::enter;
use crate::recovery::memory::{Failed, Renamed, checked};
use crate::{
    cuda::{
        result::CUresult,
        types::{
            CUevent, CUexternalMemory, CUfunction, CUjit_option, CUkernel, CUlibrary, CUmemoryPool, CUmipmappedArray,
            CUmodule, CUstream, c_void,
        },
    },
    kept::{
        memory::{arrays::view, pinned},
        objects::recipes::{Image, JitOption, Recipe},
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

/// Makes one object; its handle.
pub(in crate::recovery) fn make(handle: usize, recipe: &Recipe, renamed: &Renamed) -> Result<usize, Failed> {
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
