//! Which context is current on a thread, and how often a device's primary one is retained: passed on and noted, since a
//! fresh copy of the driver must be told (`recovery`).
#![expect(unsafe_code, reason = "calls the driver and reads what it has written")]

use std::ffi::c_uint;

use super::contexts;
use crate::cuda::{
    belongings,
    call::{Bypass, Driver},
    functions::context::{
        cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuCtxSetCurrent, cuDevicePrimaryCtxRetain,
        cuDevicePrimaryCtxSetFlags_v2,
    },
    result::CUresult,
    threads,
    types::{CUcontext, CUdevice},
};
use crate::kept::{KEPT, objects};

/// The current context and its device.
pub(crate) fn current() -> Result<(usize, CUdevice), Bypass> {
    let (mut context, mut device) = (CUcontext(0), 0);
    let has_context = driver!(context::cuCtxGetCurrent(&raw mut context)).is_success() && context.0 != 0;
    if !has_context || !driver!(context::cuCtxGetDevice(&raw mut device)).is_success() {
        return Err(Bypass::ForTheDriver);
    }
    contexts::learn(context.0, device)?;
    Ok((context.0, device))
}

/// The current context: what is made now is made in it.
pub(crate) fn context() -> Result<usize, Bypass> {
    current().map(|(context, _)| context)
}

/// Logic of `cuCtxSetCurrent`.
pub(crate) fn set(driver: &mut Driver<cuCtxSetCurrent::Signature>, context: CUcontext) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's argument.
    let answer = driver.call(|function| unsafe { function(context) });
    if answer.is_success() {
        threads::set(context.0);
    }
    Ok(answer)
}

/// Logic of `cuCtxPushCurrent`.
pub(crate) fn push(
    driver: &mut Driver<cuCtxPushCurrent_v2::Signature>,
    context: CUcontext,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's argument.
    let answer = driver.call(|function| unsafe { function(context) });
    if answer.is_success() {
        threads::push(context.0);
    }
    Ok(answer)
}

/// Logic of `cuCtxPopCurrent`.
pub(crate) fn pop(
    driver: &mut Driver<cuCtxPopCurrent_v2::Signature>,
    context: *mut CUcontext,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's argument.
    let answer = driver.call(|function| unsafe { function(context) });
    if answer.is_success() {
        threads::pop();
    }
    Ok(answer)
}

/// Logic of `cuDevicePrimaryCtxRetain`.
pub(crate) fn retain(
    driver: &mut Driver<cuDevicePrimaryCtxRetain::Signature>,
    context: *mut CUcontext,
    device: CUdevice,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    retaining(context, device, || driver.call(|function| unsafe { function(context, device) }))
}

/// Retains a device's primary context by `retain`, which writes its handle to `context`.
pub(crate) fn retaining(
    context: *mut CUcontext,
    device: CUdevice,
    retain: impl FnOnce() -> CUresult,
) -> Result<CUresult, Bypass> {
    let is_first =
        objects(|objects| objects.contexts.retained().all(|(of, retained)| of != device || retained.count == 0))?;
    // The first time the context is made, for which the driver opens files.
    let interval = is_first.then(belongings::Interval::begin).flatten();
    let answer = retain();
    if let Some(interval) = interval {
        interval.end();
    }
    if answer.is_success() && !context.is_null() {
        // SAFETY: the driver has just written there.
        let handle = unsafe { *context }.0;
        objects(|objects| objects.contexts.retain(device, handle))?;
        if let Some(surroundings) = KEPT.surroundings.get().filter(|_| is_first) {
            (surroundings.has_context)();
        }
    }
    Ok(answer)
}

/// Logic of `cuDevicePrimaryCtxSetFlags`.
pub(crate) fn set_flags(
    driver: &mut Driver<cuDevicePrimaryCtxSetFlags_v2::Signature>,
    device: CUdevice,
    flags: c_uint,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(device, flags) });
    if answer.is_success() {
        objects(|objects| objects.contexts.set_flags(device, flags))?;
    }
    Ok(answer)
}
