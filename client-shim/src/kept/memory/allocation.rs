//! `cuMemAlloc` and `cuMemAllocPitch`: exportable memory in the place of the driver's.
#![expect(unsafe_code, reason = "calls the driver and writes its result parameters")]

use std::ffi::c_uint;

use super::{
    extents::GRAIN,
    freeing,
    region::{self, Failure, Region},
};
use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::memory::{cuMemAlloc_v2, cuMemAllocPitch_v2},
        result::CUresult,
        types::{CUdevice, CUdeviceptr},
    },
    kept::{
        account::{self, Reason},
        memory,
        objects::current::current,
    },
    process::failpoint::reached,
};

/// Alignment of the rows of a pitched allocation, in bytes; what drivers give on GPUs of today.
const PITCH: usize = 512;
/// Sizes from which on the driver alone says no, in bytes: more than a process has addresses.
pub(super) const ABSURD: usize = 1 << 46;

/// Logic of `cuMemAlloc`.
pub(crate) fn plain(
    driver: &mut Driver<cuMemAlloc_v2::Signature>,
    address: *mut CUdeviceptr,
    size: usize,
) -> Result<CUresult, Bypass> {
    if address.is_null() || size == 0 || size >= ABSURD {
        return Err(Bypass::ForTheDriver);
    }
    match obtain(size)? {
        Ok(found) => {
            // SAFETY: the program wants its result there.
            unsafe { *address = found };
            Ok(CUresult::CUDA_SUCCESS)
        }
        Err(failure) => {
            let answer = driver.pass();
            if answer.is_success() {
                // SAFETY: the driver has just written there.
                account::lost_range("cuMemAlloc", reason(failure), unsafe { *address }, size);
            }
            Ok(answer)
        }
    }
}

/// Logic of `cuMemAllocPitch`.
pub(crate) fn pitched(
    driver: &mut Driver<cuMemAllocPitch_v2::Signature>,
    address: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> Result<CUresult, Bypass> {
    let row = width.checked_next_multiple_of(PITCH).ok_or(Bypass::ForTheDriver)?;
    let size = row.checked_mul(height).filter(|size| (1..ABSURD).contains(size)).ok_or(Bypass::ForTheDriver)?;
    if address.is_null() || pitch.is_null() || !matches!(element, 4 | 8 | 16) {
        return Err(Bypass::ForTheDriver);
    }
    match obtain(size)? {
        Ok(found) => {
            // SAFETY: the program wants its result there.
            unsafe { *address = found };
            // SAFETY: as above.
            unsafe { *pitch = row };
            Ok(CUresult::CUDA_SUCCESS)
        }
        Err(failure) => {
            let answer = driver.pass();
            if answer.is_success() {
                // SAFETY: the driver has just written there.
                let found = unsafe { *address };
                account::lost_range("cuMemAllocPitch", reason(failure), found, size);
            }
            Ok(answer)
        }
    }
}

pub(super) fn reason(failure: Failure) -> Reason {
    match failure {
        Failure::OutOfMemory => Reason::NoMemoryInPages,
        Failure::Driver(_) => Reason::NotExportable,
        Failure::Descriptor(_) => Reason::NoDescriptor,
    }
}

/// Memory of ours for a request.
pub(super) fn obtain(size: usize) -> Result<Result<u64, Failure>, Bypass> {
    obtain_aligned(size, GRAIN)
}

/// The same at a multiple of `alignment`, which divides [`PAGE`](region::PAGE).
pub(super) fn obtain_aligned(size: usize, alignment: u64) -> Result<Result<u64, Failure>, Bypass> {
    let size = u64::try_from(size).map_err(|_| Bypass::ForTheDriver)?;
    let (context, device) = current()?;
    freeing::reclaim()?;
    if let Some(found) = memory(|memory| memory.slabs.place(device, context, size, alignment))? {
        return Ok(Ok(found));
    }
    let (wanted, least) = memory(|memory| memory.slabs.slab_size(device, size))?.ok_or(Bypass::ForTheDriver)?;
    let made = match make(device, wanted)? {
        Err(Failure::OutOfMemory) => {
            // Less will do, and what is empty, or will be when it is waited for, is given back for it.
            freeing::make_room(device)?;
            make(device, least)?
        }
        made => made,
    };
    let region = match made {
        Ok(region) => region,
        Err(failure) => return Ok(Err(failure)),
    };
    let (base, length) = (region.base, region.size);
    let (found, peers) = memory(|memory| (memory.slabs.add(region, context, size), memory.slabs.peers(device)))?;
    reached("memory-noted");
    // A peer may have come while the slab was made. If it is refused now, its own access would have been.
    let _refused = if peers.is_empty() { Ok(()) } else { region::allow(base, length, &peers) };
    Ok(Ok(found))
}

fn make(device: CUdevice, size: u64) -> Result<Result<Region, Failure>, Bypass> {
    let (address, peers) = memory(|memory| (memory.slabs.claim(device, size), memory.slabs.peers(device)))?;
    let made = freeing::apart(|| Region::create(device, size, address, &peers));
    if made.as_ref().map_or(true, |region| region.base != address) {
        memory(|memory| memory.slabs.unclaim(address))?;
    }
    Ok(made)
}
