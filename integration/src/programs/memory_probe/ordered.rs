//! Memory in a stream's order: what is freed behind work that still runs is not given to somebody else.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{allocate, check, fill, free, is_filled};
use crate::programs::gpu::{Argument, Gpu, GpuError, Stream};
use cudarc::driver::sys;
use serde_json::{Value, json};

/// Bytes of each piece, and words of it that a kernel counts up.
const SIZE: usize = 1 << 20;
const WORDS: u32 = 1024;
/// The work that the free waits behind.
const BUSY_NS: u64 = 20_000_000;
/// Pieces that are allocated while it runs.
const PIECES: u8 = 8;

fn allocate_in(stream: sys::CUstream, size: usize) -> Result<u64, GpuError> {
    let mut address = 0;
    // SAFETY: the result is a variable of ours.
    check("cuMemAllocAsync", unsafe { sys::cuMemAllocAsync(&raw mut address, size, stream) })?;
    Ok(address)
}

fn free_in(stream: sys::CUstream, address: u64) -> sys::CUresult {
    // SAFETY: what is none is a number to the driver, which says so.
    unsafe { sys::cuMemFreeAsync(address, stream) }
}

/// Frees behind a kernel, allocates beside it, and looks at the bytes.
pub(super) fn work(gpu: &mut Gpu) -> Result<Value, GpuError> {
    let mut stream = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, 1) })?;
    let (spin, increment) = (gpu.kernel("spin")?, gpu.kernel("increment")?);
    let address = allocate_in(stream, SIZE)?;
    fill(address, SIZE, 9)?;
    gpu.launch_in(Stream(stream), spin, 1, &[Argument::U64(BUSY_NS)])?;
    gpu.launch_in(Stream(stream), increment, WORDS, &[Argument::U64(address), Argument::U32(WORDS)])?;
    check("cuMemFreeAsync", free_in(stream, address))?;
    // The kernel has not begun yet. Whatever is allocated now is not what it will write to.
    let mut pieces = Vec::new();
    for seed in 1..=PIECES {
        let piece = allocate(SIZE)?;
        fill(piece, SIZE, seed)?;
        pieces.push((piece, seed));
    }
    // SAFETY: the stream is ours.
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream) })?;
    let mut are_intact = true;
    for (piece, seed) in pieces {
        are_intact &= is_filled(piece, SIZE, seed)?;
        // Either way of freeing serves either kind of memory.
        check("cuMemFreeAsync", free_in(stream, piece))?;
    }
    let last = allocate_in(stream, SIZE)?;
    check("cuMemFree", free(last))?;
    let nothing = free_in(stream, 0x10) as u32;
    // SAFETY: as above.
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream) })?;
    // SAFETY: the stream is ours and not used again.
    check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(stream) })?;
    Ok(json!({ "are_intact": are_intact, "nothing": nothing }))
}
