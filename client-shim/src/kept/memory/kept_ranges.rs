//! `mps_shim_regions`: which memory is kept by which descriptor, for programs that hand it on. The declaration is in
//! `include/mps_shim.h`.
#![expect(unsafe_code, reason = "a C function that is exported and writes where its caller says")]

use std::ffi::c_int;

use crate::{kept::memory, process::panics::unpanicked};

/// `struct mps_shim_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptRange {
    /// Its address.
    pub(crate) base: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// Bytes from the beginning of what the descriptor holds.
    pub(crate) offset: u64,
    /// Ordinal, -1 if it is not known.
    pub(crate) device: c_int,
    /// What keeps it.
    pub(crate) descriptor: c_int,
}

/// Writes the kept ranges, `room` of them at most, and returns how many there are.
///
/// # Safety
/// `regions` has room for as many, or `room` is 0.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, expect(dead_code, reason = "called from outside"))]
unsafe extern "C" fn mps_shim_regions(regions: *mut KeptRange, room: usize) -> usize {
    let kept = unpanicked(|| memory(|memory| memory.kept())).and_then(Result::ok).unwrap_or_default();
    for (index, range) in kept.iter().take(room).enumerate() {
        // SAFETY: by the contract there is room for it.
        unsafe { regions.wrapping_add(index).write_unaligned(*range) };
    }
    kept.len()
}
