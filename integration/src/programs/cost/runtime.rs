//! The same calls of cudart, which makes them of the driver.
#![expect(unsafe_code, reason = "takes addresses for cudart's functions")]

use super::library::{Library, function};
use super::{Calls, checked};
use crate::programs::gpu::{GpuError, KERNELS};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

/// Bytes of a copy, and of an allocation.
const COPIED: usize = 4;
const ALLOCATED: usize = 512;
/// `cudaStreamNonBlocking`, `cudaEventDisableTiming`, `cudaMemcpyHostToDevice`.
const NON_BLOCKING: c_uint = 1;
const WITHOUT_TIMING: c_uint = 2;
const TO_DEVICE: c_int = 1;

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Dim3 {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

const ONE: Dim3 = Dim3 { x: 1, y: 1, z: 1 };

/// What the calls need, in the context of the first GPU. What is made here stays until the process ends.
pub(super) fn open(name: &str) -> Result<Calls, GpuError> {
    let library = Library::open(name)?;
    let make_stream = function!(library, cudaStreamCreateWithFlags(*mut usize, c_uint))?;
    let make_event = function!(library, cudaEventCreateWithFlags(*mut usize, c_uint))?;
    let allocate = function!(library, cudaMalloc(*mut *mut c_void, usize))?;
    let free = function!(library, cudaFree(*mut c_void))?;
    let pin = function!(library, cudaHostAlloc(*mut *mut c_void, usize, c_uint))?;
    let launch = function!(library, cudaLaunchKernel(*const c_void, Dim3, Dim3, *mut *mut c_void, usize, usize))?;
    let record = function!(library, cudaEventRecord(usize, usize))?;
    let has_come = function!(library, cudaEventQuery(usize))?;
    let wait = function!(library, cudaStreamWaitEvent(usize, usize, c_uint))?;
    let query = function!(library, cudaStreamQuery(usize))?;
    let copy = function!(library, cudaMemcpyAsync(*mut c_void, *const c_void, usize, c_int, usize))?;
    let device = function!(library, cudaGetDevice(*mut c_int))?;
    let synchronize = function!(library, cudaDeviceSynchronize())?;

    let (mut stream, mut event, mut memory, mut pinned) = (0, 0, ptr::null_mut(), ptr::null_mut());
    checked("cudaStreamCreateWithFlags", make_stream(&raw mut stream, NON_BLOCKING))?;
    checked("cudaEventCreateWithFlags", make_event(&raw mut event, WITHOUT_TIMING))?;
    checked("cudaMalloc", allocate(&raw mut memory, ALLOCATED))?;
    checked("cudaHostAlloc", pin(&raw mut pinned, COPIED, 0))?;
    let kernel = spin(library)?;
    let arguments = super::no_time();
    Ok(Calls {
        kinds: vec![
            ("launch", Box::new(move || launch(kernel, ONE, ONE, arguments, 0, stream))),
            ("record", Box::new(move || record(event, stream))),
            ("event query", Box::new(move || has_come(event))),
            ("wait for an event", Box::new(move || wait(stream, event, 0))),
            ("query", Box::new(move || query(stream))),
            ("copy", Box::new(move || copy(memory, pinned, COPIED, TO_DEVICE, stream))),
            (
                "allocation and free",
                Box::new(move || {
                    let mut memory = ptr::null_mut();
                    let answer = allocate(&raw mut memory, ALLOCATED);
                    if answer == 0 { free(memory) } else { answer }
                }),
            ),
            (
                "current device",
                Box::new(move || {
                    let mut ordinal = -1;
                    device(&raw mut ordinal)
                }),
            ),
        ],
        making: Vec::new(),
        settle: Box::new(move || synchronize()),
    })
}

/// The kernel that takes as long as it is told. It can stand in a host function's place since CUDA 12.1.
fn spin(library: Library) -> Result<*const c_void, GpuError> {
    let load = function!(
        library,
        cudaLibraryLoadData(
            *mut usize,
            *const c_void,
            *mut c_void,
            *mut c_void,
            c_uint,
            *mut c_void,
            *mut c_void,
            c_uint,
        )
    )?;
    let find = function!(library, cudaLibraryGetKernel(*mut *const c_void, usize, *const u8))?;
    let (none, mut module, mut kernel) = (ptr::null_mut(), 0, ptr::null());
    checked("cudaLibraryLoadData", load(&raw mut module, KERNELS.as_ptr().cast(), none, none, 0, none, none, 0))?;
    checked("cudaLibraryGetKernel", find(&raw mut kernel, module, c"spin".as_ptr().cast()))?;
    Ok(kernel)
}
