//! Which context is current on a thread, and how often a device's primary one is retained: passed on and noted, since a
//! fresh copy of the driver must be told (`recovery`).
#![expect(unsafe_code, reason = "calls the driver and reads what it has written")]

use std::ffi::c_uint;

use crate::cuda::{
    belongings,
    call::{Bypass, Driver},
    functions::context::cuDevicePrimaryCtxRetain,
    result::CUresult,
    types::{CUcontext, CUdevice},
};
use crate::kept::{keeping::surroundings, objects};

/// The context that what is made now is of, and its device: the current one, or the device's primary one in the place of a green
/// context's, in which everything but streams is made and outlives it (measured with 580.159.04: memory, modules, events, arrays,
/// executable graphs).
pub(crate) fn current() -> Result<(usize, CUdevice), Bypass> {
    let (context, device) = entered()?;
    if !objects(|objects| objects.contexts.is_green(context))? {
        return Ok((context, device));
    }
    let known = objects(|objects| objects.contexts.primary(device))?;
    let primary = known.or_else(|| primary_of(device).map(|primary| primary.0)).ok_or(Bypass::ForTheDriver)?;
    learn(primary, device)?;
    Ok((primary, device))
}

/// The current context and its device.
pub(in crate::kept) fn entered() -> Result<(usize, CUdevice), Bypass> {
    let (mut context, mut device) = (CUcontext(0), 0);
    let has_context = driver!(context::cuCtxGetCurrent(&raw mut context)).is_success() && context.0 != 0;
    if !has_context || !driver!(context::cuCtxGetDevice(&raw mut device)).is_success() {
        return Err(Bypass::ForTheDriver);
    }
    learn(context.0, device)?;
    Ok((context.0, device))
}

/// The context that what is made now is of, unless it is a stream.
pub(crate) fn context() -> Result<usize, Bypass> {
    current().map(|(context, _)| context)
}

/// The current context, whose default stream a thread has, and in which it makes streams.
pub(crate) fn of_streams() -> Result<usize, Bypass> {
    entered().map(|(context, _)| context)
}

/// Finds out whether a context is its device's primary one, the first time that it is seen. A context that has failed
/// can no longer be asked, and then it is reset.
fn learn(context: usize, device: CUdevice) -> Result<(), Bypass> {
    if !objects(|objects| objects.contexts.is_known(context, device))? {
        let primary = primary_of(device);
        if primary.is_some() || !is_active(device) {
            objects(|objects| objects.contexts.learn(context, device, primary == Some(CUcontext(context))))?;
        }
    }
    Ok(())
}

/// Whether a device has a primary context.
pub(in crate::kept) fn is_active(device: CUdevice) -> bool {
    let (mut flags, mut is_active) = (0, 0);
    let answer = driver!(context::cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut is_active));
    answer.is_success() && is_active != 0
}

/// The primary context of a device, if there is one.
pub(in crate::kept) fn primary_of(device: CUdevice) -> Option<CUcontext> {
    if !is_active(device) {
        return None;
    }
    let mut context = CUcontext(0);
    if !driver!(context::cuDevicePrimaryCtxRetain(&raw mut context, device)).is_success() {
        return None;
    }
    let _as_before = driver!(context::cuDevicePrimaryCtxRelease_v2(device));
    Some(context)
}

/// Logic of `cuDevicePrimaryCtxRetain`.
pub(crate) fn retain(
    driver: &mut Driver<cuDevicePrimaryCtxRetain::Signature>,
    context: *mut CUcontext,
    device: CUdevice,
) -> Result<CUresult, Bypass> {
    let is_first =
        objects(|objects| objects.contexts.retained().all(|(of, retained)| of != device || retained.count == 0))?;
    // The first time the context is made, for which the driver opens files.
    let interval = is_first.then(belongings::Interval::begin).flatten();
    let answer = driver.pass();
    if let Some(interval) = interval {
        interval.end();
    }
    if answer.is_success() && !context.is_null() {
        // SAFETY: the driver has just written there.
        let handle = unsafe { *context }.0;
        objects(|objects| objects.contexts.retain(device, handle))?;
        if let Some(surroundings) = surroundings().filter(|_| is_first) {
            (surroundings.has_context)();
        }
    } else if let Some(surroundings) = surroundings() {
        (surroundings.has_no_context)(answer);
    }
    Ok(answer)
}

/// After a private function of cudart's has told the handle of a device's primary context, whether there is one or not: it
/// retains nothing (measured with 580.159.04), and cudart asks for each device that the program may see.
pub(crate) fn named(context: CUcontext, device: CUdevice) -> Result<(), Bypass> {
    objects(|objects| objects.contexts.name(device, context.0))
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
