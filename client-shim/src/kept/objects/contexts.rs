//! What ends with a context, who may reach whose memory, and whether a stream is being captured.
#![expect(unsafe_code, reason = "calls the driver")]

use std::{collections::BTreeSet, sync::atomic::Ordering};

use super::{current::current, forget_context};
use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::{
            context::cuDevicePrimaryCtxReset_v2,
            stream::{cuStreamDestroy_v2, cuStreamEndCapture},
        },
        names,
        result::CUresult,
        threads,
        types::{CUcontext, CUdevice, CUgraph, CUstream, Key as _},
    },
    kept::{
        KEPT, account, graphs, has_capture, memory,
        memory::region::{self, Region},
        objects,
        work::progress,
    },
    process::settings,
};

/// After `cuCtxCreate`: it is current from now on.
pub(crate) fn created(function: &'static str, context: CUcontext) {
    threads::push(context.0);
    if settings::is_recording() {
        account::made(function, account::Reason::OtherContext, context.key());
    }
}

/// After `cuCtxDestroy`: memory that was allocated in the context ends with it, as the driver's own does.
pub(crate) fn destroy(context: CUcontext) -> Result<(), Bypass> {
    threads::destroyed(context.0);
    account::gone(context.key());
    end(context)?;
    Ok(())
}

/// Logic of `cuDevicePrimaryCtxReset`.
pub(crate) fn reset(
    driver: &mut Driver<cuDevicePrimaryCtxReset_v2::Signature>,
    device: CUdevice,
) -> Result<CUresult, Bypass> {
    let answer = primary(driver, device)?;
    if answer.is_success() {
        objects(|objects| objects.contexts.reset(device))?;
    }
    Ok(answer)
}

/// Logic of `cuDevicePrimaryCtxRelease`, whose last call destroys the context.
pub(crate) fn release(
    driver: &mut Driver<cuDevicePrimaryCtxReset_v2::Signature>,
    device: CUdevice,
) -> Result<CUresult, Bypass> {
    let answer = primary(driver, device)?;
    if answer.is_success() {
        objects(|objects| objects.contexts.release(device))?;
    }
    Ok(answer)
}

fn primary(driver: &mut Driver<cuDevicePrimaryCtxReset_v2::Signature>, device: CUdevice) -> Result<CUresult, Bypass> {
    let before = objects(|objects| objects.contexts.primary(device))?.map(CUcontext).or_else(|| primary_of(device));
    let answer = driver.pass();
    if let Some(context) = before.filter(|_| answer.is_success() && !is_active(device)) {
        end(context)?;
    }
    Ok(answer)
}

/// Finds out whether a context is its device's primary one, the first time that it is seen. A context that has failed
/// can no longer be asked, and then it is reset.
pub(crate) fn learn(context: usize, device: CUdevice) -> Result<(), Bypass> {
    if !objects(|objects| objects.contexts.is_known(context, device))? {
        let primary = primary_of(device);
        if primary.is_some() || !is_active(device) {
            objects(|objects| objects.contexts.learn(context, device, primary == Some(CUcontext(context))))?;
        }
    }
    Ok(())
}

fn is_active(device: CUdevice) -> bool {
    let (mut flags, mut is_active) = (0, 0);
    let answer = driver!(context::cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut is_active));
    answer.is_success() && is_active != 0
}

/// The primary context of a device, if there is one.
fn primary_of(device: CUdevice) -> Option<CUcontext> {
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

fn end(context: CUcontext) -> Result<(), Bypass> {
    forget_context(context.0);
    progress::ended_context(names::name_of(context.0));
    objects(|objects| objects.contexts.forget(context.0))?;
    memory(|memory| memory.slabs.remove_context(context.0))?.into_iter().for_each(Region::destroy);
    Ok(())
}

/// After `cuCtxEnablePeerAccess`: the current context's device may use the peer's memory, also what is there already.
pub(crate) fn enable_peer(peer: CUcontext) -> Result<(), Bypass> {
    if let Ok((_, user)) = current()
        && let Some(owner) = device_of(peer)
    {
        for (base, size) in memory(|memory| memory.slabs.add_peer(owner, user))? {
            // What is refused here the program finds out as it would with the driver's memory: by a fault.
            let _refused = region::allow(base, size, &[user]);
        }
    }
    Ok(())
}

fn device_of(context: CUcontext) -> Option<CUdevice> {
    let (mut device, mut popped) = (0, CUcontext(0));
    if !driver!(context::cuCtxPushCurrent_v2(context)).is_success() {
        return None;
    }
    let answer = driver!(context::cuCtxGetDevice(&raw mut device));
    let _as_before = driver!(context::cuCtxPopCurrent_v2(&raw mut popped));
    answer.is_success().then_some(device)
}

/// A stream is being captured.
pub(crate) fn begun(stream: CUstream) -> Result<(), Bypass> {
    changed(|captures| captures.insert(progress::captured(stream)))
}

fn changed(change: impl FnOnce(&mut BTreeSet<usize>) -> bool) -> Result<(), Bypass> {
    objects(|objects| {
        change(&mut objects.captures);
        KEPT.captures.store(objects.captures.len(), Ordering::Release);
    })
}

/// Logic of `cuStreamDestroy`, which ends a capture too.
pub(crate) fn end_stream(
    driver: &mut Driver<cuStreamDestroy_v2::Signature>,
    stream: CUstream,
) -> Result<CUresult, Bypass> {
    let answer = super::ends(driver, stream)?;
    if answer.is_success() && has_capture() {
        changed(|captures| captures.remove(&progress::captured(stream)))?;
    }
    Ok(answer)
}

/// Logic of `cuStreamEndCapture`. A capture that was broken ends here too, with an error.
pub(crate) fn end_capture(
    driver: &mut Driver<cuStreamEndCapture::Signature>,
    stream: CUstream,
    graph: *mut CUgraph,
) -> Result<CUresult, Bypass> {
    let answer = driver.pass();
    changed(|captures| captures.remove(&progress::captured(stream)))?;
    if answer.is_success() && !graph.is_null() && settings::is_recording() {
        // SAFETY: the driver has just written there.
        graphs::made("cuStreamEndCapture", unsafe { *graph })?;
    }
    Ok(answer)
}
