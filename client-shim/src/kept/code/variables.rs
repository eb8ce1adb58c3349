//! What a program copies into its modules' variables, or sets there, is noted, so that a fresh copy's variables can be
//! given it again.
//!
//! Only while the program has the address of any variable; else a copy or a set costs one look at a number.
//!
//! | what was written by | is |
//! |---|---|
//! | a copy from pageable memory, a copy that has ended, a set | noted, the latest bytes of each range |
//! | a copy from pinned memory that has not ended, from the device, from an array | forgotten: nobody here knows the bytes |
//! | a kernel, a graph, a batch of copies, a wait or write in a stream's order | not seen |
//!
//! A stream that is being captured executes nothing, so what it is given is not noted. A module's variables are in doubt
//! after every recovery (`recovery`): this is what makes constants right again, which no kernel writes.
#![expect(unsafe_code, reason = "calls the driver and reads what the program has given it")]

mod calls;

use std::{
    ffi::{c_uint, c_void},
    slice,
    sync::atomic::Ordering,
};

pub(crate) use calls::*;

use crate::cuda::{
    call::Bypass,
    result::CUresult,
    types::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUdeviceptr, Key as _},
};
use crate::kept::{KEPT, is_capturing, objects::recipes::MOST_WRITTEN, recipes};

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, and what it says of the host's memory and of a device's.
const MEMORY_TYPE: c_uint = 2;
const OF_HOST: u32 = 1;
const OF_DEVICE: u32 = 2;
/// `CU_MEMORYTYPE_UNIFIED`.
const UNIFIED: u32 = 4;

/// The program has the address of a variable.
pub(super) fn begin() {
    KEPT.has_variables.store(true, Ordering::Relaxed);
}

/// `CUDA_MEMCPY2D`, as far as it says where it writes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Flat {
    source: [usize; 7],
    first_byte: usize,
    first_row: usize,
    kind: c_uint,
    host: usize,
    device: CUdeviceptr,
    array: usize,
    pitch: usize,
    width: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Solid {
    source: [usize; 11],
    first_byte: usize,
    first_row: usize,
    first_layer: usize,
    mip_level: usize,
    kind: c_uint,
    host: usize,
    device: CUdeviceptr,
    array: usize,
    reserved: usize,
    pitch: usize,
    rows: usize,
    width: usize,
    height: usize,
    depth: usize,
}

/// Where a call writes, if that is in a variable.
struct Target {
    address: usize,
    length: usize,
}

impl Target {
    fn new(address: CUdeviceptr, length: usize) -> Result<Self, Bypass> {
        if !KEPT.has_variables.load(Ordering::Relaxed) {
            return Err(Bypass::NotOurs);
        }
        let address = usize::try_from(address).map_err(|_| Bypass::ForTheDriver)?;
        let is_met = recipes(|recipes| !recipes.variables_in(address, length).is_empty())?;
        // What is captured is not done, and a graph's work is not seen.
        if is_met && !is_capturing()? { Ok(Self { address, length }) } else { Err(Bypass::NotOurs) }
    }

    /// Of a copy in two dimensions. One to an array, or to the host, writes no variable.
    fn of_flat(copy: *const CUDA_MEMCPY2D) -> Result<Self, Bypass> {
        if copy.is_null() || !KEPT.has_variables.load(Ordering::Relaxed) {
            return Err(Bypass::NotOurs);
        }
        // SAFETY: the program's argument, which the driver reads too.
        let copy = unsafe { copy.cast::<Flat>().read_unaligned() };
        let rows = copy.first_row.saturating_add(copy.height);
        Self::of_rows(copy.kind, copy.host, copy.device, copy.pitch.max(copy.width).saturating_mul(rows))
    }

    /// Of a copy in three dimensions.
    fn of_solid(copy: *const CUDA_MEMCPY3D) -> Result<Self, Bypass> {
        if copy.is_null() || !KEPT.has_variables.load(Ordering::Relaxed) {
            return Err(Bypass::NotOurs);
        }
        // SAFETY: the program's argument, which the driver reads too.
        let copy = unsafe { copy.cast::<Solid>().read_unaligned() };
        let layers = copy.first_layer.saturating_add(copy.depth);
        let rows = copy.rows.max(copy.height).saturating_mul(layers);
        Self::of_rows(copy.kind, copy.host, copy.device, copy.pitch.max(copy.width).saturating_mul(rows))
    }

    fn of_rows(kind: c_uint, host: usize, device: CUdeviceptr, length: usize) -> Result<Self, Bypass> {
        match kind {
            OF_DEVICE => Self::new(device, length),
            // An address of either kind is given in the host's place.
            UNIFIED => Self::new(host.key(), length),
            _ => Err(Bypass::NotOurs),
        }
    }

    /// The call has ended like this, and these bytes were written, if they are known.
    fn written(&self, answer: CUresult, bytes: Option<&[u8]>) -> Result<CUresult, Bypass> {
        if answer.is_success() {
            recipes(|recipes| recipes.write(self.address, self.length, bytes))?;
        }
        Ok(answer)
    }
}

/// What kind of memory the driver says that an address is of; `None` for pageable memory.
fn kind_of(address: u64) -> Option<u32> {
    let mut kind = 0_u32;
    let answer = driver!(memory::cuPointerGetAttribute((&raw mut kind).cast::<c_void>(), MEMORY_TYPE, address));
    answer.is_success().then_some(kind)
}

/// Bytes of the host's that a call has read.
///
/// # Safety
/// The driver has just read so many there.
unsafe fn read<'bytes>(source: *const c_void, length: usize) -> &'bytes [u8] {
    // SAFETY: by the contract.
    unsafe { slice::from_raw_parts(source.cast(), length) }
}

/// What a copy from a host's address has written: unknown while a copy from pinned memory has not ended.
fn copied(target: &Target, source: *const c_void, has_ended: bool, answer: CUresult) -> Result<CUresult, Bypass> {
    let is_known = answer.is_success() && (has_ended || kind_of(source.addr().key()) != Some(OF_HOST));
    // SAFETY: the driver has read as much.
    target.written(answer, is_known.then(|| unsafe { read(source, target.length) }))
}

/// The same for an address of either kind.
fn copied_from_any(
    target: &Target,
    source: CUdeviceptr,
    has_ended: bool,
    answer: CUresult,
) -> Result<CUresult, Bypass> {
    match kind_of(source) {
        Some(OF_DEVICE) => target.written(answer, None),
        _ => {
            let source = usize::try_from(source).map_err(|_| Bypass::ForTheDriver)?;
            copied(target, std::ptr::with_exposed_provenance(source), has_ended, answer)
        }
    }
}

/// A pattern as often as it was set.
fn set(target: &Target, pattern: &[u8], answer: CUresult) -> Result<CUresult, Bypass> {
    let is_kept = answer.is_success() && target.length <= MOST_WRITTEN;
    let bytes = is_kept.then(|| pattern.repeat(target.length / pattern.len()));
    target.written(answer, bytes.as_deref())
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::driver::sys::{CUDA_MEMCPY2D_st, CUDA_MEMCPY3D_st};

    use super::{Flat, Solid};

    #[test]
    fn copies_of_several_dimensions_are_as_in_the_header() {
        assert_eq!(size_of::<Flat>(), size_of::<CUDA_MEMCPY2D_st>());
        assert_eq!(size_of::<Solid>(), size_of::<CUDA_MEMCPY3D_st>());
        let flat =
            [offset_of!(Flat, first_row), offset_of!(Flat, kind), offset_of!(Flat, device), offset_of!(Flat, pitch)];
        let of_header = [
            offset_of!(CUDA_MEMCPY2D_st, dstY),
            offset_of!(CUDA_MEMCPY2D_st, dstMemoryType),
            offset_of!(CUDA_MEMCPY2D_st, dstDevice),
            offset_of!(CUDA_MEMCPY2D_st, dstPitch),
        ];
        assert_eq!(flat, of_header);
        let solid = [
            offset_of!(Solid, first_layer),
            offset_of!(Solid, kind),
            offset_of!(Solid, device),
            offset_of!(Solid, rows),
        ];
        let of_header = [
            offset_of!(CUDA_MEMCPY3D_st, dstZ),
            offset_of!(CUDA_MEMCPY3D_st, dstMemoryType),
            offset_of!(CUDA_MEMCPY3D_st, dstDevice),
            offset_of!(CUDA_MEMCPY3D_st, dstHeight),
        ];
        assert_eq!(solid, of_header);
    }
}
