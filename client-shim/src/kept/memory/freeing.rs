//! `cuMemFree`, in any order, and what waits to be freed.
//!
//! The driver's own `cuMemFree` returns when no work can use the memory any longer, and programs rely on that when they
//! give the address to something else. So ours waits for the block's context first. While a stream is being captured
//! that is forbidden, so such a block waits in a list until no capture is under way. What is asked or waited for besides,
//! in a call that has nothing to do with a capture, is done in the mode in which it breaks nobody's ([`apart`]).
#![expect(unsafe_code, reason = "calls the driver")]

use super::slabs::{Emptied, Pending};
use crate::cuda::{
    call::{Bypass, Driver},
    functions::{
        memory::cuMemFree_v2,
        pool::{cuMemFreeAsync, cuMemFreeAsync_ptsz},
    },
    names,
    result::CUresult,
    types::{CUcontext, CUdeviceptr, CUevent, CUstream, CUstreamCaptureStatus},
};
use crate::kept::{account, is_capturing, memory, memory::Memory, objects::current::context, recipes, work::progress};
use crate::process::settings;

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;

/// Streams below are names for default streams and not handles: `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`.
pub(super) const FIRST_HANDLE: usize = 3;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: u32 = 2;
/// What waits to be freed that is looked at in a call; a free that waits is made by one.
const LOOKED_AT: usize = 16;

/// Does something that is forbidden while another thread captures a stream, and would break its capture.
pub(super) fn apart<T>(work: impl FnOnce() -> T) -> T {
    let mut mode = RELAXED;
    let is_changed = driver!(stream::cuThreadExchangeStreamCaptureMode(&raw mut mode)).is_success();
    let done = work();
    if is_changed {
        let _as_before = driver!(stream::cuThreadExchangeStreamCaptureMode(&raw mut mode));
    }
    done
}

/// Logic of `cuMemFree`.
pub(crate) fn now(driver: &mut Driver<cuMemFree_v2::Signature>, address: CUdeviceptr) -> Result<CUresult, Bypass> {
    let Some(block) = memory(|memory| memory.slabs.mark_freed(address))? else {
        let answer = driver.pass();
        return Ok(account::after_free(address, answer));
    };
    if is_capturing()? {
        memory(|memory| memory.slabs.deferred.push(address))?;
        return Ok(CUresult::CUDA_SUCCESS);
    }
    let answer = wait_for(block.context);
    if !answer.is_success() {
        memory(|memory| memory.slabs.unmark_freed(address))?;
        return Ok(answer);
    }
    finish(address)?;
    reclaim()?;
    Ok(CUresult::CUDA_SUCCESS)
}

/// Logic of `cuMemFreeAsync` for a stream of the driver's kind.
pub(crate) fn in_order(
    driver: &mut Driver<cuMemFreeAsync::Signature>,
    address: CUdeviceptr,
    stream: CUstream,
) -> Result<CUresult, Bypass> {
    let mut status: CUstreamCaptureStatus = 0;
    let is_captured = || driver!(stream::cuStreamIsCapturing(stream, &raw mut status)).is_success() && status != 0;
    let record = |event| driver!(event::cuEventRecord(event, stream));
    after(driver, address, (stream, false), is_captured, record)
}

/// Logic of `cuMemFreeAsync` where each thread has a default stream.
pub(crate) fn in_order_per_thread(
    driver: &mut Driver<cuMemFreeAsync_ptsz::Signature>,
    address: CUdeviceptr,
    stream: CUstream,
) -> Result<CUresult, Bypass> {
    let mut status: CUstreamCaptureStatus = 0;
    let is_captured =
        || driver!(per_thread stream::cuStreamIsCapturing(stream, &raw mut status)).is_success() && status != 0;
    let record = |event| driver!(per_thread event::cuEventRecord(event, stream));
    after(driver, address, (stream, true), is_captured, record)
}

/// What the order of a stream is known by; 0 where nobody would see the stream end.
pub(super) fn order_of(stream: CUstream, is_per_thread: bool, current: usize) -> usize {
    if settings::is_recording() { progress::named(stream, is_per_thread, names::name_of(current)).0 } else { 0 }
}

/// The context of a stream that has a handle. It is not captured, so the driver may be asked.
fn context_of(stream: CUstream) -> Option<usize> {
    if stream.0 < FIRST_HANDLE {
        return None;
    }
    let known = recipes(|recipes| recipes.stream_context(stream.0)).ok().flatten();
    known.or_else(|| {
        let mut context = CUcontext(0);
        let answer = apart(|| driver!(stream::cuStreamGetCtx(stream, &raw mut context)));
        answer.is_success().then_some(context.0)
    })
}

/// Frees a block once what is before an event recorded now is done. Memory that is not ours is the driver's to free.
fn after(
    driver: &mut Driver<cuMemFreeAsync::Signature>,
    address: CUdeviceptr,
    (stream, is_per_thread): (CUstream, bool),
    is_captured: impl FnOnce() -> bool,
    record: impl FnOnce(CUevent) -> CUresult,
) -> Result<CUresult, Bypass> {
    if memory(|memory| memory.slabs.around(address))?.is_none() {
        return Ok(account::after_free(address, driver.pass()));
    }
    if is_captured() {
        // Freed in a graph can only be what was allocated in it.
        return Err(Bypass::ForTheDriver);
    }
    if memory(|memory| memory.slabs.mark_freed(address))?.is_none() {
        return Ok(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let mut event = CUevent(0);
    // An event can be recorded in a stream of its own context alone, which need not be the current one.
    let mut create = || driver!(event::cuEventCreate(&raw mut event, NO_TIMING));
    let mut answer = match context_of(stream) {
        Some(context) => inside(context, create),
        None => create(),
    };
    if answer.is_success() {
        answer = record(event);
        if answer.is_success() {
            let order = order_of(stream, is_per_thread, context()?);
            memory(|memory| memory.slabs.pending.push_back(Pending { address, event, order }))?;
            return Ok(answer);
        }
        let _not_recorded = driver!(event::cuEventDestroy_v2(event));
    }
    memory(|memory| memory.slabs.unmark_freed(address))?;
    Ok(answer)
}

/// Frees some of what was waiting and need not wait any longer.
pub(super) fn reclaim() -> Result<(), Bypass> {
    reclaim_of(LOOKED_AT)
}

/// Frees all of what was waiting and need not wait any longer.
pub(super) fn reclaim_all() -> Result<(), Bypass> {
    reclaim_of(usize::MAX)
}

fn reclaim_of(most: usize) -> Result<(), Bypass> {
    let (pending, is_any_deferred) = memory(|Memory { slabs, .. }| {
        let looked_at = slabs.pending.len().min(most);
        (slabs.pending.drain(..looked_at).collect::<Vec<_>>(), !slabs.deferred.is_empty())
    })?;
    let deferred = if is_any_deferred && !is_capturing()? {
        memory(|memory| std::mem::take(&mut memory.slabs.deferred))?
    } else {
        Vec::new()
    };
    for waiting in pending {
        if apart(|| driver!(event::cuEventQuery(waiting.event))).is_success() {
            let _gone = driver!(event::cuEventDestroy_v2(waiting.event));
            finish(waiting.address)?;
        } else {
            memory(|memory| memory.slabs.pending.push_back(waiting))?;
        }
    }
    for address in deferred {
        let context = memory(|memory| memory.slabs.context_of(address))?;
        if context.is_none_or(|context| wait_for(context).is_success()) {
            finish(address)?;
        } else {
            memory(|memory| memory.slabs.deferred.push(address))?;
        }
    }
    Ok(())
}

/// Waits for everything that was freed in a stream's order, and frees it: memory is short.
pub(super) fn wait_for_pending() -> Result<(), Bypass> {
    for waiting in memory(|memory| std::mem::take(&mut memory.slabs.pending))? {
        // An event that has failed is of a context that has; its memory goes with it.
        if apart(|| driver!(event::cuEventSynchronize(waiting.event))).is_success() {
            let _gone = driver!(event::cuEventDestroy_v2(waiting.event));
            finish(waiting.address)?;
        } else {
            memory(|memory| memory.slabs.pending.push_back(waiting))?;
        }
    }
    Ok(())
}

/// Waits until a context has nothing to do.
pub(super) fn wait_for(context: usize) -> CUresult {
    inside(context, || driver!(context::cuCtxSynchronize()))
}

/// Does something with this context as the current one.
pub(super) fn inside(context: usize, work: impl FnOnce() -> CUresult) -> CUresult {
    let mut current = CUcontext(0);
    if driver!(context::cuCtxGetCurrent(&raw mut current)).is_success() && current.0 == context {
        return work();
    }
    let pushed = driver!(context::cuCtxPushCurrent_v2(CUcontext(context)));
    if !pushed.is_success() {
        return pushed;
    }
    let answer = work();
    let _popped = driver!(context::cuCtxPopCurrent_v2(&raw mut current));
    answer
}

/// Frees a block, and its slab with the last one.
pub(super) fn finish(address: CUdeviceptr) -> Result<(), Bypass> {
    let size = memory(|memory| memory.slabs.size_of(address))?;
    if let Some(size) = size.filter(|_| settings::is_recording()) {
        recipes(|recipes| recipes.forget_addresses(&(address..address + size)))?;
    }
    memory(|memory| memory.slabs.remove(address))?.map_or(Ok(()), give_back)
}

/// Gives a slab's memory back, and then its addresses.
pub(crate) fn give_back(Emptied(region): Emptied) -> Result<(), Bypass> {
    let base = region.base;
    region.destroy();
    memory(|memory| memory.slabs.unclaim(base))
}
