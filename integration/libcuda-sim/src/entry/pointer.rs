//! Pitched allocation, and attributes of an address.

use super::memory::{account, discount, memory_type};
use crate::abi::{In, Out, entry_points};
use crate::allocations::Owner;
use crate::codes::{Code, Outcome};
use crate::contexts::current;
use crate::driver::{Tables, driver};
use std::ffi::c_uint;

/// Alignment of rows in bytes, as on the H200.
const PITCH: usize = 512;
/// `CU_POINTER_ATTRIBUTE_CONTEXT`.
const CONTEXT: c_uint = 1;
/// `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
const BUFFER: c_uint = 7;
/// `CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE`: memory of `cuMemAlloc` is, that of a pool is not.
const IS_LEGACY: c_uint = 10;
/// `CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES`.
const HANDLE_TYPES: c_uint = 14;
/// `CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE`.
const POOL: c_uint = 17;
/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`.
const MEMORY_TYPE: c_uint = 2;
/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
const DEVICE_ORDINAL: c_uint = 9;
/// `CU_POINTER_ATTRIBUTE_RANGE_START_ADDR` and `CU_POINTER_ATTRIBUTE_RANGE_SIZE`.
const RANGE_START: c_uint = 11;
const RANGE_SIZE: c_uint = 12;

/// Writes an attribute of an address.
fn tell(tables: &Tables, attribute: c_uint, place: usize, address: usize) -> Outcome {
    let (start, range) = tables.ranges.find(address).ok_or(Code::INVALID_VALUE)?;
    // Of what a program has mapped the whole reservation is told (measured with 580.159.04).
    let is_around = |(start, size): &(&usize, &usize)| (**start..**start + **size).contains(&address);
    let mut of_program = tables.reservations.iter().filter(|_| matches!(range.owner, Owner::Mapping { .. }));
    let whole = of_program.find(is_around).map(|(start, size)| (*start, *size));
    let (whole_start, whole_size) = whole.unwrap_or((start, range.size));
    let pool = tables.pools.pool_of(start);
    match attribute {
        // Memory of a pool is of none (measured with 580.159.04).
        CONTEXT => Out::<usize>::at(place).put(if pool.is_some() { 0 } else { range.owner.context() }),
        MEMORY_TYPE => Out::<u32>::at(place).put(memory_type(range.owner)),
        BUFFER => Out::<u64>::at(place).put(range.number),
        DEVICE_ORDINAL => Out::<u32>::at(place).put(range.device),
        IS_LEGACY => Out::<u8>::at(place).put(u8::from(pool.is_none() && matches!(range.owner, Owner::Context(_)))),
        RANGE_START => Out::<usize>::at(place).put(whole_start),
        RANGE_SIZE => Out::<usize>::at(place).put(whole_size),
        HANDLE_TYPES => {
            let of = if let Owner::Mapping { allocation, .. } = range.owner {
                tables.allocations.get(&allocation)
            } else {
                None
            };
            let types = of.map_or(0, |of| of.handle_types);
            Out::<u64>::at(place).put(u64::from(types.cast_unsigned()))
        }
        POOL => Out::<usize>::at(place).put(pool.unwrap_or(0)),
        _ => Err(Code::NOT_SUPPORTED),
    }
}

/// Writes that an attribute says nothing.
fn empty(attribute: c_uint, place: usize) -> Outcome {
    match attribute {
        MEMORY_TYPE | DEVICE_ORDINAL => Out::<u32>::at(place).put(0),
        IS_LEGACY => Out::<u8>::at(place).put(0),
        _ => Out::<u64>::at(place).put(0),
    }
}

entry_points! {
    fn cuMemAllocPitch_v2(address: Out<usize>, pitch: Out<usize>, width: usize, height: usize, element: c_uint) {
        let (driver, context) = current()?;
        let row = width.checked_next_multiple_of(PITCH).ok_or(Code::INVALID_VALUE)?;
        let size = row.checked_mul(height).ok_or(Code::INVALID_VALUE)?;
        if !matches!(element, 4 | 8 | 16) {
            return Err(Code::INVALID_VALUE);
        }
        let mut tables = driver.tables();
        account(&mut tables, context.device, size)?;
        let memory = tables.ranges.allocate(size, Owner::Context(context.home), context.device);
        if memory.is_err() {
            discount(&mut tables, context.device, size);
        }
        address.put(memory?)?;
        pitch.put(row)
    }

    fn cuPointerGetAttribute(place: usize, attribute: c_uint, address: usize) {
        tell(&driver()?.tables(), attribute, place, address)
    }

    fn cuPointerGetAttributes(count: c_uint, attributes: In<c_uint>, places: In<usize>, address: usize) {
        let tables = driver()?.tables();
        if tables.ranges.find(address).is_none() {
            // As documented each is empty for what is no memory, and the call succeeds.
            for index in 0..usize::try_from(count).map_err(|_| Code::INVALID_VALUE)? {
                empty(attributes.at(index)?, places.at(index)?)?;
            }
            return Ok(());
        }
        for index in 0..usize::try_from(count).map_err(|_| Code::INVALID_VALUE)? {
            tell(&tables, attributes.at(index)?, places.at(index)?, address)?;
        }
        Ok(())
    }
}
