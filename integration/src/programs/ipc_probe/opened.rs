//! What the driver says of memory of another process that is open here: that it is the block, and nothing around it.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{GpuError, SIZES, check};
use cudarc::driver::sys::{self, CUpointer_attribute as Attribute};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ptr::without_provenance_mut;

/// The answer of `cuMemGetAddressRange`, where the range begins, and its bytes.
pub(super) fn range(address: u64) -> (u32, u64, u64) {
    let (mut start, mut size) = (0, 0);
    // SAFETY: the results are variables of ours.
    let answer = unsafe { sys::cuMemGetAddressRange_v2(&raw mut start, &raw mut size, address) };
    (answer as u32, start, size as u64)
}

fn attribute(attribute: Attribute, address: u64) -> Result<u64, GpuError> {
    let mut value = 0_u64;
    // SAFETY: the variable has room for the attribute, which has 64 bits at most.
    let answer = unsafe { sys::cuPointerGetAttribute((&raw mut value).cast(), attribute, address) };
    check("cuPointerGetAttribute", answer)?;
    Ok(value)
}

/// What retaining a handle of the memory at an address answers.
fn retained(address: u64) -> u32 {
    let mut handle = 0;
    let place = without_provenance_mut(usize::try_from(address).unwrap_or(0));
    // SAFETY: the result is a variable of ours.
    unsafe { sys::cuMemRetainAllocationHandle(&raw mut handle, place) as u32 }
}

/// Whether each block is told to begin and end where it does, also by an address in the middle; how many numbers they have
/// together; what a handle of each is answered with, and a question about what lies behind the second one.
pub(super) fn told(blocks: &[u64]) -> Result<Value, GpuError> {
    let (mut are_whole, mut numbers, mut handles) = (true, BTreeSet::new(), Vec::new());
    for (block, size) in blocks.iter().zip(SIZES) {
        let (start, size) = (*block, size as u64);
        for address in [start, start + size / 2] {
            let by_attributes = (
                attribute(Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address)?,
                attribute(Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, address)?,
            );
            are_whole &= range(address) == (0, start, size) && by_attributes == (start, size);
            numbers.insert(attribute(Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID, address)?);
            handles.push(retained(address));
        }
    }
    let behind = range(blocks[1] + SIZES[1] as u64 + 4096).0;
    Ok(json!({ "are_whole": are_whole, "numbers": numbers.len(), "handles": handles, "behind": behind }))
}
