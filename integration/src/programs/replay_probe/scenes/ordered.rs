//! Memory in a stream's order, of a program that runs far ahead of its GPU: no more of it than with the driver's own pools.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{Argument, GpuError, Stage, Stream, check, stream};
use crate::programs::memory_probe::pools;
use cudarc::driver::sys::{self, CUmemPool_attribute_enum as Attribute};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Bytes of a piece, and how many there are one after the other.
const SIZE: usize = 64 << 20;
const PIECES: usize = 40;
/// How long the stream is busy before all of them, in nanoseconds.
const BUSY: u64 = 300_000_000;
const WORDS: u32 = 256;

pub(super) fn free_bytes() -> Result<usize, GpuError> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both are variables of ours.
    check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
    Ok(free)
}

pub(super) fn allocate(of: sys::CUstream, size: usize) -> Result<u64, GpuError> {
    let mut address = 0;
    // SAFETY: the result is a variable of ours.
    check("cuMemAllocAsync", unsafe { sys::cuMemAllocAsync(&raw mut address, size, of) })?;
    Ok(address)
}

pub(super) fn free(of: sys::CUstream, address: u64) -> Result<(), GpuError> {
    // SAFETY: it is ours and is not used again.
    check("cuMemFreeAsync", unsafe { sys::cuMemFreeAsync(address, of) })
}

pub(super) fn wait(of: sys::CUstream) -> Result<(), GpuError> {
    // SAFETY: it is ours.
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(of) })
}

/// A piece comes and goes again and again while the stream is busy. It is one piece of memory for its stream, and no other
/// stream gets it; what a pool is told to keep stays, and goes when it is told to trim.
pub(super) fn pieces(stage: &Stage) -> Result<Value, GpuError> {
    let (own, other, pool) = (stream(1)?, stream(1)?, pools::default_pool()?);
    pools::set(pool, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)?;
    let before = free_bytes()?;
    let taken = || Ok::<_, GpuError>(before.saturating_sub(free_bytes()?).div_ceil(SIZE));
    stage.gpu.launch_in(Stream(own), stage.spin, 1, &[Argument::U64(BUSY)])?;
    let mut addresses = BTreeSet::new();
    for _ in 0..PIECES {
        let address = allocate(own, SIZE)?;
        stage.gpu.launch_in(Stream(own), stage.increment, WORDS, &[Argument::U64(address), Argument::U32(WORDS)])?;
        free(own, address)?;
        addresses.insert(address);
    }
    let meanwhile = taken()?;
    // Nothing of it is another stream's before its work is done.
    let theirs = allocate(other, SIZE)?;
    let is_apart = !addresses.contains(&theirs);
    free(other, theirs)?;
    wait(other)?;
    wait(own)?;
    let again = allocate(own, SIZE)?;
    let is_kept = addresses.contains(&again) || again == theirs;
    free(own, again)?;
    wait(own)?;
    let kept = taken()?;
    // SAFETY: it is the device's.
    check("cuMemPoolTrimTo", unsafe { sys::cuMemPoolTrimTo(pool, 0) })?;
    // The stream ends, and another one may have its handle: it has nothing of the first one's order.
    stage.gpu.launch_in(Stream(own), stage.spin, 1, &[Argument::U64(BUSY)])?;
    let last = allocate(own, SIZE)?;
    free(own, last)?;
    // SAFETY: it is ours and is not used again.
    check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(own) })?;
    let later = stream(1)?;
    let is_new = allocate(later, SIZE)? != last;
    Ok(json!({
        "addresses": addresses.len(), "meanwhile": meanwhile <= 2, "is_apart": is_apart, "is_kept": is_kept,
        "kept": (1..=2).contains(&kept), "trimmed": taken()? <= 2, "is_new": is_new,
    }))
}
