//! Stream-ordered memory.
//!
//! What a program allocates in a stream's order from the pool that a device has by default is made like all other
//! memory here: it can be used at once, which is earlier than asked for, and it is given out again when an event that
//! was recorded at its free has come. Pools of the program's own, and graphs that allocate, stay the driver's.
#![expect(unsafe_code, reason = "calls the driver and writes its result parameters")]

use super::{
    allocation::{ABSURD, obtain, reason},
    region::{self, DEVICE},
};
use crate::cuda::{
    call::{Bypass, Driver},
    functions::pool::{cuMemAllocAsync, cuMemPoolSetAccess},
    result::CUresult,
    types::{CUcontext, CUdevice, CUdeviceptr, CUmemAccessDesc, CUmemoryPool, CUstream, CUstreamCaptureStatus},
};
use crate::kept::{
    account::{self, Reason},
    memory,
    objects::current::current,
};

/// Streams below are names for the default stream and not handles: `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`.
const FIRST_HANDLE: usize = 3;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;

/// Logic of `cuMemAllocAsync`.
pub(crate) fn allocate(
    driver: &mut Driver<cuMemAllocAsync::Signature>,
    address: *mut CUdeviceptr,
    size: usize,
    stream: CUstream,
) -> Result<CUresult, Bypass> {
    if address.is_null() || size == 0 || size >= ABSURD {
        return Err(Bypass::ForTheDriver);
    }
    let why = if is_ours(stream)? {
        match obtain(size)? {
            Ok(found) => {
                // SAFETY: the program wants its result there.
                unsafe { *address = found };
                return Ok(CUresult::CUDA_SUCCESS);
            }
            Err(failure) => reason(failure),
        }
    } else {
        Reason::StreamOrdered
    };
    let answer = driver.pass();
    if answer.is_success() {
        // SAFETY: the driver has just written there.
        account::lost_range("cuMemAllocAsync", why, unsafe { *address }, size);
    }
    Ok(answer)
}

/// Whether memory for this stream can be ours: it is a stream of the current context, it is not being captured, and the
/// device's pool is the default one, of which the program expects nothing special.
fn is_ours(stream: CUstream) -> Result<bool, Bypass> {
    let (context, device) = current()?;
    let mut status: CUstreamCaptureStatus = 0;
    let mut of = CUcontext(context);
    if stream.0 >= FIRST_HANDLE && !driver!(stream::cuStreamGetCtx(stream, &raw mut of)).is_success() {
        return Ok(false);
    }
    // A default stream that is being captured is the driver's to refuse.
    let is_capturing = !driver!(stream::cuStreamIsCapturing(stream, &raw mut status)).is_success() || status != 0;
    Ok(of.0 == context && !is_capturing && has_default_pool(device))
}

fn has_default_pool(device: CUdevice) -> bool {
    let mut present = CUmemoryPool(0);
    driver!(pool::cuDeviceGetMemPool(&raw mut present, device)).is_success() && default_pool(device) == Some(present)
}

fn default_pool(device: CUdevice) -> Option<CUmemoryPool> {
    let mut pool = CUmemoryPool(0);
    driver!(pool::cuDeviceGetDefaultMemPool(&raw mut pool, device)).is_success().then_some(pool)
}

/// Logic of `cuMemPoolSetAccess`: who may use a default pool may use what is here in its place.
pub(crate) fn allow(
    driver: &mut Driver<cuMemPoolSetAccess::Signature>,
    pool: CUmemoryPool,
    accesses: *const CUmemAccessDesc,
    count: usize,
) -> Result<CUresult, Bypass> {
    let answer = driver.pass();
    let mut devices = 0;
    if !answer.is_success() || !driver!(query::cuDeviceGetCount(&raw mut devices)).is_success() {
        return Ok(answer);
    }
    let Some(owner) = (0..devices).find(|device| default_pool(*device) == Some(pool)) else { return Ok(answer) };
    for index in 0..count {
        // SAFETY: the driver has just read so many.
        let access = unsafe { accesses.wrapping_add(index).read_unaligned() };
        if access.location.kind == DEVICE && access.flags == READ_WRITE && access.location.id != owner {
            for (base, size) in memory(|memory| memory.slabs.add_peer(owner, access.location.id))? {
                // What is refused here the program finds out as it would with the driver's memory: by a fault.
                let _refused = region::allow(base, size, &[access.location.id]);
            }
        }
    }
    Ok(answer)
}
