//! Which context is current on a thread, and how often a device's primary one is retained: passed on and noted, since a
//! fresh copy of the driver must be told (`recovery`).
#![expect(unsafe_code, reason = "calls the driver and reads what it has written")]

use std::ffi::c_uint;

use super::contexts;
use crate::cuda::{
    belongings,
    call::{Bypass, Driver},
    functions::context::cuDevicePrimaryCtxRetain,
    result::CUresult,
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

/// Logic of `cuDevicePrimaryCtxRetain`.
pub(crate) fn retain(
    driver: &mut Driver<cuDevicePrimaryCtxRetain::Signature>,
    context: *mut CUcontext,
    device: CUdevice,
) -> Result<CUresult, Bypass> {
    retaining(context, device, || driver.pass())
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

/// After `cuCtxSetFlags`: a primary context is made again with its flags.
pub(crate) fn set_current_flags(flags: c_uint) -> Result<(), Bypass> {
    let (context, device) = current()?;
    if objects(|objects| objects.contexts.primary(device))? == Some(context) {
        set_flags(device, flags)?;
    }
    Ok(())
}

/// After `cuDevicePrimaryCtxSetFlags`.
pub(crate) fn set_flags(device: CUdevice, flags: c_uint) -> Result<(), Bypass> {
    objects(|objects| objects.contexts.set_flags(device, flags))?;
    Ok(())
}
