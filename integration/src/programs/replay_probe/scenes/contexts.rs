//! Contexts besides the primary one, which end before a fault or not.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{GpuError, Of, Stage, beside, check, code, current, enter, event, function, module};
use crate::programs::gpu::{Argument, KERNELS, Kernel};
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

/// `CU_GREEN_CTX_DEFAULT_STREAM`.
const DEFAULT_STREAM: c_uint = 1;
/// What is written.
const BYTE: u8 = 7;

/// Whether a call succeeds on what was made in a green context that ended before a fault, and whether it has not lost what was
/// written to it.
pub(super) fn green(stage: &Stage) -> Result<Value, GpuError> {
    let primary = current()?;
    // SAFETY: zeros are a resource of no kind, and the results are variables of ours, here and below.
    let mut resource: sys::CUdevResource = unsafe { std::mem::zeroed() };
    let (mut description, mut green, mut context) = (null_mut(), null_mut(), null_mut());
    let kind = sys::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    // SAFETY: as above.
    check("cuDeviceGetDevResource", unsafe { sys::cuDeviceGetDevResource(0, &raw mut resource, kind) })?;
    // SAFETY: as above.
    let described = unsafe { sys::cuDevResourceGenerateDesc(&raw mut description, &raw mut resource, 1) };
    check("cuDevResourceGenerateDesc", described)?;
    // SAFETY: as above.
    check("cuGreenCtxCreate", unsafe { sys::cuGreenCtxCreate(&raw mut green, description, 0, DEFAULT_STREAM) })?;
    // SAFETY: as above.
    check("cuCtxFromGreenCtx", unsafe { sys::cuCtxFromGreenCtx(&raw mut context, green) })?;
    enter(context)?;
    let (memory, of, at) = (allocate(4)?, module(KERNELS)?, event()?);
    // SAFETY: it is ours.
    check("cuMemsetD8", unsafe { sys::cuMemsetD8_v2(memory, BYTE, 4) })?;
    let mut kernel = null_mut();
    let name = c"increment".as_ptr();
    // SAFETY: as above.
    check("cuModuleGetFunction", unsafe { sys::cuModuleGetFunction(&raw mut kernel, of, name) })?;
    enter(primary)?;
    // SAFETY: it is not used again.
    check("cuGreenCtxDestroy", unsafe { sys::cuGreenCtxDestroy(green) })?;
    let found = beside::fault(stage)?;
    stage.gpu.launch(Kernel(kernel), 1, &[Argument::U64(memory), Argument::U32(1)])?;
    // SAFETY: it is ours, here and below.
    let recorded = code(unsafe { sys::cuEventRecord(at, null_mut()) });
    let words = stage.gpu.read(memory, 1)?;
    // SAFETY: as above.
    let freed = code(unsafe { sys::cuMemFree_v2(memory) });
    Ok(json!({ "found": found, "words": words, "recorded": recorded, "freed": freed }))
}

pub(super) fn detached_once(stage: &Stage) -> Result<Value, GpuError> {
    detached(stage, 1)
}

pub(super) fn detached_twice(stage: &Stage) -> Result<Value, GpuError> {
    detached(stage, 2)
}
