//! What a program copies into its modules' variables, or sets there, is noted, so that a fresh copy's variables can be
//! given it again.
//!
//! Only while the program has the address of any variable; else a copy or a set costs one look at a number.
//!
//! | what was written by | is |
//! |---|---|
//! | a copy from pageable memory, a copy that has ended, a set | noted, the latest bytes of each range |
//! | a copy from pinned memory that has not ended, from the device, from an array | forgotten: nobody here knows the bytes |
//! | a copy from where the driver cannot say any more what it is, as when the context has died since | forgotten |
//! | a kernel, a graph, a batch of copies, a wait or write in a stream's order | not seen |
//!
//! A stream that is being captured executes nothing, so what it is given is not noted. A module's variables are in doubt
//! after every recovery (`recovery`): this is what makes constants right again, which no kernel writes.
//!
//! Between a copy and our question about its source a context can die, and the driver then takes an address of a device's
//! for one that it has never heard of, as it does pageable memory. So bytes are read by a system call, which says so where
//! there is nothing that the host can read.
#![expect(unsafe_code, reason = "reads what the program has given to the driver")]

use std::{
    ffi::{c_uint, c_void},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{
    cuda::{
        arguments::structures::{Destination, WithDestination},
        call::Bypass,
        result::CUresult,
        types::{CUdeviceptr, Key as _},
    },
    kept::{is_capturing, memory::arena, objects::recipes::MOST_WRITTEN, recipes},
    process::peek,
};

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, and what it says of the host's memory.
const MEMORY_TYPE: c_uint = 2;
const OF_HOST: u32 = 1;

/// Without an address of any variable, copies and sets take no lock.
static HAS_VARIABLES: AtomicBool = AtomicBool::new(false);

/// The program has the address of a variable.
pub(super) fn begin() {
    HAS_VARIABLES.store(true, Ordering::Relaxed);
}

/// Whether the program has the address of any variable.
pub(crate) fn has_variables() -> bool {
    HAS_VARIABLES.load(Ordering::Relaxed)
}

/// Where a call has written, if that is in a variable.
struct Target {
    address: usize,
    length: usize,
}

impl Target {
    fn new(address: CUdeviceptr, length: usize) -> Result<Self, Bypass> {
        if !has_variables() {
            return Err(Bypass::NotOurs);
        }
        let address = usize::try_from(address).map_err(|_| Bypass::ForTheDriver)?;
        let is_met = recipes(|recipes| !recipes.variables_in(address, length).is_empty())?;
        // What is captured is not done, and a graph's work is not seen.
        if is_met && !is_capturing()? { Ok(Self { address, length }) } else { Err(Bypass::NotOurs) }
    }

    /// These bytes, if they are known.
    fn written(&self, bytes: Option<&[u8]>) -> Result<(), Bypass> {
        recipes(|recipes| recipes.write(self.address, self.length, bytes))
    }
}

/// What memory an address is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Pinned.
    Host,
    /// The driver does not know it.
    Pageable,
    /// A device's, or something that nobody says.
    NotOurs,
}

impl Source {
    fn of(address: u64) -> Self {
        // An arena's memory stays a device's when its context has died.
        if arena::holds(address, 1) {
            return Self::NotOurs;
        }
        let mut kind = 0_u32;
        let answer = driver!(memory::cuPointerGetAttribute((&raw mut kind).cast::<c_void>(), MEMORY_TYPE, address));
        Self::meant(answer, kind)
    }

    /// What the driver means by an answer.
    fn meant(answer: CUresult, kind: u32) -> Self {
        match (answer, kind) {
            (CUresult::CUDA_SUCCESS, OF_HOST) => Self::Host,
            (CUresult::CUDA_ERROR_INVALID_VALUE, _) => Self::Pageable,
            _ => Self::NotOurs,
        }
    }
}

/// A copy from a host's address: what it has written is unknown while one from pinned memory has not ended.
pub(crate) fn copied(to: CUdeviceptr, from: *const c_void, length: usize, has_ended: bool) -> Result<(), Bypass> {
    copied_from_any(to, from.addr().key(), length, has_ended)
}

/// A copy from an address of either kind.
pub(crate) fn copied_from_any(
    to: CUdeviceptr,
    from: CUdeviceptr,
    length: usize,
    has_ended: bool,
) -> Result<(), Bypass> {
    let target = Target::new(to, length)?;
    let is_known = match Source::of(from) {
        Source::Pageable => true,
        Source::Host => has_ended,
        Source::NotOurs => false,
    };
    let is_kept = is_known && length <= MOST_WRITTEN;
    target.written(is_kept.then(|| peek::bytes(from, length)).flatten().as_deref())
}

/// Nobody here knows what was written.
pub(crate) fn overwritten(to: CUdeviceptr, length: usize) -> Result<(), Bypass> {
    Target::new(to, length)?.written(None)
}

/// The same by several copies.
pub(crate) fn overwritten_in_batch(to: *const CUdeviceptr, lengths: *const usize, count: usize) -> Result<(), Bypass> {
    if !has_variables() {
        return Err(Bypass::NotOurs);
    }
    for index in 0..count {
        // SAFETY: the driver has just read so many.
        let to = unsafe { to.wrapping_add(index).read_unaligned() };
        // SAFETY: as above.
        let length = unsafe { lengths.wrapping_add(index).read_unaligned() };
        // Where there is no variable nothing is noted.
        let _elsewhere = overwritten(to, length);
    }
    Ok(())
}

/// The same by each of so many copies in several dimensions.
pub(crate) fn overwritten_by_each(copies: *const impl WithDestination, count: usize) -> Result<(), Bypass> {
    for index in 0..count {
        // Where there is no variable nothing is noted.
        let _elsewhere = overwritten_by(copies.wrapping_add(index));
    }
    Ok(())
}

/// The same by a copy in several dimensions. One to an array, or to the host, writes no variable.
pub(crate) fn overwritten_by(copy: *const impl WithDestination) -> Result<(), Bypass> {
    if copy.is_null() || !has_variables() {
        return Err(Bypass::NotOurs);
    }
    // SAFETY: the program's argument, which the driver has read too.
    let Destination { address, length } = unsafe { copy.read_unaligned() }.destination();
    overwritten(address.ok_or(Bypass::NotOurs)?, length)
}

/// A pattern was set so many times.
pub(crate) fn set(to: CUdeviceptr, pattern: &[u8], count: usize) -> Result<(), Bypass> {
    let target = Target::new(to, count.saturating_mul(pattern.len()))?;
    let bytes = (target.length <= MOST_WRITTEN).then(|| pattern.repeat(count));
    target.written(bytes.as_deref())
}

#[cfg(test)]
mod tests {
    use super::{CUresult, OF_HOST, Source};

    /// What it says of a device's.
    const OF_DEVICE: u32 = 2;

    /// What the driver says of a context that has died is no word about an address: it was once taken for "pageable", and
    /// the program ended with a segmentation fault where it had copied from a device to a variable.
    #[test]
    fn only_what_the_driver_does_not_know_is_pageable() {
        assert_eq!(Source::meant(CUresult::CUDA_ERROR_INVALID_VALUE, 0), Source::Pageable);
        assert_eq!(Source::meant(CUresult::CUDA_SUCCESS, OF_HOST), Source::Host);
        assert_eq!(Source::meant(CUresult::CUDA_SUCCESS, OF_DEVICE), Source::NotOurs);
        for died in [CUresult(700), CUresult(710), CUresult(719), CUresult(806)] {
            assert_eq!(Source::meant(died, 0), Source::NotOurs, "{died:?}");
        }
    }
}
