//! Virtual memory management.

use super::memory::{account, discount};
use crate::abi::{In, Out, entry_points};
use crate::allocations::{Owner, Range};
use crate::codes::{Code, Outcome};
use crate::contexts::current;
use crate::driver::{Driver, Tables, driver};
use crate::vmm::{self, Allocation, GRANULARITY};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, `CU_MEM_LOCATION_TYPE_DEVICE`, `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`: each the
/// one kind there is here, and each of them has number 1.
const ONLY_KIND: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_NONE`.
const ACCESS_NONE: c_int = 0;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const ACCESS_READ_WRITE: c_int = 3;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Location {
    kind: c_int,
    device: c_int,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Properties {
    kind: c_int,
    handle_types: c_int,
    location: Location,
    windows: usize,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Access {
    location: Location,
    flags: c_int,
}

fn device(driver: &Driver, location: Location) -> Outcome<u32> {
    if location.kind != ONLY_KIND {
        return Err(Code::NOT_SUPPORTED);
    }
    driver.device(location.device).map(|device| device.ordinal)
}

/// Whether a range lies in one reservation.
fn is_reserved(tables: &Tables, address: usize, size: usize) -> bool {
    tables
        .reservations
        .iter()
        .any(|(&start, &length)| address >= start && address.checked_add(size).is_some_and(|end| end <= start + length))
}

/// The mappings that make up a range exactly: start and range of each.
fn mappings(tables: &Tables, address: usize, size: usize) -> Outcome<Vec<(usize, Range)>> {
    let mut found = Vec::new();
    let mut at = address;
    while at < address + size {
        let range = *tables.ranges.0.get(&at).ok_or(Code::INVALID_VALUE)?;
        if !matches!(range.owner, Owner::Mapping { .. }) {
            return Err(Code::INVALID_VALUE);
        }
        found.push((at, range));
        at += range.size;
    }
    if at == address + size { Ok(found) } else { Err(Code::INVALID_VALUE) }
}

/// Drops an allocation that neither the program nor a mapping holds any longer.
fn drop_if_unused(tables: &mut Tables, handle: usize) {
    let is_mapped = tables
        .ranges
        .0
        .values()
        .any(|range| matches!(range.owner, Owner::Mapping { allocation, .. } if allocation == handle));
    if !is_mapped && let Some(allocation) = tables.allocations.get(&handle).filter(|found| found.references == 0) {
        let (device, size) = (allocation.device, allocation.size);
        tables.allocations.remove(&handle);
        discount(tables, device, size);
    }
}

fn insert(driver: &Driver, allocation: Allocation) -> Outcome<usize> {
    let mut tables = driver.tables();
    account(&mut tables, allocation.device, allocation.size)?;
    let number = driver.new_handle();
    tables.allocations.insert(number, allocation);
    Ok(number)
}

/// Memory of the first device that can be exported.
pub(super) fn on_first_device(size: usize) -> Outcome<usize> {
    let (driver, _) = current()?;
    let mut allocation = Allocation::create(size, 0)?;
    allocation.handle_types = ONLY_KIND;
    insert(driver, allocation)
}

entry_points! {
    fn cuMemGetAllocationGranularity(granularity: Out<usize>, properties: In<Properties>, _option: c_int) {
        device(driver()?, properties.get()?.location)?;
        granularity.put(GRANULARITY)
    }

    fn cuMemCreate(handle: Out<usize>, size: usize, properties: In<Properties>, flags: c_ulonglong) {
        let (driver, _) = current()?;
        let properties = properties.get()?;
        if flags != 0 || properties.kind != ONLY_KIND || properties.handle_types & !ONLY_KIND != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let mut allocation = Allocation::create(size, device(driver, properties.location)?)?;
        allocation.handle_types = properties.handle_types;
        handle.put(insert(driver, allocation)?)
    }

    fn cuMemRelease(handle: usize) {
        let mut tables = driver()?.tables();
        let allocation = tables.allocations.get_mut(&handle).ok_or(Code::INVALID_VALUE)?;
        allocation.references = allocation.references.checked_sub(1).ok_or(Code::INVALID_VALUE)?;
        drop_if_unused(&mut tables, handle);
        Ok(())
    }

    fn cuMemExportToShareableHandle(out: Out<c_int>, handle: usize, kind: c_int, flags: c_ulonglong) {
        let driver = driver()?;
        if kind != ONLY_KIND || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let allocation = driver.tables().allocations.get(&handle).cloned().ok_or(Code::INVALID_VALUE)?;
        // Only what was made for it can be exported.
        if allocation.handle_types & kind == 0 {
            return Err(Code::INVALID_VALUE);
        }
        out.put(allocation.export()?)
    }

    fn cuMemImportFromShareableHandle(handle: Out<usize>, descriptor: *mut c_void, kind: c_int) {
        let (driver, context) = current()?;
        if kind != ONLY_KIND {
            return Err(Code::INVALID_VALUE);
        }
        let descriptor = c_int::try_from(descriptor.addr()).map_err(|_| Code::INVALID_VALUE)?;
        handle.put(insert(driver, Allocation::import(descriptor, context.device)?)?)
    }

    fn cuMemAddressReserve(address: Out<usize>, size: usize, alignment: usize, wanted: usize, flags: c_ulonglong) {
        let (driver, _) = current()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let start = vmm::reserve(size, alignment, wanted)?;
        driver.tables().reservations.insert(start, size);
        address.put(start)
    }

    fn cuMemAddressFree(address: usize, size: usize) {
        let mut tables = driver()?.tables();
        let is_empty = tables.ranges.0.range(address..address.saturating_add(size)).next().is_none();
        if tables.reservations.get(&address) != Some(&size) || !is_empty {
            return Err(Code::INVALID_VALUE);
        }
        tables.reservations.remove(&address);
        vmm::release(address, size)
    }

    fn cuMemMap(address: usize, size: usize, offset: usize, handle: usize, flags: c_ulonglong) {
        let (driver, _) = current()?;
        let mut tables = driver.tables();
        let allocation = tables.allocations.get(&handle).cloned().ok_or(Code::INVALID_VALUE)?;
        let is_free = tables.ranges.0.range(address..address.saturating_add(size)).next().is_none()
            && tables.ranges.find(address).is_none();
        if flags != 0 || offset != 0 || !address.is_multiple_of(GRANULARITY) || !is_free || !is_reserved(&tables, address, size) {
            return Err(Code::INVALID_VALUE);
        }
        let owner = Owner::Mapping { allocation: handle, is_accessible: false, bytes: allocation.map(size)? };
        tables.ranges.0.insert(address, Range::new(size, owner, allocation.device));
        Ok(())
    }

    fn cuMemUnmap(address: usize, size: usize) {
        // A context that has failed does not keep its program from tidying up.
        let driver = driver()?;
        let mut tables = driver.tables();
        for (start, range) in mappings(&tables, address, size)? {
            tables.ranges.0.remove(&start);
            if let Owner::Mapping { allocation, bytes, .. } = range.owner {
                vmm::unmap(bytes, range.size)?;
                drop_if_unused(&mut tables, allocation);
            }
        }
        Ok(())
    }

    fn cuMemSetAccess(address: usize, size: usize, accesses: In<Access>, count: usize) {
        let (driver, _) = current()?;
        let mut tables = driver.tables();
        let found = mappings(&tables, address, size)?;
        for index in 0..count {
            let access = accesses.at(index)?;
            device(driver, access.location)?;
            let is_accessible = match access.flags {
                ACCESS_NONE => false,
                ACCESS_READ_WRITE => true,
                _ => return Err(Code::NOT_SUPPORTED),
            };
            for (start, _) in &found {
                if let Some(Owner::Mapping { is_accessible: known, .. }) =
                    tables.ranges.0.get_mut(start).map(|range| &mut range.owner)
                {
                    *known = is_accessible;
                }
            }
        }
        Ok(())
    }

    fn cuMemGetAccess(flags: Out<c_ulonglong>, location: In<Location>, address: usize) {
        let driver = driver()?;
        device(driver, location.get()?)?;
        match driver.tables().ranges.find(address) {
            Some((_, Range { owner: Owner::Mapping { is_accessible, .. }, .. })) => {
                flags.put(if is_accessible { 3 } else { 0 })
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuMemRetainAllocationHandle(handle: Out<usize>, address: usize) {
        let driver = driver()?;
        let mut tables = driver.tables();
        match tables.ranges.find(address) {
            Some((_, Range { owner: Owner::Mapping { allocation, .. }, .. })) => {
                tables.allocations.get_mut(&allocation).ok_or(Code::INVALID_VALUE)?.references += 1;
                handle.put(allocation)
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuMemGetAllocationPropertiesFromHandle(properties: Out<Properties>, handle: usize) {
        let allocation = driver()?.tables().allocations.get(&handle).cloned().ok_or(Code::INVALID_VALUE)?;
        let device = c_int::try_from(allocation.device).map_err(|_| Code::UNKNOWN)?;
        let location = Location { kind: ONLY_KIND, device };
        let handle_types = allocation.handle_types;
        properties.put(Properties { kind: ONLY_KIND, handle_types, location, windows: 0, flags: [0; 8] })
    }

    fn cuMulticastGetGranularity(_granularity: Out<usize>, _properties: In<u8>, _option: c_uint) {
        Err(Code::NOT_SUPPORTED)
    }
}
