//! A program that has the handles of primary contexts without having retained them, as cudart has of every GPU.
#![expect(unsafe_code, reason = "the driver's functions are unsafe, and one of a private table")]

use super::beside::fault;
use super::{GpuError, Stage, check, code, count_of, current, enter, second_context};
use crate::programs::memory_probe::allocate;
use crate::programs::replay_probe::failed;
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

/// The table that cudart gets its contexts by, and the place of the function there.
const CUDART: [u8; 16] = *b"\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9";
const PRIMARY: usize = 2;
const BYTES: usize = 4096;

type Primary = unsafe extern "C" fn(*mut sys::CUcontext, c_int) -> u32;

/// The handle of a device's primary context, by cudart's way.
fn handle(device: c_int) -> Result<sys::CUcontext, GpuError> {
    let mut table = null();
    // SAFETY: the result is a variable of ours, the name has sixteen bytes.
    check("cuGetExportTable", unsafe { sys::cuGetExportTable(&raw mut table, CUDART.as_ptr().cast()) })?;
    // SAFETY: the driver has just given the table of this name, which has the function there.
    let function = unsafe { table.cast::<*const c_void>().wrapping_add(PRIMARY).read() };
    if function.is_null() {
        return Err(failed("cuGetExportTable", "a table without the function"));
    }
    // SAFETY: the function's type.
    let function = unsafe { std::mem::transmute::<*const c_void, Primary>(function) };
    let mut context = null_mut();
    // SAFETY: the result is a variable of ours.
    let answer = unsafe { function(&raw mut context, device) };
    if answer == 0 { Ok(context) } else { Err(failed("a primary context's handle", answer)) }
}

/// Whether a device has a primary context.
fn is_active(device: c_int) -> Result<bool, GpuError> {
    let (mut flags, mut active): (c_uint, c_int) = (0, 0);
    // SAFETY: the results are variables of ours.
    let answer = unsafe { sys::cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active) };
    check("cuDevicePrimaryCtxGetState", answer)?;
    Ok(active != 0)
}

/// A fault on the one GPU that it uses, and then it uses the other one by the handle that it has had all the while.
pub(super) fn named_contexts(stage: &Stage) -> Result<Value, GpuError> {
    let (first, named) = (current()?, [handle(0)?, handle(1)?]);
    enter(named[1])?;
    // SAFETY: a context is current, which is not there.
    let absent = code(unsafe { sys::cuCtxSynchronize() });
    enter(first)?;
    let (before, early) = (is_active(1)?, count_of());
    let found = fault(stage)?;
    let after = is_active(1)?;
    let again = [handle(0)? == named[0], handle(1)? == named[1]];
    let retained = second_context()?;
    enter(named[1])?;
    let words = allocate(BYTES)?;
    stage.gpu.clear(words, BYTES)?;
    let is_used = stage.gpu.read(words, BYTES / 4)?.iter().all(|word| *word == 0);
    enter(first)?;
    // SAFETY: it was retained once.
    check("cuDevicePrimaryCtxRelease", unsafe { sys::cuDevicePrimaryCtxRelease_v2(1) })?;
    let is_left = is_active(1)?;
    let is_the_same = [first == named[0], retained == named[1]];
    Ok(json!({
        "absent": absent, "early": early, "found": found, "active": [before, after, is_left],
        "the_same": is_the_same, "again": again, "used": is_used,
    }))
}
