//! Streams, events, modules and host memory, of each kind some destroyed and some left.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::check;
use super::host::facts;
use crate::programs::gpu::{GpuError, KERNELS};
use cudarc::driver::sys;
use serde_json::{Value, json};

/// Bytes of the host memory.
const HOST_BYTES: usize = 4096;

fn stream() -> Result<sys::CUstream, GpuError> {
    let mut stream = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, 1) })?;
    Ok(stream)
}

fn event() -> Result<sys::CUevent, GpuError> {
    let mut event = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, 2) })?;
    Ok(event)
}

fn module() -> Result<sys::CUmodule, GpuError> {
    let mut module = std::ptr::null_mut();
    // Whoever wants to load it again must have a copy: this one is given back.
    let image = KERNELS.as_bytes().to_vec();
    // SAFETY: the image is a text that ends with NUL.
    check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) })?;
    Ok(module)
}

fn function(module: sys::CUmodule) -> Result<sys::CUfunction, GpuError> {
    let mut function = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours, the name a C string.
    check("cuModuleGetFunction", unsafe { sys::cuModuleGetFunction(&raw mut function, module, c"spin".as_ptr()) })?;
    Ok(function)
}

fn host_memory() -> Result<*mut std::ffi::c_void, GpuError> {
    let mut memory = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&raw mut memory, HOST_BYTES, 0) })?;
    Ok(memory)
}

/// Makes and destroys; what is left stays until the process ends.
pub(super) fn work() -> Result<Value, GpuError> {
    let streams = [stream()?, stream()?, stream()?];
    // SAFETY: it is ours and not used again, except by the call that is to fail.
    check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(streams[1]) })?;
    // SAFETY: the driver looks whether it is a stream.
    let query = unsafe { sys::cuStreamQuery(streams[2]) } as u32;
    let events = [event()?, event()?];
    // SAFETY: both are ours.
    check("cuEventRecord", unsafe { sys::cuEventRecord(events[1], streams[0]) })?;
    // SAFETY: it is ours.
    check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(events[1]) })?;
    // SAFETY: it is ours and not used again.
    check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(events[0]) })?;
    let modules = [module()?, module()?];
    let is_same = function(modules[0])? == function(modules[1])?;
    // SAFETY: it is ours, and its function is not used again.
    check("cuModuleUnload", unsafe { sys::cuModuleUnload(modules[0]) })?;
    let memory = [host_memory()?, host_memory()?];
    // SAFETY: it is ours and not used again.
    check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(memory[0]) })?;
    Ok(json!({ "query": query, "is_same": is_same, "host": facts()? }))
}
