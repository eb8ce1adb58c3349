//! What ends with a context, in all rooms, and whose memory a context may reach.
#![expect(unsafe_code, reason = "calls the driver")]

use super::{
    account,
    code::{reading, stacks},
    graphs::graphs,
    memory::{freeing, memory, pinned::Pages, region},
    objects::{
        current::{current, is_active, primary_of},
        end_captures, objects, recipes,
    },
    shared,
    streams::callbacks,
    work::progress,
};
use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::context::cuDevicePrimaryCtxReset_v2,
        names,
        result::CUresult,
        threads,
        types::{CUcontext, CUdevice, CUgreenCtx, Key as _},
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

/// After `cuCtxDetach`: a context whose usage count has come to zero is destroyed. The driver counts, since who has attached it
/// need not be asked: it knows no version of a context that has ended (measured with 580.159.04, where a primary one stays
/// however often it is detached).
pub(crate) fn detached(context: CUcontext) -> Result<(), Bypass> {
    let mut version = 0;
    match driver!(context::cuCtxGetApiVersion(context, &raw mut version)) {
        CUresult::CUDA_ERROR_INVALID_CONTEXT => destroy(context),
        _ => Ok(()),
    }
}

/// After `cuCtxFromGreenCtx`.
pub(crate) fn from_green(context: CUcontext, green: CUgreenCtx) -> Result<(), Bypass> {
    let device = device_of(context).ok_or(Bypass::ForTheDriver)?;
    objects(|objects| objects.contexts.name_green(context.0, green.0, device))
}

/// After `cuGreenCtxDestroy`: its streams have ended, and where nobody else has retained it the device's primary context, which
/// has all else that was made meanwhile. It stays current where it is.
pub(crate) fn destroyed_green(green: CUgreenCtx) -> Result<(), Bypass> {
    account::gone(green.key());
    let Some((context, device)) = objects(|objects| objects.contexts.take_green(green.0))? else { return Ok(()) };
    end(CUcontext(context))?;
    match objects(|objects| objects.contexts.primary(device))? {
        Some(primary) if !is_active(device) => end(CUcontext(primary)),
        _ => Ok(()),
    }
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
    let nobody_reads = reading::ending();
    let answer = driver.pass();
    drop(nobody_reads);
    if let Some(context) = before.filter(|_| answer.is_success() && !is_active(device)) {
        end(context)?;
    }
    Ok(answer)
}

/// A context has ended, and everything in it.
fn end(context: CUcontext) -> Result<(), Bypass> {
    // Where no recipes are kept there is nothing to forget. Host memory ends with its context, as the driver's own does.
    let mut of_graphs = graphs(|graphs| graphs.names()).unwrap_or_default();
    let mut events = Vec::new();
    let forgotten = recipes(|recipes| {
        events = recipes.events_in(context.0).map(names::name_of).collect();
        of_graphs.retain(|handle| recipes.is_kept(*handle));
        let memory = recipes.forget_context(context.0);
        of_graphs.retain(|handle| !recipes.is_kept(*handle));
        memory
    });
    for memory in forgotten.unwrap_or_default() {
        Pages::new(memory.start, memory.size).unmap();
    }
    let _nothing = graphs(|graphs| graphs.forget_context(context.0, &of_graphs));
    stacks::is_gone(context.0);
    progress::ended_context(names::name_of(context.0), &events);
    shared::ended_context(names::name_of(context.0));
    callbacks::ended_context(names::name_of(context.0));
    objects(|objects| {
        objects.contexts.forget(context.0);
        objects.ids.forget_context(names::name_of(context.0));
    })?;
    end_captures(|_, of| of == context.0)?;
    let (emptied, events) = memory(|memory| {
        memory.slabs.pending.order_ends(0);
        memory.slabs.remove_context(context.0)
    })?;
    events.into_iter().for_each(|event| freeing::destroy(Some(event)));
    emptied.into_iter().try_for_each(freeing::give_back)
}

/// After `cuCtxEnablePeerAccess`: the current context's device may use the peer's memory, also what is there already.
pub(crate) fn enable_peer(peer: CUcontext) -> Result<(), Bypass> {
    if let Ok((context, user)) = current()
        && let Some(owner) = device_of(peer)
    {
        objects(|objects| objects.contexts.reaches(peer.0, context, true))?;
        for (base, size) in memory(|memory| memory.slabs.add_peer(owner, user))? {
            // What is refused here the program finds out as it would with the driver's memory: by a fault.
            let _refused = region::allow(base, size, &[user]);
        }
    }
    Ok(())
}

/// After `cuCtxDisablePeerAccess`: it is not enabled again. What is mapped for the device stays so; access that a program
/// does without harms nobody.
pub(crate) fn disable_peer(peer: CUcontext) -> Result<(), Bypass> {
    let (context, _) = current()?;
    objects(|objects| objects.contexts.reaches(peer.0, context, false))
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
