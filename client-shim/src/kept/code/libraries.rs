//! Libraries and their kernels, passed on and noted.
#![expect(unsafe_code, reason = "calls the driver and reads what the program has given it")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::modules::{copied, found, jit_options, loaded, named};
use crate::cuda::{
    call::{Bypass, Driver},
    functions::{
        kernel::{cuKernelGetFunction, cuKernelSetAttribute, cuKernelSetCacheConfig},
        library::{
            cuLibraryGetGlobal, cuLibraryGetKernel, cuLibraryGetModule, cuLibraryLoadData, cuLibraryLoadFromFile,
            cuLibraryUnload,
        },
    },
    result::CUresult,
    types::{
        CUdevice, CUdeviceptr, CUfunc_cache, CUfunction, CUfunction_attribute, CUjit_option, CUkernel, CUlibrary,
        CUlibraryOption, CUmodule,
    },
};
use crate::kept::{
    objects::{
        current::context,
        destroyed,
        recipes::{Recipe, Setting},
    },
    recipes,
};

/// `CU_LIBRARY_BINARY_IS_PRESERVED`: the image stays where it is, which a copy of ours does too.
const IS_PRESERVED: CUlibraryOption = 1;

/// Logic of `cuLibraryLoadData`.
#[expect(clippy::too_many_arguments, reason = "the driver's function has as many")]
pub(crate) fn library(
    driver: &mut Driver<cuLibraryLoadData::Signature>,
    library: *mut CUlibrary,
    code: *const c_void,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    count: c_uint,
    library_options: *mut CUlibraryOption,
    library_values: *mut *mut c_void,
    library_count: c_uint,
) -> Result<CUresult, Bypass> {
    let answer = driver.call(|function| {
        // SAFETY: the program's call with the program's arguments.
        unsafe { function(library, code, options, values, count, library_options, library_values, library_count) }
    });
    if answer.is_success() {
        // SAFETY: the driver has just written there.
        let handle = unsafe { *library }.0;
        let options = jit_options(count, options, values).filter(|_| are_kept(library_count, library_options));
        let recipe = |image, options| Recipe::Library { image, options };
        loaded("cuLibraryLoadData", handle, copied(code), options, recipe)?;
    }
    Ok(answer)
}

/// Logic of `cuLibraryLoadFromFile`.
#[expect(clippy::too_many_arguments, reason = "the driver's function has as many")]
pub(crate) fn library_file(
    driver: &mut Driver<cuLibraryLoadFromFile::Signature>,
    library: *mut CUlibrary,
    path: *const c_char,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    count: c_uint,
    library_options: *mut CUlibraryOption,
    library_values: *mut *mut c_void,
    library_count: c_uint,
) -> Result<CUresult, Bypass> {
    let answer = driver.call(|function| {
        // SAFETY: the program's call with the program's arguments.
        unsafe { function(library, path, options, values, count, library_options, library_values, library_count) }
    });
    if answer.is_success() {
        // SAFETY: the driver has just written there.
        let handle = unsafe { *library }.0;
        let options = jit_options(count, options, values).filter(|_| are_kept(library_count, library_options));
        let recipe = |image, options| Recipe::Library { image, options };
        loaded("cuLibraryLoadFromFile", handle, Some(named(path)), options, recipe)?;
    }
    Ok(answer)
}

fn are_kept(count: c_uint, options: *const CUlibraryOption) -> bool {
    // SAFETY: the driver has read so many options.
    (0..usize::try_from(count).unwrap_or(0)).all(|at| unsafe { options.wrapping_add(at).read() } == IS_PRESERVED)
}

/// Logic of `cuLibraryUnload`.
pub(crate) fn library_ends(
    driver: &mut Driver<cuLibraryUnload::Signature>,
    library: CUlibrary,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's argument.
    destroyed(library.0, || driver.call(|function| unsafe { function(library) }))
}

/// Logic of `cuLibraryGetKernel`.
pub(crate) fn kernel(
    driver: &mut Driver<cuLibraryGetKernel::Signature>,
    kernel: *mut CUkernel,
    library: CUlibrary,
    name: *const c_char,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(kernel, library, name) });
    if answer.is_success() {
        // SAFETY: the driver has just written there.
        let handle = unsafe { *kernel }.0;
        // SAFETY: the driver has just looked for this name.
        let name = unsafe { CStr::from_ptr(name) }.to_owned();
        recipes(|recipes| recipes.keep_first(handle, || Recipe::Kernel { library: library.0, name }))?;
    }
    Ok(answer)
}

/// Logic of `cuLibraryGetModule`.
pub(crate) fn library_module(
    driver: &mut Driver<cuLibraryGetModule::Signature>,
    module: *mut CUmodule,
    library: CUlibrary,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(module, library) });
    if answer.is_success() {
        let context = context()?;
        // SAFETY: the driver has just written there.
        let handle = unsafe { *module }.0;
        recipes(|recipes| recipes.keep_first(handle, || Recipe::LibraryModule { context, library: library.0 }))?;
    }
    Ok(answer)
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
        // SAFETY: the program's call, and a place of ours where it wants no size.
        driver.call(|function| unsafe { function(address, bytes, library, name) })
    })
}

/// Logic of `cuKernelGetFunction`.
pub(crate) fn kernel_function(
    driver: &mut Driver<cuKernelGetFunction::Signature>,
    function: *mut CUfunction,
    kernel: CUkernel,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|call| unsafe { call(function, kernel) });
    if answer.is_success() {
        let context = context()?;
        // SAFETY: the driver has just written there.
        let handle = unsafe { *function }.0;
        recipes(|recipes| recipes.keep_first(handle, || Recipe::KernelFunction { context, kernel: kernel.0 }))?;
    }
    Ok(answer)
}

/// Logic of `cuKernelSetAttribute`.
pub(crate) fn kernel_attribute(
    driver: &mut Driver<cuKernelSetAttribute::Signature>,
    attribute: CUfunction_attribute,
    value: c_int,
    kernel: CUkernel,
    device: CUdevice,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(attribute, value, kernel, device) });
    if answer.is_success() {
        let value = u64::from(value.cast_unsigned());
        recipes(|recipes| recipes.set(kernel.0, Setting::Attribute(attribute, Some(device)), value))?;
    }
    Ok(answer)
}

/// Logic of `cuKernelSetCacheConfig`.
pub(crate) fn kernel_cache(
    driver: &mut Driver<cuKernelSetCacheConfig::Signature>,
    kernel: CUkernel,
    preference: CUfunc_cache,
    device: CUdevice,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(kernel, preference, device) });
    if answer.is_success() {
        recipes(|recipes| recipes.set(kernel.0, Setting::Cache(Some(device)), preference.into()))?;
    }
    Ok(answer)
}
