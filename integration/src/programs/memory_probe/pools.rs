//! Memory pools: the default one by its handle, and one of the program's own with a bound.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{check, fill, is_filled};
use crate::programs::gpu::GpuError;
use cudarc::driver::sys::{self, CUmemPool_attribute_enum as Attribute};
use serde_json::{Value, json};
use std::ffi::c_void;

/// Bytes of a piece, and the most that the own pool may have.
const SIZE: usize = 3 << 20;
const MOST: usize = 64 << 20;
/// What the own pool is told to keep, in bytes.
const THRESHOLD: u64 = 48 << 20;

/// The default pool of the first device.
pub(in crate::programs) fn default_pool() -> Result<sys::CUmemoryPool, GpuError> {
    let mut pool = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuDeviceGetDefaultMemPool", unsafe { sys::cuDeviceGetDefaultMemPool(&raw mut pool, 0) })?;
    Ok(pool)
}

/// The pool that the first device allocates from.
pub(in crate::programs) fn current_pool() -> Result<sys::CUmemoryPool, GpuError> {
    let mut pool = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuDeviceGetMemPool", unsafe { sys::cuDeviceGetMemPool(&raw mut pool, 0) })?;
    Ok(pool)
}

/// A pool of the program's own on the first device.
pub(in crate::programs) fn own_pool() -> Result<sys::CUmemoryPool, GpuError> {
    let mut pool = std::ptr::null_mut();
    // Pinned memory that is not exported, of the first device, with a bound.
    let mut properties = [0_u64; size_of::<sys::CUmemPoolProps>() / 8];
    (properties[0], properties[1], properties[3]) = (1, 1, MOST as u64);
    // SAFETY: the result is a variable of ours, and the properties are as long as the header's.
    let answer = unsafe { sys::cuMemPoolCreate(&raw mut pool, properties.as_ptr().cast()) };
    check("cuMemPoolCreate", answer)?;
    Ok(pool)
}

/// Allocates from a pool in the order of the default stream.
pub(in crate::programs) fn allocate_from(pool: sys::CUmemoryPool, size: usize) -> Result<u64, GpuError> {
    let mut address = 0;
    // SAFETY: the result is a variable of ours.
    let answer = unsafe { sys::cuMemAllocFromPoolAsync(&raw mut address, size, pool, std::ptr::null_mut()) };
    check("cuMemAllocFromPoolAsync", answer)?;
    Ok(address)
}

/// Frees in the order of the default stream, and waits for that.
pub(in crate::programs) fn free_and_wait(address: u64) -> Result<(), GpuError> {
    // SAFETY: the driver says if it is no memory.
    check("cuMemFreeAsync", unsafe { sys::cuMemFreeAsync(address, std::ptr::null_mut()) })?;
    // SAFETY: takes nothing.
    check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
}

/// An attribute of a pool.
pub(in crate::programs) fn attribute(pool: sys::CUmemoryPool, attribute: Attribute) -> Result<u64, GpuError> {
    let mut value = 0_u64;
    let place = (&raw mut value).cast::<c_void>();
    // SAFETY: the variable has room for the attribute, which has 32 or 64 bits.
    check("cuMemPoolGetAttribute", unsafe { sys::cuMemPoolGetAttribute(pool, attribute, place) })?;
    Ok(value)
}

/// Sets an attribute.
pub(in crate::programs) fn set(pool: sys::CUmemoryPool, attribute: Attribute, value: u64) -> Result<(), GpuError> {
    let mut value = value;
    let place = (&raw mut value).cast::<c_void>();
    // SAFETY: as above.
    check("cuMemPoolSetAttribute", unsafe { sys::cuMemPoolSetAttribute(pool, attribute, place) })
}

/// Used now and at most beyond what was used `before`, and whether as much is reserved.
fn usage(pool: sys::CUmemoryPool, before: u64) -> Result<Value, GpuError> {
    let used = attribute(pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?.saturating_sub(before);
    let high = attribute(pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?.saturating_sub(before);
    let reserved = attribute(pool, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
    Ok(json!([used, high, reserved >= used]))
}

/// Allocates from both, and asks everything.
pub(super) fn work() -> Result<Value, GpuError> {
    let (default, own) = (default_pool()?, own_pool()?);
    let mut facts = Vec::new();
    for pool in [default, own] {
        // What was used at most begins anew. The driver counts memory of a pool that was freed by `cuMemFree` as used for
        // ever (measured, driver 580): what is so before is not counted.
        // SAFETY: takes nothing.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })?;
        set(pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)?;
        let already = attribute(pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
        let before = usage(pool, already)?;
        let (first, second) = (allocate_from(pool, SIZE)?, allocate_from(pool, SIZE)?);
        fill(first, SIZE, 3)?;
        fill(second, SIZE, 4)?;
        let both = usage(pool, already)?;
        let are_intact = is_filled(first, SIZE, 3)? && is_filled(second, SIZE, 4)?;
        free_and_wait(first)?;
        let one = usage(pool, already)?;
        set(pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)?;
        let anew = usage(pool, already)?;
        free_and_wait(second)?;
        facts.push(json!([before, both, are_intact, one, anew]));
    }
    set(own, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, THRESHOLD)?;
    set(own, Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0)?;
    let threshold = attribute(own, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)?;
    let too_much = allocate_from(own, MOST + SIZE).map_or_else(|error| error.code, |_| 0);
    // SAFETY: it is a pool of the device.
    check("cuDeviceSetMemPool", unsafe { sys::cuDeviceSetMemPool(0, own) })?;
    let is_current = current_pool()? == own;
    let mut address = 0;
    // SAFETY: the result is a variable of ours.
    check("cuMemAllocAsync", unsafe { sys::cuMemAllocAsync(&raw mut address, SIZE, std::ptr::null_mut()) })?;
    let of_own = usage(own, 0)?;
    // SAFETY: it is ours; what was allocated from it stays.
    check("cuMemPoolDestroy", unsafe { sys::cuMemPoolDestroy(own) })?;
    fill(address, SIZE, 5)?;
    let is_there = is_filled(address, SIZE, 5)?;
    free_and_wait(address)?;
    let is_default_again = current_pool()? == default;
    // SAFETY: the driver refuses it.
    let refused = unsafe { sys::cuMemPoolDestroy(default) } as u32;
    Ok(json!({
        "usage": facts, "threshold": threshold, "too_much": too_much, "is_current": is_current, "of_own": of_own,
        "is_there": is_there, "is_default_again": is_default_again, "refused": refused,
    }))
}
