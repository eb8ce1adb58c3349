//! What a program learns about its memory: ranges, attributes, how much is free.
//!
//! An address of ours lies in a mapping of a whole slab, so the driver's own answers would be about the slab. Where a
//! program can tell the difference the answer is the one that memory of `cuMemAlloc` would give.
#![expect(unsafe_code, reason = "calls the driver and writes its result parameters")]

use std::ffi::{c_uint, c_void};

use super::slabs::Block;
use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::memory::{cuMemGetAddressRange_v2, cuPointerGetAttribute, cuPointerGetAttributes},
        names,
        result::CUresult,
        types::{CUdeviceptr, CUpointer_attribute},
    },
    kept::{memory, objects::current::current},
};

/// `CU_POINTER_ATTRIBUTE_…`.
const CONTEXT: CUpointer_attribute = 1;
const BUFFER_ID: CUpointer_attribute = 7;
const RANGE_START_ADDR: CUpointer_attribute = 11;
const RANGE_SIZE: CUpointer_attribute = 12;
const IS_LEGACY_IPC_CAPABLE: CUpointer_attribute = 10;
const ALLOWED_HANDLE_TYPES: CUpointer_attribute = 14;

/// Buffers of ours have numbers from here on; the driver counts up from one.
const FIRST_BUFFER: u64 = 1 << 62;

/// Logic of `cuMemGetAddressRange`.
pub(crate) fn range(
    _driver: &mut Driver<cuMemGetAddressRange_v2::Signature>,
    base: *mut CUdeviceptr,
    size: *mut usize,
    address: CUdeviceptr,
) -> Result<CUresult, Bypass> {
    let (start, block) = memory(|memory| memory.slabs.around(address))?.ok_or(Bypass::NotOurs)?;
    if !base.is_null() {
        // SAFETY: the program wants it there.
        unsafe { *base = start };
    }
    if !size.is_null() {
        // SAFETY: as above.
        unsafe { *size = usize::try_from(block.size).unwrap_or(usize::MAX) };
    }
    Ok(CUresult::CUDA_SUCCESS)
}

/// After `cuMemGetInfo`: what is free in our slabs is free for the program.
pub(crate) fn info(free: *mut usize) -> Result<(), Bypass> {
    if !free.is_null()
        && let Ok((_, device)) = current()
    {
        let spare = usize::try_from(memory(|memory| memory.slabs.spare(device))?).unwrap_or(usize::MAX);
        // SAFETY: the driver has just written there.
        let known = unsafe { *free };
        // SAFETY: as above.
        unsafe { *free = known.saturating_add(spare) };
    }
    Ok(())
}

/// Logic of `cuPointerGetAttribute`.
pub(crate) fn attribute(
    driver: &mut Driver<cuPointerGetAttribute::Signature>,
    data: *mut c_void,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> Result<CUresult, Bypass> {
    let known = known_of(address)?;
    let answer = driver.pass();
    if answer.is_success() {
        correct(data, attribute, &known);
    }
    Ok(answer)
}

/// Logic of `cuPointerGetAttributes`.
pub(crate) fn attributes(
    driver: &mut Driver<cuPointerGetAttributes::Signature>,
    count: c_uint,
    attributes: *mut CUpointer_attribute,
    data: *mut *mut c_void,
    address: CUdeviceptr,
) -> Result<CUresult, Bypass> {
    let known = known_of(address)?;
    let answer = driver.pass();
    if answer.is_success() && !attributes.is_null() && !data.is_null() {
        for index in 0..usize::try_from(count).unwrap_or_default() {
            // SAFETY: the driver has just read so many.
            let attribute = unsafe { attributes.wrapping_add(index).read() };
            // SAFETY: as above.
            let place = unsafe { data.wrapping_add(index).read() };
            correct(place, attribute, &known);
        }
    }
    Ok(answer)
}

/// About what the driver says something else than the program should hear.
enum Known {
    /// A block of ours, and its address.
    Block(u64, Block),
    /// A reservation of the program's that is larger at the driver: how large the program's is.
    Reserved(u64),
}

fn known_of(address: CUdeviceptr) -> Result<Known, Bypass> {
    let known = memory(|memory| match memory.slabs.around(address) {
        Some((start, block)) => Some(Known::Block(start, block)),
        None => memory.own.enlarged_around(address).map(|found| Known::Reserved(found.size)),
    })?;
    known.ok_or(Bypass::NotOurs)
}

/// Puts our answer in the place of the driver's where they differ.
fn correct(data: *mut c_void, attribute: CUpointer_attribute, known: &Known) {
    let number = match (known, attribute) {
        (Known::Block(_, block), CONTEXT) => u64::try_from(names::name_of(block.context)).unwrap_or_default(),
        (Known::Block(_, block), BUFFER_ID) => FIRST_BUFFER + block.number,
        (Known::Block(start, _), RANGE_START_ADDR) => *start,
        (Known::Block(_, block), RANGE_SIZE) => block.size,
        (Known::Reserved(size), RANGE_SIZE) => *size,
        (Known::Block(..), IS_LEGACY_IPC_CAPABLE) if !data.is_null() => {
            // A truth value, of which the driver has written all bytes.
            // SAFETY: as above.
            unsafe { data.cast::<u8>().write(1) };
            return;
        }
        (Known::Block(..), ALLOWED_HANDLE_TYPES) if !data.is_null() => {
            // No kind of handle is allowed: the memory is not the program's to export.
            // SAFETY: the driver has just written at least so many bytes there.
            unsafe { data.cast::<u32>().write_unaligned(0) };
            return;
        }
        _ => return,
    };
    if !data.is_null() {
        // SAFETY: each of these is a number or pointer of 64 bits, which the driver has just written.
        unsafe { data.cast::<u64>().write_unaligned(number) };
    }
}
