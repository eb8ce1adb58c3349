//! Host memory of `cuMemHostAlloc` and `cuMemAllocHost`, made once: a pattern that never changes, and words that kernels
//! count up where they are.
#![expect(unsafe_code, reason = "the driver's functions are unsafe, and so is memory by address")]

use super::failed;
use super::workload::{pattern, words_are};
use crate::programs::gpu::{Argument, Gpu, GpuError, Kernel, Stream};
use crate::programs::memory_probe::check;
use cudarc::driver::sys;
use std::ffi::c_void;

/// Bytes of the pattern: more than a large page, and no multiple of a page.
const PATTERN: usize = (3 << 20) + 12;
const SEED: u8 = 99;
/// Words that a round counts up.
const WORDS: u32 = 1 << 14;

/// What the driver says of an address: flags, kind of memory, the address for devices.
type Said = [u64; 3];

/// The memory.
pub(super) struct Pinned {
    pattern: *mut u8,
    words: *mut u32,
    count: u32,
    said: [Said; 2],
}

fn said(address: *mut c_void) -> Result<Said, GpuError> {
    let (mut flags, mut kind, mut device) = (0, 0_u32, 0);
    // SAFETY: the results are variables of ours.
    check("cuMemHostGetFlags", unsafe { sys::cuMemHostGetFlags(&raw mut flags, address) })?;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let place = (&raw mut kind).cast();
    let number = address.addr() as u64;
    // SAFETY: the variable is of the attribute's type.
    check("cuPointerGetAttribute", unsafe { sys::cuPointerGetAttribute(place, attribute, number) })?;
    // SAFETY: as above.
    let answer = unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut device, address, 0) };
    check("cuMemHostGetDevicePointer", answer)?;
    Ok([flags.into(), kind.into(), device])
}

impl Pinned {
    pub(super) fn new() -> Result<Self, GpuError> {
        let (mut bytes, mut words) = (std::ptr::null_mut::<c_void>(), std::ptr::null_mut::<c_void>());
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_WRITECOMBINED;
        // SAFETY: the result is a variable of ours.
        check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&raw mut bytes, PATTERN, flags) })?;
        // SAFETY: as above.
        check("cuMemAllocHost", unsafe { sys::cuMemAllocHost_v2(&raw mut words, WORDS as usize * 4) })?;
        let source = pattern(PATTERN, SEED);
        // SAFETY: the memory is as long.
        unsafe { bytes.cast::<u8>().copy_from_nonoverlapping(source.as_ptr(), PATTERN) };
        let mut pinned =
            Self { pattern: bytes.cast(), words: words.cast(), count: 0, said: [said(bytes)?, said(words)?] };
        pinned.begin_anew();
        Ok(pinned)
    }

    /// Counts the words up on a stream, waits, and compares.
    pub(super) fn round(&mut self, gpu: &Gpu, increment: Kernel, stream: Stream) -> Result<(), GpuError> {
        let arguments = [Argument::U64(self.words.addr() as u64), Argument::U32(WORDS)];
        gpu.launch_in(stream, increment, WORDS, &arguments)?;
        // SAFETY: it lives as long as the process.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream.0) })?;
        self.count += 1;
        // SAFETY: the memory has so many words, and the kernel has ended.
        let words = unsafe { std::slice::from_raw_parts(self.words, WORDS as usize) };
        if words_are(words, self.count) {
            Ok(())
        } else {
            Err(failed("pinned memory", format_args!("a word is not {}", self.count)))
        }
    }

    /// After lost work, or at first.
    pub(super) fn begin_anew(&mut self) {
        self.count = 0;
        // SAFETY: the memory has so many words, and nothing is on its way.
        unsafe { self.words.write_bytes(0, WORDS as usize) };
    }

    /// What is not as it was.
    pub(super) fn wrong(&self) -> Result<Option<String>, GpuError> {
        // SAFETY: the memory has so many bytes, and nobody writes there.
        let bytes = unsafe { std::slice::from_raw_parts(self.pattern, PATTERN) };
        if bytes != pattern(PATTERN, SEED) {
            return Ok(Some("pinned memory has another pattern".to_owned()));
        }
        let said = [said(self.pattern.cast())?, said(self.words.cast())?];
        Ok((said != self.said)
            .then(|| format!("the driver says {said:?} of pinned memory in place of {:?}", self.said)))
    }
}
