//! Private functions whose arguments are known and name contexts or modules.
//!
//! Arguments and order are those of ZLUDA (`dark_api/src/lib.rs`, `CUDART_INTERFACE` and `CONTEXT_CHECKS`), and for the
//! queries about contexts what calls of cuBLASLt 13 have shown.
#![expect(unsafe_code, reason = "functions without a public declaration")]

use std::{
    ffi::{c_int, c_uint, c_void},
    mem, ptr,
};

use super::{CHECKS, CUDART, KINDS, QUERIES, passing, table::Table, theirs, to_driver, to_program};
use crate::process::panics::unpanicked;
use crate::{
    cuda::{
        result::CUresult,
        types::{CUcontext, CUmodule},
    },
    kept::{self, code::modules},
};

type Module = unsafe extern "C" fn(*mut CUmodule, *const c_void) -> CUresult;
type Primary = unsafe extern "C" fn(*mut CUcontext, c_int) -> CUresult;
type ModuleOf = unsafe extern "C" fn(*mut CUmodule, *const c_void, *mut c_void, *mut c_void, c_uint) -> CUresult;
type ModuleFrom = unsafe extern "C" fn(*const c_void, *mut CUmodule, *mut c_void, *mut c_void, c_uint) -> CUresult;
type Query = unsafe extern "C" fn(CUcontext, *mut u64) -> CUresult;
type Check = unsafe extern "C" fn(CUcontext, *mut c_uint, *mut *const c_void) -> CUresult;

/// Places in the table that cudart loads its modules and gets its contexts by.
const MODULE: usize = 1;
const PRIMARY: usize = 2;
const MODULE_OF: usize = 6;
const MODULE_FROM: usize = 8;
/// The place in the one of checks.
const CHECK: usize = 2;
/// The place in the one of queries.
const QUERY: usize = 4;

/// Our functions in the places of cudart's table.
pub(super) fn ours(index: usize) -> Option<*mut c_void> {
    match index {
        MODULE => Some(module as *mut c_void),
        PRIMARY => Some(primary as *mut c_void),
        MODULE_OF => Some(module_of as *mut c_void),
        MODULE_FROM => Some(module_from as *mut c_void),
        _ => None,
    }
}

/// Our functions in the places of the table of checks.
pub(super) fn our_checks(index: usize) -> Option<*mut c_void> {
    (index == CHECK).then_some(check as *mut c_void)
}

/// Our functions in the places of the table of queries about contexts.
pub(super) fn our_queries(index: usize) -> Option<*mut c_void> {
    (index == QUERY).then_some(query as *mut c_void)
}

/// Loads a module by `load`, which writes its handle to `module`, and notes what it was loaded from.
fn loading(
    module: *mut CUmodule,
    image: *const c_void,
    is_plain: bool,
    load: impl Fn() -> CUresult + Copy,
) -> CUresult {
    passing(move || {
        let answer = load();
        if answer.is_success() && !module.is_null() {
            // SAFETY: the driver has just written there.
            let handle = unsafe { *module };
            // What cannot be noted has been counted.
            let _noted = unpanicked(|| modules::module_by_table(handle, image, is_plain));
        }
        answer
    })
}

unsafe extern "C" fn module(module: *mut CUmodule, image: *const c_void) -> CUresult {
    loading(module, image, true, || {
        // SAFETY: the place's type.
        let theirs = unsafe { theirs::<Module>(CUDART, MODULE) };
        // SAFETY: the program's call with the program's arguments.
        unsafe { theirs(module, image) }
    })
}

unsafe extern "C" fn module_of(
    module: *mut CUmodule,
    image: *const c_void,
    third: *mut c_void,
    fourth: *mut c_void,
    fifth: c_uint,
) -> CUresult {
    loading(module, image, third.is_null() && fourth.is_null() && fifth == 0, || {
        // SAFETY: as above.
        let theirs = unsafe { theirs::<ModuleOf>(CUDART, MODULE_OF) };
        // SAFETY: as above.
        unsafe { theirs(module, image, third, fourth, fifth) }
    })
}

unsafe extern "C" fn module_from(
    image: *const c_void,
    module: *mut CUmodule,
    third: *mut c_void,
    fourth: *mut c_void,
    fifth: c_uint,
) -> CUresult {
    loading(module, image, third.is_null() && fourth.is_null() && fifth == 0, || {
        // SAFETY: as above.
        let theirs = unsafe { theirs::<ModuleFrom>(CUDART, MODULE_FROM) };
        // SAFETY: as above.
        unsafe { theirs(image, module, third, fourth, fifth) }
    })
}

unsafe extern "C" fn primary(context: *mut CUcontext, device: c_int) -> CUresult {
    passing(move || {
        // SAFETY: as above.
        let theirs = unsafe { theirs::<Primary>(CUDART, PRIMARY) };
        // SAFETY: as above.
        let answer = unsafe { theirs(context, device) };
        if answer.is_success() && !context.is_null() {
            // SAFETY: the driver has just written there.
            let made = unsafe { context.read() };
            // Where nothing is kept there is nobody to tell.
            let _noted = unpanicked(|| kept::objects::current::named(made, device));
            // SAFETY: as above.
            unsafe { context.write(to_program(made)) };
        }
        answer
    })
}

/// The handle of a device's primary context in the copy of the driver that is asked, whether there is one or not.
///
/// # Errors
/// The call that failed, and its answer.
pub(in super::super) fn primary_of(device: c_int) -> Result<CUcontext, (&'static str, CUresult)> {
    let mut start = ptr::null();
    let answer = driver!(query::cuGetExportTable(&raw mut start, ptr::from_ref(&KINDS[CUDART].id).cast()));
    if !answer.is_success() {
        return Err(("cuGetExportTable", answer));
    }
    // SAFETY: the copy has given this table out.
    let table = unsafe { Table::at(start) }.filter(|table| table.functions().contains(&PRIMARY));
    let function = table.map(|table| table.get(PRIMARY)).filter(|function| !function.is_null());
    let function = function.ok_or(("cuGetExportTable", CUresult::CUDA_ERROR_NOT_FOUND))?;
    // SAFETY: the place's type.
    let function = unsafe { mem::transmute::<*mut c_void, Primary>(function) };
    let mut context = CUcontext(0);
    // SAFETY: the result is a variable of ours.
    let answer = unsafe { function(&raw mut context, device) };
    if answer.is_success() { Ok(context) } else { Err(("a primary context's handle", answer)) }
}

unsafe extern "C" fn check(context: CUcontext, first: *mut c_uint, second: *mut *const c_void) -> CUresult {
    passing(move || {
        // SAFETY: as above.
        let theirs = unsafe { theirs::<Check>(CHECKS, CHECK) };
        // SAFETY: as above.
        unsafe { theirs(to_driver(context), first, second) }
    })
}

unsafe extern "C" fn query(context: CUcontext, number: *mut u64) -> CUresult {
    passing(move || {
        // SAFETY: as above.
        let theirs = unsafe { theirs::<Query>(QUERIES, QUERY) };
        // SAFETY: as above.
        unsafe { theirs(to_driver(context), number) }
    })
}
