//! Events that processes share: made, given away and opened.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::super::{parsed, text_of};
use crate::programs::gpu::GpuError;
use crate::programs::memory_probe::check;
use cudarc::driver::sys;
use std::ptr;

pub(super) fn new_event() -> Result<sys::CUevent, GpuError> {
    let mut event = ptr::null_mut();
    let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 | sys::CUevent_flags::CU_EVENT_INTERPROCESS as u32;
    // SAFETY: the result is a variable of ours.
    check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, flags) })?;
    Ok(event)
}

pub(super) fn event_handle(event: sys::CUevent) -> Result<String, GpuError> {
    let mut handle = sys::CUipcEventHandle { reserved: [0; 64] };
    // SAFETY: the result is a variable of ours.
    check("cuIpcGetEventHandle", unsafe { sys::cuIpcGetEventHandle(&raw mut handle, event) })?;
    Ok(text_of(sys::CUipcMemHandle { reserved: handle.reserved }))
}

pub(super) fn opened_event(text: &str) -> Result<sys::CUevent, GpuError> {
    let mut event = ptr::null_mut();
    let handle = sys::CUipcEventHandle { reserved: parsed(text)?.reserved };
    // SAFETY: the result is a variable of ours.
    check("cuIpcOpenEventHandle", unsafe { sys::cuIpcOpenEventHandle(&raw mut event, handle) })?;
    Ok(event)
}
