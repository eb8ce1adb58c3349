//! Libraries and their kernels, passed on and noted.
#![expect(unsafe_code, reason = "calls the driver and reads what the program has given it")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::modules::{found, got, jit_options, loaded};
use crate::cuda::{
    call::{Bypass, Driver},
    functions::library::{cuLibraryGetGlobal, cuLibraryGetKernel},
    result::CUresult,
    types::{
        CUdevice, CUdeviceptr, CUfunc_cache, CUfunction, CUfunction_attribute, CUjit_option, CUkernel, CUlibrary,
        CUlibraryOption, CUmodule,
    },
};
use crate::kept::{
    objects::{
        current::context,
        recipes::{Image, Recipe, Setting},
    },
    recipes,
};

/// `CU_LIBRARY_BINARY_IS_PRESERVED`: the image stays where it is, which a copy of ours does too.
const IS_PRESERVED: CUlibraryOption = 1;

/// A library was loaded, of an image if that can be kept, with options of the compiler and of its own: how many there
/// are of each, and where.
pub(crate) fn library(
    function: &'static str,
    library: CUlibrary,
    image: Option<Image>,
    (count, options, values): (c_uint, *const CUjit_option, *const *mut c_void),
    (library_count, library_options): (c_uint, *const CUlibraryOption),
) -> Result<(), Bypass> {
    let options = jit_options(count, options, values).filter(|_| are_kept(library_count, library_options));
    loaded(function, library.0, image, options, |image, options| Recipe::Library { image, options })
}

fn are_kept(count: c_uint, options: *const CUlibraryOption) -> bool {
    // SAFETY: the driver has read so many options.
    (0..usize::try_from(count).unwrap_or(0)).all(|at| unsafe { options.wrapping_add(at).read() } == IS_PRESERVED)
}

/// Logic of `cuLibraryGetKernel`.
pub(crate) fn kernel(
    driver: &mut Driver<cuLibraryGetKernel::Signature>,
    kernel: *mut CUkernel,
    library: CUlibrary,
    name: *const c_char,
) -> Result<CUresult, Bypass> {
    got(driver.pass(), || {
        // SAFETY: the driver has just written there.
        let handle = unsafe { kernel.read() }.0;
        // SAFETY: it has looked for this name.
        let name = unsafe { CStr::from_ptr(name) }.to_owned();
        (handle, Recipe::Kernel { library: library.0, name })
    })
}

/// After `cuLibraryGetModule`.
pub(crate) fn library_module(module: CUmodule, library: CUlibrary) -> Result<(), Bypass> {
    let context = context()?;
    recipes(|recipes| recipes.keep_first(module.0, || Recipe::LibraryModule { context, library: library.0 }))?;
    Ok(())
}

/// Logic of `cuLibraryGetGlobal`.
pub(crate) fn variable(
    driver: &mut Driver<cuLibraryGetGlobal::Signature>,
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> Result<CUresult, Bypass> {
    found(address, bytes, library.0, true, name, |address, bytes| {
        // SAFETY: the program's call with the program's arguments, or with a place of ours where it has none.
        driver.call(|function| unsafe { function(address, bytes, library, name) })
    })
}

/// After `cuKernelGetFunction`.
pub(crate) fn kernel_function(function: CUfunction, kernel: CUkernel) -> Result<(), Bypass> {
    let context = context()?;
    recipes(|recipes| recipes.keep_first(function.0, || Recipe::KernelFunction { context, kernel: kernel.0 }))?;
    Ok(())
}

/// After `cuKernelSetAttribute`.
pub(crate) fn kernel_attribute(
    attribute: CUfunction_attribute,
    value: c_int,
    kernel: CUkernel,
    device: CUdevice,
) -> Result<(), Bypass> {
    let value = u64::from(value.cast_unsigned());
    recipes(|recipes| recipes.set(kernel.0, Setting::Attribute(attribute, Some(device)), value))
}

/// After `cuKernelSetCacheConfig`.
pub(crate) fn kernel_cache(kernel: CUkernel, preference: CUfunc_cache, device: CUdevice) -> Result<(), Bypass> {
    recipes(|recipes| recipes.set(kernel.0, Setting::Cache(Some(device)), preference.into()))
}
