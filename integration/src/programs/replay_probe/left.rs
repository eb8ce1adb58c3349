//! What is in the way of a recovery as long as it is there: one that has ended, and one that has not.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use crate::programs::gpu::GpuError;
use crate::programs::memory_probe::check;
use cudarc::driver::sys;
use std::ptr;

fn linker() -> Result<sys::CUlinkState, GpuError> {
    let mut linker = ptr::null_mut();
    // SAFETY: the result is a variable of ours, and there are no options.
    let answer = unsafe { sys::cuLinkCreate_v2(0, ptr::null_mut(), ptr::null_mut(), &raw mut linker) };
    check("cuLinkCreate", answer)?;
    Ok(linker)
}

/// Has one linker that has ended.
pub(super) fn end_a_linker() -> Result<(), GpuError> {
    let ended = linker()?;
    // SAFETY: it was just made.
    check("cuLinkDestroy", unsafe { sys::cuLinkDestroy(ended) })
}

/// Has one linker that is at work.
pub(super) fn leave_a_linker() -> Result<(), GpuError> {
    linker().map(drop)
}

fn shared_event() -> Result<sys::CUevent, GpuError> {
    let mut event = ptr::null_mut();
    let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 | sys::CUevent_flags::CU_EVENT_INTERPROCESS as u32;
    // SAFETY: the result is a variable of ours.
    check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, flags) })?;
    let mut handle = sys::CUipcEventHandle { reserved: [0; 64] };
    // SAFETY: as above.
    check("cuIpcGetEventHandle", unsafe { sys::cuIpcGetEventHandle(&raw mut handle, event) })?;
    Ok(event)
}

/// Has an event for other processes that has ended.
pub(super) fn end_a_shared_event() -> Result<(), GpuError> {
    let ended = shared_event()?;
    // SAFETY: it was just made.
    check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(ended) })
}

/// Has an event for other processes.
pub(super) fn leave_a_shared_event() -> Result<(), GpuError> {
    shared_event().map(drop)
}
