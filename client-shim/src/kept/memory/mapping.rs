//! The program's own virtual memory management, passed on and noted.
//!
//! Allocators forget to ask for exportable memory, since they do not export it; so that is asked for here, and hidden
//! from the program. The descriptor is exported at once: when it is needed, the driver no longer answers.
#![expect(unsafe_code, reason = "calls the driver and reads and writes through the program's pointers")]

use std::ffi::{c_int, c_ulonglong, c_void};

use super::{
    arena::GRANULE,
    freeing,
    own::{Multicast, Own, Reservation},
    region::{DESCRIPTOR, DEVICE, PAGE, PINNED},
};
use crate::process::descriptors::Held;
use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::mapping::{
            cuMemAddressFree, cuMemAddressReserve, cuMemCreate, cuMemRelease, cuMemRetainAllocationHandle, cuMemUnmap,
        },
        result::CUresult,
        types::{
            CUdevice, CUdeviceptr, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationProp,
            CUmemGenericAllocationHandle, Key as _,
        },
    },
    kept::{
        account::{self, Reason},
        is_on, memory,
    },
    process::settings::{self, succession},
};

/// How much larger a range is made that the driver has not put where it was wished.
const MORE: [usize; 3] = [32 << 20, 224 << 20, 992 << 20];
/// Memory of another process does not say on which device it is.
const UNKNOWN_DEVICE: CUdevice = -1;

pub(super) fn own<T>(work: impl FnOnce(&mut Own) -> T) -> Result<T, Bypass> {
    memory(|memory| work(&mut memory.own))
}

fn bytes(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

/// Logic of `cuMemCreate`.
pub(crate) fn create(
    driver: &mut Driver<cuMemCreate::Signature>,
    handle: *mut CUmemGenericAllocationHandle,
    size: usize,
    properties: *const CUmemAllocationProp,
    flags: c_ulonglong,
) -> Result<CUresult, Bypass> {
    if handle.is_null() || properties.is_null() || !is_on() {
        return Err(Bypass::ForTheDriver);
    }
    // SAFETY: the program gives the properties of what it wants.
    let asked = unsafe { properties.read_unaligned() };
    let is_for_a_device = asked.kind == PINNED && asked.location.kind == DEVICE;
    let is_exportable_by_us = is_for_a_device && asked.handle_types & DESCRIPTOR == 0;
    if is_for_a_device {
        let wanted = CUmemAllocationProp { handle_types: asked.handle_types | DESCRIPTOR, ..asked };
        let mut answer = driver!(mapping::cuMemCreate(handle, size, &raw const wanted, flags));
        if answer == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            // What the program has just released may still be in the vault, and what pools keep is needed now.
            freeing::make_room(asked.location.id)?;
            answer = driver!(mapping::cuMemCreate(handle, size, &raw const wanted, flags));
        }
        if answer.is_success() {
            // SAFETY: the driver has just written there.
            created(unsafe { *handle }, size, asked.location.id, is_exportable_by_us)?;
            return Ok(answer);
        }
        // The program has asked for just that.
        if !is_exportable_by_us {
            return Ok(answer);
        }
    }
    let answer = driver.pass();
    if answer.is_success() {
        // SAFETY: the driver has just written there.
        let handle = unsafe { *handle };
        let reason = if is_for_a_device { Reason::NotExportable } else { Reason::NotOnADevice };
        own(|own| own.create(handle.key(), bytes(size), asked.location.id, None, false))?;
        account::passed("cuMemCreate", reason, bytes(size));
    }
    Ok(answer)
}

fn created(
    handle: CUmemGenericAllocationHandle,
    size: usize,
    device: CUdevice,
    is_exportable_by_us: bool,
) -> Result<(), Bypass> {
    let mut descriptor: c_int = -1;
    let into = (&raw mut descriptor).cast();
    let is_exported = driver!(mapping::cuMemExportToShareableHandle(into, handle, DESCRIPTOR, 0)).is_success();
    let held = is_exported.then(|| Held::take(descriptor).ok()).flatten();
    if held.is_none() {
        let reason = if is_exported { Reason::NoDescriptor } else { Reason::NotExportable };
        account::passed("cuMemCreate", reason, bytes(size));
    }
    own(|own| own.create(handle.key(), bytes(size), device, held, is_exportable_by_us))
}

/// After `cuMemImportFromShareableHandle`: memory of another process is kept by a copy of the descriptor it came by.
pub(crate) fn import(
    handle: *mut CUmemGenericAllocationHandle,
    from: *mut c_void,
    kind: CUmemAllocationHandleType,
) -> Result<(), Bypass> {
    if !handle.is_null() {
        let number = c_int::try_from(from.addr()).ok().filter(|_| kind == DESCRIPTOR);
        let held = number.and_then(|number| Held::copy(number).ok());
        if held.is_none() {
            let reason = if number.is_some() { Reason::NoDescriptor } else { Reason::NotByDescriptor };
            account::passed("cuMemImportFromShareableHandle", reason, 0);
        }
        // SAFETY: the driver has just written there.
        let handle = unsafe { *handle };
        own(|own| own.create(handle.key(), 0, UNKNOWN_DEVICE, held, false))?;
    }
    Ok(())
}

/// After `cuMulticastCreate`. What is mapped of it is in a recovery's way, too: a mapping of something that is no allocation.
pub(crate) fn multicast(
    function: &'static str,
    reason: Reason,
    handle: CUmemGenericAllocationHandle,
) -> Result<(), Bypass> {
    account::counted(function, reason, handle.key());
    own(|own| own.hold_multicast(handle.key(), function))
}

/// After a call that uses a handle as a multicast object's. Of one that was imported it is the first sign: the driver takes any
/// handle in the same function and says of none what it is.
pub(crate) fn used_as_multicast(handle: CUmemGenericAllocationHandle) -> Result<(), Bypass> {
    const BY: &str = "cuMemImportFromShareableHandle";
    if own(|own| own.is_multicast(handle.key(), BY))? {
        account::counted(BY, Reason::Multicast, handle.key());
    }
    Ok(())
}

/// The handle of a multicast object is released. It is forgotten first, since another one may get its handle at once.
fn release_multicast(
    driver: &mut Driver<cuMemRelease::Signature>,
    handle: CUmemGenericAllocationHandle,
    left: Multicast,
) -> Result<CUresult, Bypass> {
    let is_last = left.references == 0;
    if is_last {
        account::gone(handle.key());
    }
    let answer = driver.pass();
    if !answer.is_success() {
        if is_last {
            account::counted(left.by, Reason::Multicast, handle.key());
        }
        own(|own| own.hold_multicast(handle.key(), left.by))?;
    }
    Ok(answer)
}

/// Logic of `cuMemRelease`.
pub(crate) fn release(
    driver: &mut Driver<cuMemRelease::Signature>,
    handle: CUmemGenericAllocationHandle,
) -> Result<CUresult, Bypass> {
    if let Some(left) = own(|own| own.release_multicast(handle.key()))? {
        return release_multicast(driver, handle, left);
    }
    let released = own(|own| own.release(handle.key()))?;
    let answer = driver.pass();
    if !answer.is_success() {
        own(|own| own.unrelease(released))?;
    }
    Ok(answer)
}

/// Logic of `cuMemRetainAllocationHandle`. Memory of `cuMemAlloc` has no handle for a program, whether this one has allocated
/// it or opened it of another one: by that of a slab a process would have another block's memory.
pub(crate) fn retain(
    driver: &mut Driver<cuMemRetainAllocationHandle::Signature>,
    handle: *mut CUmemGenericAllocationHandle,
    address: *mut c_void,
) -> Result<CUresult, Bypass> {
    let at = bytes(address.addr());
    if memory(|memory| memory.slabs.has(at) || memory.ipc.around(at).is_some())? {
        return Ok(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let answer = driver.pass();
    if answer.is_success() && !handle.is_null() {
        // SAFETY: the driver has just written there.
        let handle = unsafe { *handle };
        if own(|own| own.is_new_multicast(handle.key(), at))? {
            multicast("cuMemRetainAllocationHandle", Reason::Multicast, handle)?;
        } else {
            own(|own| own.retain(handle.key(), at))?;
        }
    }
    Ok(answer)
}

/// After `cuMemGetAllocationPropertiesFromHandle`: what was added is hidden.
pub(crate) fn properties(
    properties: *mut CUmemAllocationProp,
    handle: CUmemGenericAllocationHandle,
) -> Result<(), Bypass> {
    if !properties.is_null() && own(|own| own.is_exportable_by_us(handle.key()))? {
        // SAFETY: the driver has just written there.
        let mut said = unsafe { properties.read_unaligned() };
        said.handle_types &= !DESCRIPTOR;
        // SAFETY: as above.
        unsafe { properties.write_unaligned(said) };
    }
    Ok(())
}

/// After `cuMemMap`.
pub(crate) fn map(
    address: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
) -> Result<(), Bypass> {
    if !own(|own| own.map(address, bytes(size), bytes(offset), handle.key()))? {
        account::passed("cuMemMap", Reason::UnknownObject, bytes(size));
    }
    Ok(())
}

/// Logic of `cuMemUnmap`.
pub(crate) fn unmap(
    driver: &mut Driver<cuMemUnmap::Signature>,
    address: CUdeviceptr,
    size: usize,
) -> Result<CUresult, Bypass> {
    let unmapped = own(|own| own.unmap(address, bytes(size)))?;
    let answer = driver.pass();
    if !answer.is_success() {
        own(|own| own.remap(unmapped))?;
    }
    Ok(answer)
}

/// After `cuMemSetAccess`.
pub(crate) fn allow(
    address: CUdeviceptr,
    size: usize,
    accesses: *const CUmemAccessDesc,
    count: usize,
) -> Result<(), Bypass> {
    if !accesses.is_null() {
        // SAFETY: the driver has just read so many.
        let wanted: Vec<_> = (0..count).map(|at| unsafe { accesses.wrapping_add(at).read_unaligned() }).collect();
        own(|own| own.allow(address, bytes(size), &wanted))?;
    }
    Ok(())
}

/// Logic of `cuMemAddressReserve`: a program that is to be recovered or succeeded gets addresses that can be had again.
pub(crate) fn reserve(
    driver: &mut Driver<cuMemAddressReserve::Signature>,
    address: *mut CUdeviceptr,
    size: usize,
    alignment: usize,
    wanted: CUdeviceptr,
    flags: c_ulonglong,
) -> Result<CUresult, Bypass> {
    let (asked, wish) = place(size, alignment, wanted)?;
    // SAFETY: the program's call with the program's arguments, or with another size and wish.
    let answer = driver.call(|function| unsafe { function(address, asked, alignment, wish, flags) });
    if answer.is_success() && !address.is_null() {
        // SAFETY: the driver has just written there.
        let given = unsafe { *address };
        let is_elsewhere = wanted == 0 && wish != 0 && given != wish;
        let (given, asked) = if is_elsewhere { larger(given, asked, alignment, flags)? } else { (given, asked) };
        // SAFETY: as above.
        unsafe { *address = given };
        own(|own| own.reserve(given, Reservation { size: bytes(size), reserved: bytes(asked) }))?;
    }
    Ok(answer)
}

/// A range in place of one that the driver has given elsewhere than wished: it puts what is small where it has room
/// already, which no other copy has there (seen with NCCL, whose 32 MiB lay so on an H100). Where even a large one is not
/// given as wished the first one stays.
fn larger(
    first: CUdeviceptr,
    asked: usize,
    alignment: usize,
    flags: c_ulonglong,
) -> Result<(CUdeviceptr, usize), Bypass> {
    let before = asked;
    for more in MORE {
        let (asked, wish) = place(before.saturating_add(more), alignment, 0)?;
        let mut given = 0;
        let answer = driver!(mapping::cuMemAddressReserve(&raw mut given, asked, alignment, wish, flags));
        if !answer.is_success() {
            break;
        }
        if wish != 0 && given == wish {
            let _left = driver!(mapping::cuMemAddressFree(first, before));
            return Ok((given, asked));
        }
        let _left = driver!(mapping::cuMemAddressFree(given, asked));
    }
    Ok((first, asked))
}

/// How many bytes to reserve, and where. What the driver would refuse is not changed.
pub(super) fn place(size: usize, alignment: usize, wanted: CUdeviceptr) -> Result<(usize, CUdeviceptr), Bypass> {
    if !settings::is_replaying() && !succession::is_named() {
        return Ok((size, wanted));
    }
    let (length, alignment) = (bytes(size), bytes(alignment).max(GRANULE));
    let is_sound = length > 0 && length.is_multiple_of(PAGE) && alignment.is_power_of_two();
    let rounded = length.checked_next_multiple_of(GRANULE).filter(|_| is_sound);
    let Some((rounded, asked)) = rounded.and_then(|rounded| Some((rounded, usize::try_from(rounded).ok()?))) else {
        return Ok((size, wanted));
    };
    let wish = if wanted == 0 { own(|own| own.place(rounded, alignment, succession::lane()))? } else { wanted };
    Ok((asked, wish))
}

/// Logic of `cuMemAddressFree`.
pub(crate) fn unreserve(
    driver: &mut Driver<cuMemAddressFree::Signature>,
    address: CUdeviceptr,
    size: usize,
) -> Result<CUresult, Bypass> {
    let asked = own(|own| own.reservation(address))?;
    let size = match asked.filter(|found| found.reserved != found.size) {
        None => size,
        Some(found) if found.size == bytes(size) => usize::try_from(found.reserved).unwrap_or(size),
        // What the driver says to a part of a reservation, or to more than it.
        Some(_) => return Ok(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    let known = own(|own| own.unreserve(address))?;
    // SAFETY: the program's call with the program's address, and as many bytes as were reserved there.
    let answer = driver.call(|function| unsafe { function(address, size) });
    if let Some(known) = known.filter(|_| !answer.is_success()) {
        own(|own| own.reserve(address, known))?;
    }
    Ok(answer)
}
