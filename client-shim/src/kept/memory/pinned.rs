//! Host memory of `cuMemHostAlloc` and `cuMemAllocHost`: pages of this process in the place of the driver's.
//!
//! The driver's own host memory ends with the copy of the driver that gave it out. So a program is given anonymous pages
//! that are registered with the driver, and a fresh copy is told of them by another registration at the same address;
//! their bytes are never touched. The pages are shared with forked children, so that no write after a fork moves them
//! away from what the devices see, and are zero at first.
//!
//! | of a program | is |
//! |---|---|
//! | `CU_MEMHOSTALLOC_PORTABLE`, `…_DEVICEMAP` | always so, as the driver's documentation says of its own under unified addressing |
//! | `CU_MEMHOSTALLOC_WRITECOMBINED` | a hint: the pages are cached like all others |
//! | what `cuMemHostGetFlags` says | what the driver says of a page of its own with the same flags |
//! | what `cuPointerGetAttribute` says | what the driver says of registered memory |
//! | `cuMemHostUnregister` of it | refused with `CUDA_ERROR_INVALID_VALUE`, as the driver does (measured, driver 580) |
//!
//! Where the driver does not register the pages, or would reach them by another address, it allocates as ever, and the
//! memory is counted as not recoverable.
#![expect(unsafe_code, reason = "maps pages, calls the driver and writes its result parameters")]

use std::{
    ffi::{c_uint, c_void},
    ptr,
};

use crate::cuda::{
    call::{Bypass, Driver},
    functions::host::{cuMemAllocHost_v2, cuMemFreeHost, cuMemHostAlloc, cuMemHostGetFlags, cuMemHostUnregister},
    result::CUresult,
    types::{CUdeviceptr, Key as _},
};
use crate::kept::{
    account::{self, Reason},
    memory,
    objects::{current::context, destroyed, keep, recipes::Recipe},
    recipes,
};

/// All flags of `cuMemHostAlloc` that are known: portable, mapped, write-combined.
const KNOWN_FLAGS: c_uint = 7;
/// `CU_MEMHOSTREGISTER_PORTABLE`, `CU_MEMHOSTREGISTER_DEVICEMAP`.
const REGISTERED_AS: c_uint = 3;
/// Bytes of a page, and of a large one, at which memory of that size begins.
const PAGE: usize = 4096;
const LARGE_PAGE: usize = 2 << 20;
/// Sizes from which on the driver alone says no, in bytes: more than a process has addresses.
const ABSURD: usize = 1 << 46;
/// The device reaches the pages by another address.
const OTHER_ADDRESS: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;

/// Logic of `cuMemHostAlloc`.
pub(crate) fn allocate(
    driver: &mut Driver<cuMemHostAlloc::Signature>,
    place: *mut *mut c_void,
    size: usize,
    flags: c_uint,
) -> Result<CUresult, Bypass> {
    obtain("cuMemHostAlloc", place, size, flags, || driver.pass())
}

/// Logic of `cuMemAllocHost`.
pub(crate) fn allocate_plain(
    driver: &mut Driver<cuMemAllocHost_v2::Signature>,
    place: *mut *mut c_void,
    size: usize,
) -> Result<CUresult, Bypass> {
    obtain("cuMemAllocHost", place, size, 0, || driver.pass())
}

/// Pages for a request, or the driver's own memory by `by_driver`.
fn obtain(
    function: &'static str,
    place: *mut *mut c_void,
    size: usize,
    flags: c_uint,
    by_driver: impl FnOnce() -> CUresult,
) -> Result<CUresult, Bypass> {
    // Where nothing is recorded the driver allocates, and nothing is counted.
    recipes(|_| ())?;
    if place.is_null() || !(1..ABSURD).contains(&size) || flags & !KNOWN_FLAGS != 0 {
        return Err(Bypass::ForTheDriver);
    }
    let context = context()?;
    if let Some(pages) = Pages::map(size) {
        if register(pages.start, size).is_ok() {
            // SAFETY: the program wants its result there.
            unsafe { *place = ptr::with_exposed_provenance_mut(pages.start) };
            recipes(|recipes| recipes.keep(pages.start, Recipe::HostMemory { context, size, flags }))?;
            return Ok(CUresult::CUDA_SUCCESS);
        }
        pages.unmap();
    }
    let answer = by_driver();
    if answer.is_success() {
        // SAFETY: the driver has just written there.
        account::made(function, Reason::HostMemory, unsafe { *place }.key());
    }
    Ok(answer)
}

/// Registers pages with the driver, in the current context.
///
/// # Errors
/// The driver's answer; or that it would reach them by another address.
pub(crate) fn register(start: usize, size: usize) -> Result<(), CUresult> {
    let pages = ptr::with_exposed_provenance_mut::<c_void>(start);
    let answer = driver!(host::cuMemHostRegister_v2(pages, size, REGISTERED_AS));
    if !answer.is_success() {
        return Err(answer);
    }
    let mut reached: CUdeviceptr = 0;
    let answer = driver!(host::cuMemHostGetDevicePointer_v2(&raw mut reached, pages, 0));
    if answer.is_success() && reached == start.key() {
        return Ok(());
    }
    let _as_before = driver!(host::cuMemHostUnregister(pages));
    Err(if answer.is_success() { OTHER_ADDRESS } else { answer })
}

/// Logic of `cuMemFreeHost`.
pub(crate) fn free(driver: &mut Driver<cuMemFreeHost::Signature>, start: *mut c_void) -> Result<CUresult, Bypass> {
    let Some(pages) = recipes(|recipes| recipes.host_memory(start.addr()))?.filter(|of| of.start == start.addr())
    else {
        let answer = driver.pass();
        if answer.is_success() {
            account::gone(start.key());
        }
        return Ok(answer);
    };
    // As the driver's own does, this waits for what may still use the memory.
    let answer = destroyed(pages.start, || driver!(host::cuMemHostUnregister(start)))?;
    if answer.is_success() {
        Pages::new(pages.start, pages.size).unmap();
    }
    Ok(answer)
}

/// Logic of `cuMemHostGetFlags`.
pub(crate) fn flags(
    _driver: &mut Driver<cuMemHostGetFlags::Signature>,
    flags: *mut c_uint,
    address: *mut c_void,
) -> Result<CUresult, Bypass> {
    let known = recipes(|recipes| recipes.host_memory(address.addr()))?.ok_or(Bypass::NotOurs)?;
    if flags.is_null() {
        return Err(Bypass::ForTheDriver);
    }
    // SAFETY: the program wants its result there.
    unsafe { *flags = said_of(known.flags) };
    Ok(CUresult::CUDA_SUCCESS)
}

/// After `cuMemHostRegister`. The memory itself is the program's and stays; its address is its handle.
pub(crate) fn register_range(start: *mut c_void, size: usize, flags: c_uint) -> Result<(), Bypass> {
    keep("cuMemHostRegister", start.addr(), Recipe::HostRange { context: context()?, size, flags })
}

/// Logic of `cuMemHostUnregister`. What a program has allocated it has not registered.
pub(crate) fn unregister_range(
    driver: &mut Driver<cuMemHostUnregister::Signature>,
    start: *mut c_void,
) -> Result<CUresult, Bypass> {
    if recipes(|recipes| recipes.host_memory(start.addr()))?.is_some() {
        return Ok(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    destroyed(start.addr(), || driver.pass())
}

/// What the driver says of memory of its own that was asked for with these flags: it is asked once, of a page that it
/// allocates for that. Where it allocates none, the flags as given.
fn said_of(flags: c_uint) -> c_uint {
    if let Ok(Some(said)) = memory(|memory| memory.pinned_flags.get(&flags).copied()) {
        return said;
    }
    let (mut sample, mut said) = (ptr::null_mut(), flags);
    if !driver!(host::cuMemHostAlloc(&raw mut sample, PAGE, flags)).is_success() {
        return flags;
    }
    let answer = driver!(host::cuMemHostGetFlags(&raw mut said, sample));
    let _freed = driver!(host::cuMemFreeHost(sample));
    if !answer.is_success() {
        return flags;
    }
    // What is not kept is asked again.
    let _known = memory(|memory| memory.pinned_flags.insert(flags, said));
    said
}

/// Pages of this process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    start: usize,
    /// Bytes, a multiple of a page.
    length: usize,
}

impl Pages {
    /// The pages that [`Self::map`] has made for so many bytes.
    pub(crate) fn new(start: usize, size: usize) -> Self {
        Self { start, length: size.next_multiple_of(PAGE) }
    }

    /// New ones, zero, at a multiple of a large page if they fill one.
    fn map(size: usize) -> Option<Self> {
        let length = size.next_multiple_of(PAGE);
        let spare = if length < LARGE_PAGE { 0 } else { LARGE_PAGE };
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), length + spare, access, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return None;
        }
        let first = mapped.expose_provenance();
        if spare == 0 {
            return Some(Self { start: first, length });
        }
        let start = first.next_multiple_of(LARGE_PAGE);
        Self { start: first, length: start - first }.unmap();
        Self { start: start + length, length: first + spare - start }.unmap();
        // SAFETY: the pages are new, and a refused hint changes nothing.
        let _refused = unsafe { libc::madvise(ptr::with_exposed_provenance_mut(start), length, libc::MADV_HUGEPAGE) };
        Some(Self { start, length })
    }

    /// Gives them back.
    pub(crate) fn unmap(self) {
        if self.length > 0 {
            // SAFETY: they were mapped above, and the program has freed them or never had them.
            unsafe { libc::munmap(ptr::with_exposed_provenance_mut(self.start), self.length) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LARGE_PAGE, PAGE, Pages};

    #[test]
    fn pages_are_zero_aligned_and_no_more_than_asked_for() {
        for (size, length, alignment) in [
            (1, PAGE, PAGE),
            (PAGE + 1, 2 * PAGE, PAGE),
            (LARGE_PAGE, LARGE_PAGE, LARGE_PAGE),
            (5 * LARGE_PAGE + 1, 5 * LARGE_PAGE + PAGE, LARGE_PAGE),
        ] {
            let pages = Pages::map(size).expect("there is memory");
            assert_eq!((pages.length, pages.start % alignment), (length, 0), "{size}");
            assert_eq!(pages, Pages::new(pages.start, size));
            let bytes = std::ptr::with_exposed_provenance_mut::<u8>(pages.start);
            // SAFETY: so many bytes were just mapped.
            let slice = unsafe { std::slice::from_raw_parts_mut(bytes, length) };
            assert!(slice.iter().all(|byte| *byte == 0));
            slice[length - 1] = 1;
            pages.unmap();
        }
    }
}
