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
    if is_ours(stream)?
        && let pool = pool()?
        && let Some(known) = known(pool, device)?
    {
        let order = freeing::order_of(stream, is_per_thread, context);
        if let Some((found, event)) = memory(|memory| memory.slabs.again(order, context, pool.0, bytes))? {
            let _gone = driver!(event::cuEventDestroy_v2(event));
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

/// Whether memory for this stream can be ours: it is a stream of the current context, and it is not being captured.
fn is_ours(stream: CUstream) -> Result<bool, Bypass> {
    let (context, _) = current()?;
    let mut status: CUstreamCaptureStatus = 0;
    let mut of = CUcontext(context);
    if stream.0 >= FIRST_HANDLE && !driver!(stream::cuStreamGetCtx(stream, &raw mut of)).is_success() {
        return Ok(false);
    }
    // A default stream that is being captured is the driver's to refuse.
    let is_capturing = !driver!(stream::cuStreamIsCapturing(stream, &raw mut status)).is_success() || status != 0;
    Ok(of.0 == context && !is_capturing)
}
