//! Stream-ordered memory.
//!
//! What a program allocates in a stream's order from a pool of its device, the default one or one of its own, is made
//! like all other memory here: it can be used at once, which is earlier than asked for, and it is given out again when an
//! event that was recorded at its free has come, or before that to the stream in whose order it was freed. Pools that are shared with other processes, and graphs that allocate,
//! stay the driver's.
#![expect(unsafe_code, reason = "calls the driver and writes its result parameters")]

use super::{
    allocation::{ABSURD, obtain, reason},
    freeing::{self, FIRST_HANDLE},
    pools::known,
    slabs::{Again, Wish},
};
use crate::cuda::{
    call::{Bypass, Driver},
    functions::pool::{cuMemAllocAsync, cuMemAllocFromPoolAsync},
    result::CUresult,
    types::{CUcontext, CUdeviceptr, CUmemoryPool, CUstream, CUstreamCaptureStatus, Key as _},
};
use crate::kept::{
    account::{self, Reason},
    memory,
    objects::current::current,
};

/// Logic of `cuMemAllocAsync`.
pub(crate) fn allocate(
    driver: &mut Driver<cuMemAllocAsync::Signature>,
    address: *mut CUdeviceptr,
    size: usize,
    stream: CUstream,
) -> Result<CUresult, Bypass> {
    obtain_from("cuMemAllocAsync", address, size, current_pool, stream, false, || driver.pass())
}

/// The same where each thread has a default stream.
pub(crate) fn allocate_per_thread(
    driver: &mut Driver<cuMemAllocAsync::Signature>,
    address: *mut CUdeviceptr,
    size: usize,
    stream: CUstream,
) -> Result<CUresult, Bypass> {
    obtain_from("cuMemAllocAsync", address, size, current_pool, stream, true, || driver.pass())
}

fn current_pool() -> Result<CUmemoryPool, Bypass> {
    let (_, device) = current()?;
    let mut pool = CUmemoryPool(0);
    let is_known = driver!(pool::cuDeviceGetMemPool(&raw mut pool, device)).is_success();
    if is_known { Ok(pool) } else { Err(Bypass::ForTheDriver) }
}

/// Logic of `cuMemAllocFromPoolAsync`.
pub(crate) fn allocate_from(
    driver: &mut Driver<cuMemAllocFromPoolAsync::Signature>,
    address: *mut CUdeviceptr,
    size: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Result<CUresult, Bypass> {
    obtain_from("cuMemAllocFromPoolAsync", address, size, || Ok(pool), stream, false, || driver.pass())
}

/// The same where each thread has a default stream.
pub(crate) fn allocate_from_per_thread(
    driver: &mut Driver<cuMemAllocFromPoolAsync::Signature>,
    address: *mut CUdeviceptr,
    size: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Result<CUresult, Bypass> {
    obtain_from("cuMemAllocFromPoolAsync", address, size, || Ok(pool), stream, true, || driver.pass())
}

fn obtain_from(
    function: &'static str,
    address: *mut CUdeviceptr,
    size: usize,
    pool: impl FnOnce() -> Result<CUmemoryPool, Bypass>,
    stream: CUstream,
    is_per_thread: bool,
    pass: impl FnOnce() -> CUresult,
) -> Result<CUresult, Bypass> {
    if address.is_null() || size == 0 || size >= ABSURD {
        return Err(Bypass::ForTheDriver);
    }
    let bytes = size.key();
    let mut why = Reason::StreamOrdered;
    let (context, device) = current()?;
    if is_ours(stream, is_per_thread, context)
        && let pool = pool()?
        && let Some(known) = known(pool, device)?
    {
        let order = freeing::order_of(stream, is_per_thread)?;
        let wish = Wish { context, pool: pool.0, size: bytes };
        let mut again = memory(|memory| memory.slabs.again(order, &wish))?;
        if again.is_none() && !known.has_room(bytes) {
            again = behind_another(stream, is_per_thread, &wish)?;
        }
        if let Some(Again { address: found, destroy }) = again {
            freeing::destroy(destroy);
            freeing::forget_settings(found, Some(bytes))?;
            // SAFETY: the program wants its result there.
            unsafe { *address = found };
            return Ok(CUresult::CUDA_SUCCESS);
        }
        if !known.has_room(bytes) {
            // What was freed in a stream's order makes room.
            freeing::wait_for_pending()?;
            if !memory(|memory| memory.slabs.pools.get(pool.0))?.is_some_and(|known| known.has_room(bytes)) {
                return Ok(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            }
        }
        match obtain(size)? {
            Ok(found) => {
                memory(|memory| memory.slabs.pools.took(pool.0, found, bytes))?;
                // SAFETY: the program wants its result there.
                unsafe { *address = found };
                return Ok(CUresult::CUDA_SUCCESS);
            }
            Err(failure) => why = reason(failure),
        }
    }
    let answer = pass();
    if answer.is_success() {
        // SAFETY: the driver has just written there.
        account::lost_range(function, why, unsafe { *address }, size);
    }
    Ok(answer)
}

/// A pool has no room: what was freed in another stream's order, for which this stream then waits, as the driver has it do
/// (`CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES`). The host does not wait.
fn behind_another(stream: CUstream, is_per_thread: bool, wish: &Wish) -> Result<Option<Again>, Bypass> {
    while let Some(asked) = memory(|memory| memory.slabs.elsewhere(wish))? {
        let answer = if is_per_thread {
            driver!(per_thread stream::cuStreamWaitEvent(stream, asked.event, 0))
        } else {
            driver!(stream::cuStreamWaitEvent(stream, asked.event, 0))
        };
        if !answer.is_success() {
            freeing::settle(memory(|memory| memory.slabs.settle(asked, false))?)?;
            return Ok(None);
        }
        let (again, settled) = memory(|memory| memory.slabs.again_elsewhere(asked, wish))?;
        freeing::settle(settled)?;
        if again.is_some() {
            return Ok(again);
        }
    }
    Ok(None)
}

/// Whether memory for this stream can be ours: it is a stream of the current context, `context`, and it is not being captured.
fn is_ours(stream: CUstream, is_per_thread: bool, context: usize) -> bool {
    let mut status: CUstreamCaptureStatus = 0;
    let mut of = CUcontext(context);
    if stream.0 >= FIRST_HANDLE && !driver!(stream::cuStreamGetCtx(stream, &raw mut of)).is_success() {
        return false;
    }
    // A default stream that is being captured is the driver's to refuse.
    let answer = if is_per_thread {
        driver!(per_thread stream::cuStreamIsCapturing(stream, &raw mut status))
    } else {
        driver!(stream::cuStreamIsCapturing(stream, &raw mut status))
    };
    of.0 == context && answer.is_success() && status == 0
}
