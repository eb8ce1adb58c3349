//! `cuMemFree`, in any order, and what waits to be freed.
//!
//! The driver's own `cuMemFree` returns when no work can use the memory any longer, and programs rely on that when they
//! give the address to something else. So ours waits for the block's context first. While a stream is being captured
//! that is forbidden, so such a block waits in a list until no capture is under way. What is asked or waited for besides,
//! in a call that has nothing to do with a capture, is done in the mode in which it breaks nobody's ([`apart`]).
#![expect(unsafe_code, reason = "calls the driver")]

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    slabs::{Emptied, Freed, Pending, Settled},
    wait_for_the_outside,
};
use crate::cuda::{
    call::{Bypass, Driver},
    functions::{
        memory::cuMemFree_v2,
        pool::{cuMemFreeAsync, cuMemFreeAsync_ptsz},
    },
    names,
    result::CUresult,
    types::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUstream, CUstreamCaptureStatus},
};
use crate::kept::{account, is_capturing, memory, objects::current::of_streams, recipes, work::progress};
use crate::process::settings;

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;

/// Streams below are names for default streams and not handles: `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`.
pub(super) const FIRST_HANDLE: usize = 3;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: u32 = 2;
/// What waits to be freed that is looked at in a call; a free that waits is made by one.
const LOOKED_AT: usize = 16;
/// The same where a program asks how much is free.
const MANY: usize = 1024;
/// How long other threads are waited for that are giving memory back.
const OTHERS: Duration = Duration::from_secs(1);

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
    let freed = Freed { address, number: block.number };
    if is_capturing()? {
        memory(|memory| memory.slabs.deferred.push(freed))?;
        return Ok(CUresult::CUDA_SUCCESS);
    }
    let answer = wait_for(block.context);
    if !answer.is_success() {
        memory(|memory| memory.slabs.unmark_freed(address))?;
        return Ok(answer);
    }
    finish(freed)?;
    reclaim_deferred()?;
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
pub(super) fn order_of(stream: CUstream, is_per_thread: bool) -> Result<usize, Bypass> {
    if !settings::is_recording() {
        return Ok(0);
    }
    // A default stream is the current context's, and need not be the one in whose place a green one is.
    let current = if stream.0 < FIRST_HANDLE { names::name_of(of_streams()?) } else { 0 };
    Ok(progress::named(stream, is_per_thread, current).0)
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
    // An event can be recorded in a stream of its own context alone, which need not be the current one.
    let event_context = context_of(stream).map_or_else(of_streams, Ok)?;
    let order = order_of(stream, is_per_thread)?;
    let Some(block) = memory(|memory| memory.slabs.mark_freed(address))? else {
        return Ok(CUresult::CUDA_ERROR_INVALID_VALUE);
    };
    let mut event = CUevent(0);
    let mut answer = inside(event_context, || driver!(event::cuEventCreate(&raw mut event, NO_TIMING)));
    if answer.is_success() {
        answer = record(event);
        if answer.is_success() {
            let block = Freed { address, number: block.number };
            memory(|memory| memory.slabs.pending.push(Pending { block, event, event_context, order }))?;
            return Ok(answer);
        }
        destroy(Some(event));
    }
    memory(|memory| memory.slabs.unmark_freed(address))?;
    Ok(answer)
}

/// Destroys an event that nobody needs any longer.
pub(crate) fn destroy(event: Option<CUevent>) {
    if let Some(event) = event {
        let _gone_anyway = driver!(event::cuEventDestroy_v2(event));
    }
}

/// Does what somebody is to do who has asked of an event.
pub(super) fn settle(Settled { free, destroy: event }: Settled) -> Result<(), Bypass> {
    destroy(event);
    let Some(block) = free else { return Ok(()) };
    let finished = finish(block);
    memory(|memory| memory.slabs.has_left())?;
    finished
}

/// Frees some of what was waiting and need not wait any longer.
pub(super) fn reclaim() -> Result<(), Bypass> {
    reclaim_of(LOOKED_AT)
}

/// Frees all of what was waiting and need not wait any longer, as far as it is not absurdly much.
pub(super) fn reclaim_all() -> Result<(), Bypass> {
    reclaim_of(MANY)
}

fn reclaim_of(most: usize) -> Result<(), Bypass> {
    for asked in memory(|memory| memory.slabs.pending.ask(most))? {
        let has_come = apart(|| driver!(event::cuEventQuery(asked.event))).is_success();
        settle(memory(|memory| memory.slabs.settle(asked, has_come))?)?;
    }
    Ok(())
}

/// Frees what was freed by `cuMemFree` while a stream was being captured, if none is any more. It waits for contexts, as that call
/// would have.
pub(super) fn reclaim_deferred() -> Result<(), Bypass> {
    if memory(|memory| memory.slabs.deferred.is_empty())? || is_capturing()? {
        return Ok(());
    }
    for block in memory(|memory| std::mem::take(&mut memory.slabs.deferred))? {
        let context = memory(|memory| memory.slabs.context_of(block))?;
        if context.is_none_or(|context| wait_for(context).is_success()) {
            finish(block)?;
        } else {
            memory(|memory| memory.slabs.deferred.push(block))?;
        }
    }
    Ok(())
}

/// Waits for everything that was freed in a stream's order, and frees it: memory is short.
pub(super) fn wait_for_pending() -> Result<(), Bypass> {
    for asked in memory(|memory| memory.slabs.pending.ask_all())? {
        // An event that has failed is of a context that has; its memory goes with it.
        let has_come = apart(|| driver!(event::cuEventSynchronize(asked.event))).is_success();
        settle(memory(|memory| memory.slabs.settle(asked, has_come))?)?;
    }
    reclaim_deferred()?;
    // What other threads have found to be free, and are giving back.
    let begun = Instant::now();
    while memory(|memory| memory.slabs.is_any_leaving())? && begun.elapsed() < OTHERS {
        thread::yield_now();
    }
    Ok(())
}

/// Gives back what a device needs for something else: what waits for streams, is kept empty, or was just released.
pub(super) fn make_room(device: CUdevice) -> Result<(), Bypass> {
    wait_for_pending()?;
    memory(|memory| memory.slabs.take_empty(device, 0))?.into_iter().try_for_each(give_back)?;
    wait_for_the_outside();
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
pub(super) fn finish(block: Freed) -> Result<(), Bypass> {
    forget_settings(block.address, memory(|memory| memory.slabs.size_of(block))?)?;
    memory(|memory| memory.slabs.remove(block))?.map_or(Ok(()), give_back)
}

/// What was set on the addresses of a block goes with it.
pub(super) fn forget_settings(address: u64, size: Option<u64>) -> Result<(), Bypass> {
    match size.filter(|_| settings::is_recording()) {
        Some(size) => recipes(|recipes| recipes.forget_addresses(&(address..address + size))),
        None => Ok(()),
    }
}

/// Gives a slab's memory back, and then its addresses.
pub(crate) fn give_back(Emptied(region): Emptied) -> Result<(), Bypass> {
    let base = region.base;
    region.destroy();
    memory(|memory| memory.slabs.unclaim(base))
}
