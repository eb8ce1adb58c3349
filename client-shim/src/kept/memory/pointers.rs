//! What a program learns about its memory: ranges, attributes, how much is free.
//!
//! An address of ours lies in a mapping of a whole slab, so the driver's own answers would be about the slab. Where a
//! program can tell the difference the answer is the one that memory of `cuMemAlloc` would give, or that of a pool. What
//! an attribute has of contexts and pools is a handle, of which the program knows the name; and a number that a copy of
//! the driver gives a buffer is no number of another copy's buffer.
#![expect(unsafe_code, reason = "calls the driver and writes its result parameters")]

use std::ffi::{c_uint, c_void};

use super::{Memory, freeing, ipc::OpenBlock, region, slabs::Block};
use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::memory::{cuMemGetAddressRange_v2, cuMemGetInfo_v2, cuPointerGetAttribute, cuPointerGetAttributes},
        library, names,
        result::CUresult,
        types::{CUdeviceptr, CUpointer_attribute, Key as _},
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
const MEMPOOL_HANDLE: CUpointer_attribute = 17;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR: u32 = region::DESCRIPTOR;
/// No memory lies there: what the driver says of it is what it says of memory that is gone.
const NOWHERE: CUdeviceptr = 0x1000;

/// Buffers of ours have numbers from here on; the driver counts up from one.
const FIRST_BUFFER: u64 = 1 << 62;
/// And those of other processes' memory that is open here from here on.
const FIRST_OPENED: u64 = 3 << 61;
/// What each further copy of the driver counts from is so much more, since it too counts up from one.
const BUFFERS_OF_A_COPY: u64 = 1 << 40;

/// Logic of `cuMemGetAddressRange`.
pub(crate) fn range(
    driver: &mut Driver<cuMemGetAddressRange_v2::Signature>,
    base: *mut CUdeviceptr,
    size: *mut usize,
    address: CUdeviceptr,
) -> Result<CUresult, Bypass> {
    let (start, length) = match memory(|memory| placed(memory, address))?.ok_or(Bypass::NotOurs)? {
        // SAFETY: the program's own pointers.
        Place::Hole => return Ok(driver.call(|function| unsafe { function(base, size, NOWHERE) })),
        Place::Block(start, block) => (start, block.size),
        Place::Opened(block) => (block.start, block.size),
    };
    if !base.is_null() {
        // SAFETY: the program wants it there.
        unsafe { *base = start };
    }
    if !size.is_null() {
        // SAFETY: as above.
        unsafe { *size = usize::try_from(length).unwrap_or(usize::MAX) };
    }
    Ok(CUresult::CUDA_SUCCESS)
}

/// Logic of `cuMemGetInfo`: what is free in our slabs is free for the program, and so is what it has freed in a stream's
/// order, from the time on when that was to happen.
pub(crate) fn info(
    driver: &mut Driver<cuMemGetInfo_v2::Signature>,
    free: *mut usize,
    _total: *mut usize,
) -> Result<CUresult, Bypass> {
    freeing::reclaim_all()?;
    let answer = driver.pass();
    if answer.is_success()
        && !free.is_null()
        && let Ok((_, device)) = current()
    {
        let spare = usize::try_from(memory(|memory| memory.slabs.spare(device))?).unwrap_or(usize::MAX);
        // SAFETY: the driver has just written there.
        let known = unsafe { *free };
        // SAFETY: as above.
        unsafe { *free = known.saturating_add(spare) };
    }
    Ok(answer)
}

/// Logic of `cuPointerGetAttribute`.
pub(crate) fn attribute(
    driver: &mut Driver<cuPointerGetAttribute::Signature>,
    data: *mut c_void,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> Result<CUresult, Bypass> {
    let known = known_of(address)?;
    if matches!(known, Some(Known::Hole)) {
        // SAFETY: the program's own pointer.
        return Ok(driver.call(|function| unsafe { function(data, attribute, NOWHERE) }));
    }
    let answer = driver.pass();
    if answer.is_success() {
        correct(data, attribute, known.as_ref());
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
    if matches!(known, Some(Known::Hole)) {
        // SAFETY: the program's own pointers.
        return Ok(driver.call(|function| unsafe { function(count, attributes, data, NOWHERE) }));
    }
    let answer = driver.pass();
    if answer.is_success() && !attributes.is_null() && !data.is_null() {
        for index in 0..usize::try_from(count).unwrap_or_default() {
            // SAFETY: the driver has just read so many.
            let attribute = unsafe { attributes.wrapping_add(index).read() };
            // SAFETY: as above.
            let place = unsafe { data.wrapping_add(index).read() };
            correct(place, attribute, known.as_ref());
        }
    }
    Ok(answer)
}

/// Where in a slab an address lies, of this process's or of another one's that is mapped here.
enum Place {
    /// In a block of ours, with its address.
    Block(u64, Block),
    /// In a block of another process's that is open here.
    Opened(OpenBlock),
    /// In a part that the program has freed or closed, or has not been given.
    Hole,
}

fn placed(memory: &Memory, address: u64) -> Option<Place> {
    if let Some((start, block)) = memory.slabs.around(address) {
        return Some(Place::Block(start, block));
    }
    match memory.ipc.around(address) {
        Some(Some(block)) => Some(Place::Opened(block)),
        Some(None) => Some(Place::Hole),
        None => memory.slabs.is_hole(address).then_some(Place::Hole),
    }
}

/// About what the driver says something else than the program should hear.
enum Known {
    /// A block of ours, its address, and the pool that it counts for: 0 for none.
    Block(u64, Block, usize),
    /// A block of another process's that is open here.
    Opened(OpenBlock),
    /// A part of a slab that is no memory of the program's.
    Hole,
    /// What the program has mapped itself: how large its reservation is where the driver's is larger, and whether it did not
    /// ask for memory that can be exported.
    Mapped(Option<u64>, bool),
}

/// What is known of an address. In the first copy of the driver there is nothing to say of one of which nothing is.
fn known_of(address: CUdeviceptr) -> Result<Option<Known>, Bypass> {
    let known = memory(|memory| match placed(memory, address) {
        Some(Place::Block(start, block)) => Some(Known::Block(start, block, memory.slabs.pools.of(start).unwrap_or(0))),
        Some(Place::Opened(block)) => Some(Known::Opened(block)),
        Some(Place::Hole) => Some(Known::Hole),
        None => {
            let size = memory.own.enlarged_around(address).map(|found| found.size);
            let is_exportable_by_us = memory.own.is_exportable_by_us_at(address);
            (size.is_some() || is_exportable_by_us).then_some(Known::Mapped(size, is_exportable_by_us))
        }
    })?;
    if known.is_none() && library::generation() == 0 { Err(Bypass::NotOurs) } else { Ok(known) }
}

/// Puts our answer in the place of the driver's where they differ.
fn correct(data: *mut c_void, attribute: CUpointer_attribute, known: Option<&Known>) {
    if data.is_null() {
        return;
    }
    // SAFETY: what this is called for has 64 bits, which the driver has just written.
    let said = || unsafe { data.cast::<u64>().read_unaligned() };
    let named = |handle: usize| names::name_of(handle).key();
    let number = match (known, attribute) {
        (Some(Known::Block(_, block, 0)), CONTEXT) => named(block.context),
        // Memory of a pool is of no context (measured with 580.159.04).
        (Some(Known::Block(..)), CONTEXT) => 0,
        (Some(Known::Block(_, _, pool)), MEMPOOL_HANDLE) => named(*pool),
        (_, CONTEXT | MEMPOOL_HANDLE) => named(usize::try_from(said()).unwrap_or_default()),
        (Some(Known::Block(_, block, _)), BUFFER_ID) => FIRST_BUFFER + block.number,
        (Some(Known::Opened(block)), BUFFER_ID) => FIRST_OPENED + block.number,
        // No memory has that number.
        (_, BUFFER_ID) if said() == 0 => 0,
        (_, BUFFER_ID) => said().wrapping_add(library::generation() * BUFFERS_OF_A_COPY),
        (Some(Known::Block(start, ..)), RANGE_START_ADDR) => *start,
        (Some(Known::Block(_, block, _)), RANGE_SIZE) => block.size,
        (Some(Known::Opened(block)), RANGE_START_ADDR) => block.start,
        (Some(Known::Opened(block)), RANGE_SIZE) => block.size,
        (Some(Known::Mapped(Some(size), _)), RANGE_SIZE) => *size,
        (Some(Known::Mapped(_, true)), ALLOWED_HANDLE_TYPES) => {
            // What was added is hidden.
            // SAFETY: the driver has just written at least so many bytes there.
            let types = unsafe { data.cast::<u32>().read_unaligned() } & !DESCRIPTOR;
            // SAFETY: as above.
            unsafe { data.cast::<u32>().write_unaligned(types) };
            return;
        }
        (Some(Known::Block(_, _, pool)), IS_LEGACY_IPC_CAPABLE) => {
            // A truth value, of which the driver has written all bytes.
            // SAFETY: as above.
            unsafe { data.cast::<u8>().write(u8::from(*pool == 0)) };
            return;
        }
        (Some(Known::Block(..) | Known::Opened(_)), ALLOWED_HANDLE_TYPES) => {
            // No kind of handle is allowed: the memory is not the program's to export.
            // SAFETY: the driver has just written at least so many bytes there.
            unsafe { data.cast::<u32>().write_unaligned(0) };
            return;
        }
        _ => return,
    };
    // SAFETY: each of these is a number or pointer of 64 bits, which the driver has just written.
    unsafe { data.cast::<u64>().write_unaligned(number) };
}
