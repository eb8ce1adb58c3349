//! Memory that a program maps itself, as vLLM's and PyTorch's allocators do.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{are_attributes, attribute, check, fill, is_filled};
use crate::programs::gpu::GpuError;
use cudarc::driver::sys;
use serde_json::{Value, json};

/// Granularity of mapped memory in bytes.
const PAGE: usize = 2 << 20;

fn properties() -> sys::CUmemAllocationProp {
    let handle_types = sys::CUmemAllocationHandleType(0);
    let location = sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: handle_types,
        location,
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

fn create(size: usize) -> Result<u64, GpuError> {
    let (mut handle, asked) = (0, properties());
    // SAFETY: the result and what is asked for are variables of ours.
    check("cuMemCreate", unsafe { sys::cuMemCreate(&raw mut handle, size, &raw const asked, 0) })?;
    Ok(handle)
}

fn map(address: u64, size: usize, handle: u64) -> Result<(), GpuError> {
    // SAFETY: the driver checks the range.
    check("cuMemMap", unsafe { sys::cuMemMap(address, size, 0, handle, 0) })?;
    allow(address, size)
}

/// Lets the first device read and write a mapped range.
pub(in crate::programs) fn allow(address: u64, size: usize) -> Result<(), GpuError> {
    let access = sys::CUmemAccessDesc {
        location: properties().location,
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: one description is given.
    check("cuMemSetAccess", unsafe { sys::cuMemSetAccess(address, size, &raw const access, 1) })
}

fn unmap(address: u64, size: usize) -> sys::CUresult {
    // SAFETY: the driver checks the range.
    unsafe { sys::cuMemUnmap(address, size) }
}

fn free_addresses(address: u64, size: usize) -> sys::CUresult {
    // SAFETY: the driver checks the range.
    unsafe { sys::cuMemAddressFree(address, size) }
}

fn release(handle: u64) -> sys::CUresult {
    // SAFETY: a handle that is none is a number to the driver, which says so.
    unsafe { sys::cuMemRelease(handle) }
}

/// What the driver says the memory was made for, as bits.
fn handle_types(handle: u64) -> Result<u32, GpuError> {
    let mut said = properties();
    said.requestedHandleTypes = sys::CUmemAllocationHandleType(u32::MAX);
    // SAFETY: the result is a variable of ours.
    let answer = unsafe { sys::cuMemGetAllocationPropertiesFromHandle(&raw mut said, handle) };
    check("cuMemGetAllocationPropertiesFromHandle", answer)?;
    Ok(said.requestedHandleTypes.0)
}

/// New memory at addresses of the driver's choice, without a handle.
pub(in crate::programs) fn map_new(size: usize) -> Result<u64, GpuError> {
    let mut base = 0;
    // SAFETY: the result is a variable of ours.
    check("cuMemAddressReserve", unsafe { sys::cuMemAddressReserve(&raw mut base, size, 0, 0, 0) })?;
    let handle = create(size)?;
    map(base, size, handle)?;
    check("cuMemRelease", release(handle))?;
    Ok(base)
}

/// Maps, sleeps, wakes, and leaves one page mapped.
pub(super) fn work() -> Result<Value, GpuError> {
    let size = 2 * PAGE;
    let mut base = 0;
    // SAFETY: the result is a variable of ours.
    check("cuMemAddressReserve", unsafe { sys::cuMemAddressReserve(&raw mut base, size + PAGE, 0, 0, 0) })?;
    let handle = create(size)?;
    let types = handle_types(handle)?;
    map(base, size, handle)?;
    let types =
        [u64::from(types), attribute(sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, base)];
    fill(base, size, 3)?;
    check("cuMemRelease", release(handle))?;
    let mut again = 0;
    // SAFETY: the result is a variable of ours; the address is one for the driver.
    let retained = unsafe {
        sys::cuMemRetainAllocationHandle(
            &raw mut again,
            std::ptr::with_exposed_provenance_mut(base.try_into().unwrap_or(0)),
        )
    };
    check("cuMemRetainAllocationHandle", retained)?;
    check("cuMemRelease", release(again))?;
    let mut is_intact = is_filled(base, size, 3)?;
    // The driver tells of the whole reservation, and frees neither a part of one nor what is mapped.
    let is_whole = are_attributes(base, size + PAGE);
    let kept = [PAGE, size, size + PAGE].map(|bytes| free_addresses(base, bytes) as u32);
    let partly = unmap(base, PAGE) as u32;
    is_intact &= is_filled(base, size, 3)?;
    // To sleep: nothing holds the memory any longer. To wake: new memory at the same address.
    check("cuMemUnmap", unmap(base, size))?;
    let handle = create(size)?;
    map(base, size, handle)?;
    fill(base, size, 4)?;
    is_intact &= is_filled(base, size, 4)?;
    check("cuMemUnmap", unmap(base, size))?;
    check("cuMemRelease", release(handle))?;
    let twice = release(handle) as u32;
    // What stays: one page, without a handle.
    let handle = create(PAGE)?;
    map(base + size as u64, PAGE, handle)?;
    check("cuMemRelease", release(handle))?;
    let mut small = 0;
    // SAFETY: the result is a variable of ours.
    check("cuMemAddressReserve", unsafe { sys::cuMemAddressReserve(&raw mut small, PAGE, 0, 0, 0) })?;
    check("cuMemAddressFree", free_addresses(small, PAGE))?;
    // SAFETY: as above.
    let odd = [0, PAGE + 5].map(|bytes| unsafe { sys::cuMemAddressReserve(&raw mut small, bytes, 0, 0, 0) } as u32);
    Ok(json!({
        "types": types, "is_intact": is_intact, "partly": partly, "twice": twice, "is_whole": is_whole, "kept": kept, "odd": odd,
    }))
}
