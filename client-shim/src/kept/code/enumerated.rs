//! Kernels of a library and functions of a module that a program gets in a list, and not by name: noted by the names that
//! the driver tells, as if they had been asked for one by one.
#![expect(unsafe_code, reason = "reads and names lists that the driver has written")]

use std::{
    ffi::{CStr, CString, c_char, c_uint},
    ptr,
};

use super::stacks;
use crate::cuda::{
    call::Bypass,
    names,
    types::{CUfunction, CUkernel, CUlibrary, CUmodule, Key as _},
};
use crate::kept::{
    account::{self, Reason},
    objects::recipes::Recipe,
    recipes,
};

/// No handle is as small: what is smaller is a number.
const LOWEST_HANDLE: usize = 0x1000;

/// After `cuLibraryEnumerateKernels`.
pub(crate) fn kernels(
    function: &'static str,
    list: *mut CUkernel,
    room: c_uint,
    library: CUlibrary,
) -> Result<(), Bypass> {
    let mut count = 0;
    let has_count = driver!(library::cuLibraryGetKernelCount(&raw mut count, library)).is_success();
    each(function, list.cast(), if has_count { count.min(room) } else { room }, |kernel| {
        let mut name = ptr::null();
        let has_name = driver!(kernel::cuKernelGetName(&raw mut name, CUkernel(kernel))).is_success();
        Some(Recipe::Kernel { library: library.0, name: told(has_name, name)? })
    })
}

/// After `cuModuleEnumerateFunctions`.
pub(crate) fn functions(
    function: &'static str,
    list: *mut CUfunction,
    room: c_uint,
    module: CUmodule,
) -> Result<(), Bypass> {
    let mut count = 0;
    let has_count = driver!(module::cuModuleGetFunctionCount(&raw mut count, module)).is_success();
    each(function, list.cast(), if has_count { count.min(room) } else { room }, |of| {
        let mut name = ptr::null();
        let has_name = driver!(kernel::cuFuncGetName(&raw mut name, CUfunction(of))).is_success();
        Some(Recipe::Function { module: module.0, name: told(has_name, name)? })
    })
}

/// Whether a word is a function of a module, by the driver's own list; then it is noted. cuFFT gets its kernels so, by a
/// private function.
pub(crate) fn has_function(module: u64, word: u64) -> Result<bool, Bypass> {
    let both = usize::try_from(module).ok().zip(usize::try_from(word).ok());
    let Some((module, word)) = both.filter(|(_, word)| *word > LOWEST_HANDLE) else { return Ok(false) };
    let mut count = 0;
    if !driver!(module::cuModuleGetFunctionCount(&raw mut count, CUmodule(module))).is_success() || count == 0 {
        return Ok(false);
    }
    let mut all = vec![CUfunction(0); usize::try_from(count).unwrap_or(0)];
    let answer = driver!(module::cuModuleEnumerateFunctions(all.as_mut_ptr(), count, CUmodule(module)));
    if !answer.is_success() || !all.contains(&CUfunction(word)) {
        return Ok(false);
    }
    let mut name = ptr::null();
    let has_name = driver!(kernel::cuFuncGetName(&raw mut name, CUfunction(word))).is_success();
    let Some(name) = told(has_name, name) else { return Ok(false) };
    recipes(|recipes| recipes.keep_first(word, || Recipe::Function { module, name }))?;
    // Where there is no room that is said.
    let _has_room = stacks::suffice(word);
    Ok(true)
}

fn told(is_told: bool, name: *const c_char) -> Option<CString> {
    // SAFETY: the driver has just given it, and it stays as long as its library.
    (is_told && !name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_owned())
}

/// Notes each object of a list, and gives it the name that the program knows. The first one has got its name by its type.
fn each(
    function: &'static str,
    list: *mut usize,
    count: c_uint,
    recipe: impl Fn(usize) -> Option<Recipe>,
) -> Result<(), Bypass> {
    let count = if list.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) };
    for index in 0..count {
        let place = list.wrapping_add(index);
        // SAFETY: the driver has written so many.
        let handle = unsafe { place.read_unaligned() };
        if !recipes(|recipes| recipes.is_kept(handle))? {
            match recipe(handle) {
                Some(recipe) => recipes(|recipes| recipes.keep_first(handle, || recipe))?,
                None => account::made(function, Reason::Nameless, handle.key()),
            }
            if stacks::suffice(handle).is_err() {
                // It would fault: so the program has none.
                // SAFETY: as above.
                unsafe { place.write_unaligned(0) };
                continue;
            }
        }
        if index > 0 {
            // SAFETY: as above.
            unsafe { place.write_unaligned(names::name_of(handle)) };
        }
    }
    Ok(())
}
