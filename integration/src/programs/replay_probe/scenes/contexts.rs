//! Contexts besides the primary one, which end before a fault or not.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{GpuError, Of, Stage, beside, check, function};
use crate::programs::memory_probe::allocate;
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ffi::c_uint;
use std::ptr::null_mut;

/// `cuCtxAttach`.
type Attach = unsafe extern "C" fn(*mut sys::CUcontext, c_uint) -> sys::CUresult;

/// A context with memory that is attached once more than it was made, and then detached so often.
fn detached(stage: &Stage, times: usize) -> Result<Value, GpuError> {
    let (mut made, mut attached) = (null_mut(), null_mut());
    // SAFETY: the function of this name has this type.
    let attach: Attach = unsafe { std::mem::transmute(function(c"cuCtxAttach")?) };
    // SAFETY: as above.
    let detach: Of<sys::CUcontext> = unsafe { std::mem::transmute(function(c"cuCtxDetach")?) };
    // SAFETY: the results are variables of ours.
    check("cuCtxCreate", unsafe { sys::cuCtxCreate_v4(&raw mut made, null_mut(), 0, 0) })?;
    allocate(1 << 20)?;
    // SAFETY: as above.
    check("cuCtxAttach", unsafe { attach(&raw mut attached, 0) })?;
    for _ in 0..times {
        // SAFETY: it is current.
        check("cuCtxDetach", unsafe { detach(made) })?;
    }
    let mut current = null_mut();
    // SAFETY: as above.
    check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&raw mut current) })?;
    if current == made {
        // SAFETY: as above.
        check("cuCtxPopCurrent", unsafe { sys::cuCtxPopCurrent_v2(&raw mut current) })?;
    }
    Ok(json!({ "found": beside::fault(stage)?, "is_same": attached == made }))
}

pub(super) fn detached_once(stage: &Stage) -> Result<Value, GpuError> {
    detached(stage, 1)
}

pub(super) fn detached_twice(stage: &Stage) -> Result<Value, GpuError> {
    detached(stage, 2)
}
