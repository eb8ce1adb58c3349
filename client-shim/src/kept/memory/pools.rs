//! Memory pools, as far as a program makes and sets them: passed on and noted.
//!
//! Memory of a device's default pool and of the program's own pools is ours ([`stream_ordered`](super::stream_ordered)).
#![expect(unsafe_code, reason = "calls the driver, and reads and writes through the program's pointers")]

pub(crate) mod known;

use std::ffi::c_void;

use super::{
    Memory, freeing,
    region::{self, DEVICE, PINNED},
};
use crate::cuda::{
    call::{Bypass, Driver},
    functions::pool::cuMemPoolDestroy,
    result::CUresult,
    types::{
        CUdevice, CUmemAccessDesc, CUmemAllocationType, CUmemLocation, CUmemPool_attribute, CUmemPoolProps,
        CUmemoryPool, Key as _,
    },
};
use crate::kept::{
    account::{self, Reason},
    memory,
    objects::{
        destroyed,
        recipes::{Recipe, Setting},
    },
    recipes,
};
use crate::process::settings;
use known::Pool;

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`: this and those before it are set, those behind it are counts.
const THRESHOLD: CUmemPool_attribute = 4;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`, `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`, and the highest of each.
const RESERVED: CUmemPool_attribute = 5;
const MOST_RESERVED: CUmemPool_attribute = 6;
const USED: CUmemPool_attribute = 7;
const MOST_USED: CUmemPool_attribute = 8;

/// `CUmemPoolProps`, of every release alike.
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    kind: u32,
    handle_types: u32,
    location: CUmemLocation,
    windows: usize,
    most: u64,
    more: [u64; 7],
}

/// What is known of a pool from which memory of this device can be ours. The default one is known when it is met.
pub(super) fn known(pool: CUmemoryPool, device: CUdevice) -> Result<Option<Pool>, Bypass> {
    let mut found = memory(|memory| memory.slabs.pools.get(pool.0))?;
    if found.is_none() && default_pool(device) == Some(pool) {
        know(pool, device)?;
        found = memory(|memory| memory.slabs.pools.get(pool.0))?;
    }
    Ok(found.filter(|found| found.device == device))
}

fn default_pool(device: CUdevice) -> Option<CUmemoryPool> {
    let mut pool = CUmemoryPool(0);
    driver!(pool::cuDeviceGetDefaultMemPool(&raw mut pool, device)).is_success().then_some(pool)
}

/// A device's default pool is known from now on.
fn know(pool: CUmemoryPool, device: CUdevice) -> Result<(), Bypass> {
    memory(|memory| memory.slabs.pools.know(pool.0, device, 0))?;
    if settings::is_recording() {
        recipes(|recipes| recipes.keep_first(pool.0, || Recipe::Pool { device, properties: None }))?;
    }
    Ok(())
}

/// After a function that tells a device's pool: the program has its handle now.
pub(crate) fn told(pool: CUmemoryPool, device: CUdevice) -> Result<(), Bypass> {
    if memory(|memory| memory.slabs.pools.get(pool.0))?.is_none() && default_pool(device) == Some(pool) {
        know(pool, device)?;
    }
    Ok(())
}

/// A device's pinned memory, of which alone pools are kept.
fn device_of(location: *const CUmemLocation, kind: CUmemAllocationType) -> Option<CUdevice> {
    // SAFETY: the driver has just read it.
    let location = (!location.is_null()).then(|| unsafe { location.read_unaligned() });
    location.filter(|location| location.kind == DEVICE && kind == PINNED).map(|location| location.id)
}

/// After a function that tells a place's pool.
pub(crate) fn told_of(
    function: &'static str,
    pool: CUmemoryPool,
    location: *const CUmemLocation,
    kind: CUmemAllocationType,
) -> Result<(), Bypass> {
    match device_of(location, kind) {
        Some(device) => told(pool, device)?,
        None => account::counted(function, Reason::Pool, pool.key()),
    }
    Ok(())
}

/// After `cuMemPoolCreate`: a pool is kept unless its memory is the host's, or is shared with other processes.
pub(crate) fn created(
    function: &'static str,
    pool: CUmemoryPool,
    properties: *const CUmemPoolProps,
) -> Result<(), Bypass> {
    // SAFETY: the driver has just read it.
    let given = unsafe { properties.cast::<Properties>().read_unaligned() };
    if (given.kind, given.handle_types, given.location.kind) != (PINNED, 0, DEVICE) {
        account::counted(function, Reason::Pool, pool.key());
        return Ok(());
    }
    let device = given.location.id;
    memory(|memory| memory.slabs.pools.know(pool.0, device, given.most))?;
    if settings::is_recording() {
        // SAFETY: as above.
        let words = unsafe { properties.cast::<[u64; 11]>().read_unaligned() };
        recipes(|recipes| recipes.keep(pool.0, Recipe::Pool { device, properties: Some(words) }))?;
    }
    Ok(())
}

/// Logic of `cuMemPoolDestroy`.
pub(crate) fn destroy(
    driver: &mut Driver<cuMemPoolDestroy::Signature>,
    pool: CUmemoryPool,
) -> Result<CUresult, Bypass> {
    let known = memory(|memory| memory.slabs.pools.forget(pool.0))?;
    let answer = if settings::is_recording() { destroyed(pool.0, || driver.pass())? } else { driver.pass() };
    match known {
        Some(known) if answer.is_success() => {
            let emptied = memory(|memory| memory.slabs.take_empty(known.device, 0))?;
            emptied.into_iter().try_for_each(freeing::give_back)?;
        }
        Some(known) => memory(|memory| memory.slabs.pools.restore(pool.0, known))?,
        None => {}
    }
    Ok(answer)
}

/// After `cuDeviceSetMemPool`.
pub(crate) fn chosen(device: CUdevice, pool: CUmemoryPool) -> Result<(), Bypass> {
    told(pool, device)?;
    if settings::is_recording() {
        recipes(|recipes| recipes.set_alone(pool.0, Setting::PoolOfDevice(device), 1))?;
    }
    Ok(())
}

/// After `cuMemSetMemPool`.
pub(crate) fn chosen_for(
    function: &'static str,
    location: *const CUmemLocation,
    kind: CUmemAllocationType,
    pool: CUmemoryPool,
) -> Result<(), Bypass> {
    match device_of(location, kind) {
        Some(device) => chosen(device, pool)?,
        None => account::counted(function, Reason::Pool, pool.key()),
    }
    Ok(())
}

/// After `cuMemPoolGetAttribute`: what is ours counts as the pool's. What its threshold keeps is reserved, besides what is used.
pub(crate) fn attribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) -> Result<(), Bypass> {
    // What was freed in a stream's order counts no longer when its time has come.
    freeing::reclaim()?;
    let Some(known) = memory(|memory| memory.slabs.pools.get(pool.0))? else { return Ok(()) };
    let [used, high] = known.usage();
    let [reserved, most] = memory(|memory| {
        let empty = memory.slabs.empty(known.device);
        memory.slabs.pools.reserved(pool.0, empty)
    })?;
    let more = match attribute {
        RESERVED => reserved,
        MOST_RESERVED => most,
        USED => used,
        MOST_USED => high,
        _ => return Ok(()),
    };
    let place = value.cast::<u64>();
    // SAFETY: these attributes have 64 bits, which the driver has just written.
    let said = unsafe { place.read_unaligned() };
    // SAFETY: as above.
    unsafe { place.write_unaligned(said.saturating_add(more)) };
    Ok(())
}

/// After `cuMemPoolSetAttribute`.
pub(crate) fn set_attribute(
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: *const c_void,
) -> Result<(), Bypass> {
    if attribute > THRESHOLD {
        // What was highest begins anew; nothing else can be set there.
        freeing::reclaim()?;
        return memory(|Memory { slabs, .. }| match (attribute, slabs.pools.get(pool.0)) {
            (MOST_RESERVED, Some(known)) => slabs.pools.begin_most_reserved(pool.0, slabs.empty(known.device)),
            (MOST_USED, _) => slabs.pools.begin_high(pool.0),
            _ => {}
        });
    }
    let word = match attribute {
        // SAFETY: the driver has just read so many bytes.
        THRESHOLD => unsafe { value.cast::<u64>().read_unaligned() },
        // SAFETY: as above.
        _ => unsafe { value.cast::<u32>().read_unaligned() }.into(),
    };
    if attribute == THRESHOLD {
        memory(|memory| memory.slabs.pools.set_threshold(pool.0, word))?;
    }
    if settings::is_recording() {
        recipes(|recipes| recipes.set(pool.0, Setting::PoolAttribute(attribute), word))?;
    }
    Ok(())
}

/// After `cuMemPoolTrimTo`: of what is kept empty for pools of the device so much stays, besides what is used.
pub(crate) fn trimmed(pool: CUmemoryPool, kept: usize) -> Result<(), Bypass> {
    freeing::reclaim_all()?;
    let Some(known) = memory(|memory| memory.slabs.pools.get(pool.0))? else { return Ok(()) };
    let [used, _] = known.usage();
    let kept = kept.key().saturating_sub(used);
    memory(|memory| memory.slabs.take_empty(known.device, kept))?.into_iter().try_for_each(freeing::give_back)
}

/// After `cuMemPoolSetAccess`: who may use a pool may use what is here in its place.
pub(crate) fn allow(pool: CUmemoryPool, accesses: *const CUmemAccessDesc, count: usize) -> Result<(), Bypass> {
    let mut devices = 0;
    if memory(|memory| memory.slabs.pools.get(pool.0))?.is_none()
        && driver!(query::cuDeviceGetCount(&raw mut devices)).is_success()
        && let Some(device) = (0..devices).find(|device| default_pool(*device) == Some(pool))
    {
        know(pool, device)?;
    }
    let Some(known) = memory(|memory| memory.slabs.pools.get(pool.0))? else { return Ok(()) };
    for index in 0..count {
        // SAFETY: the driver has just read so many.
        let access = unsafe { accesses.wrapping_add(index).read_unaligned() };
        if access.location.kind != DEVICE || access.location.id == known.device {
            continue;
        }
        if settings::is_recording() {
            let setting = Setting::PoolAccess(access.location.id);
            recipes(|recipes| recipes.set(pool.0, setting, access.flags.into()))?;
        }
        if access.flags == READ_WRITE {
            for (base, size) in memory(|memory| memory.slabs.add_peer(known.device, access.location.id))? {
                // What is refused here the program finds out as it would with the driver's memory: by a fault.
                let _refused = region::allow(base, size, &[access.location.id]);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::driver::sys;

    use super::Properties;

    #[test]
    fn properties_are_as_in_the_header() {
        assert_eq!(size_of::<Properties>(), size_of::<sys::CUmemPoolProps>());
        assert_eq!(offset_of!(Properties, handle_types), offset_of!(sys::CUmemPoolProps, handleTypes));
        assert_eq!(offset_of!(Properties, location), offset_of!(sys::CUmemPoolProps, location));
        assert_eq!(offset_of!(Properties, most), offset_of!(sys::CUmemPoolProps, maxSize));
    }
}
