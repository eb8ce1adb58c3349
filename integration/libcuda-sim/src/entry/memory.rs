//! Allocation.

use crate::abi::{Out, entry_points};
use crate::allocations::{Owner, Range};
use crate::codes::{Code, Outcome};
use crate::contexts::current;
use crate::device::TOTAL_MEMORY;
use crate::driver::{Tables, driver};
use std::ffi::c_uint;

/// `CU_MEMHOSTALLOC_DEVICEMAP`: under unified addressing all host memory is mapped, so it is said of all (assumed).
const MAPPED: c_uint = 2;
/// All flags of `cuMemHostAlloc`.
const HOST_FLAGS: c_uint = 7;
/// `CU_MEMORYTYPE_HOST`.
const HOST_MEMORY: u32 = 1;
/// `CU_MEMORYTYPE_DEVICE`.
const DEVICE_MEMORY: u32 = 2;

/// Total and free bytes of a device as this process sees them: under a pinned memory limit, of that limit.
fn room(tables: &Tables, device: u32) -> (u64, u64) {
    let limit = tables.limits.get(&device).copied().filter(|&limit| limit != 0);
    let total = limit.unwrap_or(TOTAL_MEMORY).min(TOTAL_MEMORY);
    (total, total.saturating_sub(tables.used.of(device)))
}

/// Takes bytes of a device's memory into account.
pub(super) fn account(tables: &mut Tables, device: u32, size: usize) -> Outcome {
    if room(tables, device).1 < size as u64 {
        return Err(Code::OUT_OF_MEMORY);
    }
    tables.used.add(device, size as u64);
    Ok(())
}

/// Takes them out of account.
pub(super) fn discount(tables: &mut Tables, device: u32, size: usize) {
    tables.used.remove(device, size as u64);
}

fn allocate_host(size: usize, flags: c_uint) -> Outcome<usize> {
    let (driver, context) = current()?;
    if flags & !HOST_FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let owner = Owner::Host { context: context.home, flags };
    driver.tables().ranges.allocate(size, owner, context.device)
}

/// What a pointer is said to point to.
pub(super) fn memory_type(owner: Owner) -> u32 {
    if matches!(owner, Owner::Host { .. } | Owner::Registered { .. }) { HOST_MEMORY } else { DEVICE_MEMORY }
}

entry_points! {
    fn cuMemAlloc_v2(address: Out<usize>, size: usize) {
        super::capture::unsafe_call()?;
        let (driver, context) = current()?;
        let mut tables = driver.tables();
        account(&mut tables, context.device, size)?;
        let memory = tables.ranges.allocate(size, Owner::Context(context.home), context.device);
        if memory.is_err() {
            discount(&mut tables, context.device, size);
        }
        address.put(memory?)
    }

    fn cuMemFree_v2(address: usize) {
        super::capture::unsafe_call()?;
        let (driver, context) = current()?;
        if address == 0 {
            return Ok(());
        }
        // Like the real one it waits for what may still use the memory.
        context.drain()?;
        let mut tables = driver.tables();
        match tables.ranges.find(address) {
            Some((start, range)) if start == address && matches!(range.owner, Owner::Context(_)) => {}
            _ => return Err(Code::INVALID_VALUE),
        }
        let range = tables.ranges.free(address)?;
        discount(&mut tables, range.device, range.size);
        tables.pools.gave(address);
        Ok(())
    }

    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let (driver, context) = current()?;
        let (all, left) = room(&driver.tables(), context.device);
        free.put_if_wanted(usize::try_from(left).map_err(|_| Code::UNKNOWN)?);
        total.put_if_wanted(usize::try_from(all).map_err(|_| Code::UNKNOWN)?);
        Ok(())
    }

    fn cuMemGetAddressRange_v2(base: Out<usize>, size: Out<usize>, address: usize) {
        let (driver, _) = current()?;
        let (start, range) = driver.tables().ranges.find(address).ok_or(Code::NOT_FOUND)?;
        base.put_if_wanted(start);
        size.put_if_wanted(range.size);
        Ok(())
    }

    fn cuMemHostAlloc(address: Out<usize>, size: usize, flags: c_uint) {
        address.put(allocate_host(size, flags)?)
    }

    fn cuMemAllocHost_v2(address: Out<usize>, size: usize) {
        address.put(allocate_host(size, 0)?)
    }

    fn cuMemFreeHost(address: usize) {
        let driver = driver()?;
        let mut tables = driver.tables();
        match tables.ranges.find(address) {
            Some((start, range)) if start == address && matches!(range.owner, Owner::Host { .. }) => {}
            _ => return Err(Code::INVALID_VALUE),
        }
        tables.ranges.free(address).map(drop)
    }

    fn cuMemHostGetDevicePointer_v2(device: Out<usize>, host: usize, _flags: c_uint) {
        let (driver, _) = current()?;
        match driver.tables().ranges.find(host) {
            Some((_, range)) if memory_type(range.owner) == HOST_MEMORY => device.put(host),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuMemHostGetFlags(flags: Out<c_uint>, host: usize) {
        let (driver, _) = current()?;
        match driver.tables().ranges.find(host) {
            Some((_, Range { owner: Owner::Host { flags: given, .. }, .. })) => flags.put(given | MAPPED),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuMemAllocManaged(_address: Out<usize>, _size: usize, _flags: c_uint) {
        Err(Code::NOT_SUPPORTED)
    }

    fn cuMemHostRegister_v2(address: usize, size: usize, _flags: c_uint) {
        let (driver, context) = current()?;
        let mut tables = driver.tables();
        let end = address.checked_add(size).ok_or(Code::INVALID_VALUE)?;
        if address == 0 || size == 0 || (address..end).step_by(4096).any(|at| tables.ranges.find(at).is_some()) {
            return Err(Code::INVALID_VALUE);
        }
        let owner = Owner::Registered { context: context.home };
        tables.ranges.0.insert(address, Range::new(size, owner, context.device));
        Ok(())
    }

    fn cuMemHostUnregister(address: usize) {
        let (driver, _) = current()?;
        let mut tables = driver.tables();
        match tables.ranges.0.get(&address) {
            Some(Range { owner: Owner::Registered { .. }, .. }) => {}
            Some(Range { owner: Owner::Host { .. }, .. }) => return Err(Code::INVALID_VALUE),
            _ => return Err(Code::HOST_MEMORY_NOT_REGISTERED),
        }
        tables.ranges.0.remove(&address);
        Ok(())
    }
}
