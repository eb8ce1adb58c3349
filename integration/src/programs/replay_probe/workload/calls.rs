//! Calls of the driver that a round is made of.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::WORDS_BYTES;
use crate::programs::gpu::{GpuError, KERNELS, Stream};
use crate::programs::memory_probe::check;
use cudarc::driver::sys;

pub(super) fn current() -> usize {
    let mut context = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    let _null_if_refused = unsafe { sys::cuCtxGetCurrent(&raw mut context) };
    context.expose_provenance()
}

pub(super) fn unsafe_copy(host: *mut u32, address: u64, stream: Stream) -> sys::CUresult {
    // SAFETY: the destination is as long as the copy and lives as long as the process.
    unsafe { sys::cuMemcpyDtoHAsync_v2(host.cast(), address, WORDS_BYTES, stream.0) }
}

pub(super) fn stream(flags: u32, priority: Option<i32>) -> Result<Stream, GpuError> {
    let mut stream = std::ptr::null_mut();
    let answer = match priority {
        // SAFETY: the result is a variable of ours.
        None => unsafe { sys::cuStreamCreate(&raw mut stream, flags) },
        // SAFETY: as above.
        Some(priority) => unsafe { sys::cuStreamCreateWithPriority(&raw mut stream, flags, priority) },
    };
    check("cuStreamCreate", answer)?;
    Ok(Stream(stream))
}

pub(super) fn event() -> Result<sys::CUevent, GpuError> {
    let mut event = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, 0) })?;
    Ok(event)
}

pub(super) fn record(event: sys::CUevent, stream: Stream) -> Result<(), GpuError> {
    // SAFETY: both live as long as the process.
    check("cuEventRecord", unsafe { sys::cuEventRecord(event, stream.0) })
}

pub(super) fn synchronize(stream: Stream) -> Result<(), GpuError> {
    // SAFETY: it lives as long as the process.
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream.0) })
}

pub(super) fn library_kernel() -> Result<sys::CUkernel, GpuError> {
    let (mut library, mut kernel) = (std::ptr::null_mut(), std::ptr::null_mut());
    let null = std::ptr::null_mut;
    // SAFETY: the image ends with NUL, and there are no options.
    let answer = unsafe {
        sys::cuLibraryLoadData(
            &raw mut library,
            KERNELS.as_ptr().cast(),
            null(),
            std::ptr::null_mut(),
            0,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            0,
        )
    };
    check("cuLibraryLoadData", answer)?;
    // SAFETY: the result is a variable of ours.
    check("cuLibraryGetKernel", unsafe { sys::cuLibraryGetKernel(&raw mut kernel, library, c"increment".as_ptr()) })?;
    Ok(kernel)
}
