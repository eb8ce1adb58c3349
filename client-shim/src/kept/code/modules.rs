//! Modules and their functions, passed on and noted, and what libraries share with them.
//!
//! What cudart loads through a private table of the driver's comes by [`private`](crate::recovery::private).
#![expect(unsafe_code, reason = "calls the driver and reads what the program has given it")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::{image, stacks, variables};
use crate::cuda::{
    call::{Bypass, Driver},
    functions::module::{cuModuleGetFunction, cuModuleGetGlobal_v2},
    result::CUresult,
    types::{CUdeviceptr, CUfunc_cache, CUfunction, CUfunction_attribute, CUjit_option, CUmodule, Key as _},
};
use crate::kept::{
    account::{self, Reason},
    objects::{
        current::context,
        keep,
        recipes::{Image, JitOption, Recipe, Setting},
    },
    recipes,
};

/// Options of the just-in-time compiler that only say where it is to write something.
const OUTPUTS: [CUjit_option; 5] = [2, 3, 4, 5, 6];
/// Those that are numbers: registers, optimisation, target, fallback, debug information, caching, link-time and floating
/// point, limits of a block.
const NUMBERS: [CUjit_option; 20] = [0, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 21, 22, 23, 24, 30, 31, 32, 33];
/// What an image was compiled with, as far as it can be kept; `None` if it cannot.
pub(super) fn jit_options(
    count: c_uint,
    options: *const CUjit_option,
    values: *const *mut c_void,
) -> Option<Vec<JitOption>> {
    let mut kept = Vec::new();
    for index in 0..usize::try_from(count).ok()? {
        // SAFETY: the driver has read so many options.
        let option = unsafe { options.wrapping_add(index).read() };
        if NUMBERS.contains(&option) {
            // SAFETY: the driver has read as many values.
            kept.push((option, unsafe { values.wrapping_add(index).read() }.addr()));
        } else if !OUTPUTS.contains(&option) {
            return None;
        }
    }
    Some(kept)
}

/// Keeps a module or library, or counts it, by what is known of its image and options.
pub(super) fn loaded(
    function: &'static str,
    handle: usize,
    image: Option<Image>,
    options: Option<Vec<JitOption>>,
    recipe: impl FnOnce(Image, Vec<JitOption>) -> Recipe,
) -> Result<(), Bypass> {
    match (image, options) {
        (Some(image), Some(options)) => keep(function, handle, recipe(image, options)),
        (None, _) => {
            account::made(function, Reason::Image, handle.key());
            Ok(())
        }
        (_, None) => {
            account::made(function, Reason::JitOption, handle.key());
            Ok(())
        }
    }
}

pub(crate) fn copied(image: *const c_void) -> Option<Image> {
    // SAFETY: the driver has just loaded it.
    unsafe { image::copy(image) }.map(|bytes| Image::Bytes(bytes.into()))
}

/// A module of a file was loaded.
pub(super) fn from_file(module: CUmodule, image: Image) -> Result<(), Bypass> {
    keep("cuModuleLoad", module.0, Recipe::Module { context: context()?, image, options: Vec::new() })
}

/// After `cuModuleLoadData` and `cuModuleLoadFatBinary`.
pub(crate) fn module(module: CUmodule, image: *const c_void) -> Result<(), Bypass> {
    let context = context()?;
    let recipe = |image, options| Recipe::Module { context, image, options };
    loaded("cuModuleLoadData", module.0, copied(image), Some(Vec::new()), recipe)
}

/// A module that cudart has loaded through its private table; `is_plain` if nothing was said but the image.
pub(crate) fn module_by_table(module: CUmodule, image: *const c_void, is_plain: bool) -> Result<(), Bypass> {
    let context = context()?;
    let recipe = |image, options| Recipe::Module { context, image, options };
    loaded("cuGetExportTable", module.0, copied(image), is_plain.then(Vec::new), recipe)
}

/// After `cuModuleLoadDataEx`.
pub(crate) fn module_with_options(
    module: CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Result<(), Bypass> {
    let context = context()?;
    let recipe = |image, options| Recipe::Module { context, image, options };
    loaded("cuModuleLoadDataEx", module.0, copied(image), jit_options(count, options, values), recipe)
}

/// Logic of `cuModuleGetFunction`.
pub(crate) fn function(
    driver: &mut Driver<cuModuleGetFunction::Signature>,
    function: *mut CUfunction,
    module: CUmodule,
    name: *const c_char,
) -> Result<CUresult, Bypass> {
    got(driver.pass(), || {
        // SAFETY: the driver has just written there.
        let handle = unsafe { function.read() }.0;
        // SAFETY: it has looked for this name.
        let name = unsafe { CStr::from_ptr(name) }.to_owned();
        (handle, Recipe::Function { module: module.0, name })
    })
}

/// Keeps the recipe of a kernel that was looked for; what the program is told.
pub(super) fn got(answer: CUresult, found: impl FnOnce() -> (usize, Recipe)) -> Result<CUresult, Bypass> {
    if answer.is_success() {
        let (handle, recipe) = found();
        recipes(|recipes| recipes.keep_first(handle, || recipe))?;
        return Ok(stacks::suffice(handle).err().unwrap_or(answer));
    }
    Ok(answer)
}

/// Logic of `cuModuleGetGlobal`.
pub(crate) fn variable(
    driver: &mut Driver<cuModuleGetGlobal_v2::Signature>,
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    module: CUmodule,
    name: *const c_char,
) -> Result<CUresult, Bypass> {
    found(address, bytes, module.0, false, name, |address, bytes| {
        // SAFETY: the program's call with the program's arguments, or with a place of ours where it has none.
        driver.call(|function| unsafe { function(address, bytes, module, name) })
    })
}

/// Asks for a variable by `ask` and keeps how.
pub(super) fn found(
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    of: usize,
    is_of_library: bool,
    name: *const c_char,
    ask: impl FnOnce(*mut CUdeviceptr, *mut usize) -> CUresult,
) -> Result<CUresult, Bypass> {
    let mut size = 0;
    let answer = ask(address, if bytes.is_null() { &raw mut size } else { bytes });
    if answer.is_success() && !address.is_null() {
        let context = context()?;
        // SAFETY: the driver has just written there.
        let size = if bytes.is_null() { size } else { unsafe { *bytes } };
        // SAFETY: as above.
        let address = usize::try_from(unsafe { *address }).map_err(|_| Bypass::ForTheDriver)?;
        // SAFETY: the driver has just looked for this name.
        let name = unsafe { CStr::from_ptr(name) }.to_owned();
        recipes(|recipes| recipes.keep_first(address, || Recipe::Variable { context, of, is_of_library, name, size }))?;
        variables::begin();
    }
    Ok(answer)
}

/// After `cuFuncSetAttribute`.
pub(crate) fn attribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int) -> Result<(), Bypass> {
    let value = u64::from(value.cast_unsigned());
    recipes(|recipes| recipes.set(function.0, Setting::Attribute(attribute, None), value))
}

/// After `cuFuncSetCacheConfig`.
pub(crate) fn cache(function: CUfunction, preference: CUfunc_cache) -> Result<(), Bypass> {
    recipes(|recipes| recipes.set(function.0, Setting::Cache(None), preference.into()))
}
