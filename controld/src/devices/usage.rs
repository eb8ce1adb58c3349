//! The child process that tells how much GPU memory processes have: loads `libnvidia-ml.so.1`, prints a line of JSON a
//! process and GPU, ends.
//!
//! The numbers are the driver's own account, as `nvidia-smi` shows it; under MPS it books a client's memory to the
//! client and a server's own to the server.
#![expect(unsafe_code, reason = "calls NVIDIA's management library, which has only a C interface")]

use super::ProbedUsage;
use std::ffi::{CStr, c_int, c_uint, c_ulonglong, c_void};
use std::io::Write;

const LIBRARY: &CStr = c"libnvidia-ml.so.1";
/// More processes than a GPU has contexts for.
const MAX_PROCESSES: usize = 1024;
/// What the library says of memory that it can't tell.
const NOT_AVAILABLE: c_ulonglong = c_ulonglong::MAX;

type Device = *mut c_void;
type Init = unsafe extern "C" fn() -> c_int;
type GetCount = unsafe extern "C" fn(*mut c_uint) -> c_int;
type GetHandle = unsafe extern "C" fn(c_uint, *mut Device) -> c_int;
type GetProcesses = unsafe extern "C" fn(Device, *mut c_uint, *mut ProcessInfo) -> c_int;

/// `nvmlProcessInfo_v2_t`, which the third version of the calls takes.
#[repr(C)]
#[derive(Clone, Copy)]
struct ProcessInfo {
    pid: c_uint,
    used_memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `library` is a handle from dlopen that is never closed, and `name` is NUL-terminated.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

macro_rules! function {
    ($library:expr, $name:literal, $type:ty) => {{
        let address = symbol($library, $name)?;
        // SAFETY: the library documents the function of this name with this signature.
        unsafe { std::mem::transmute::<*mut c_void, $type>(address) }
    }};
}

fn usage() -> Option<Vec<ProbedUsage>> {
    // SAFETY: the name is NUL-terminated; the library's own constructors are its business.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return None;
    }
    let init = function!(library, c"nvmlInit_v2", Init);
    let get_count = function!(library, c"nvmlDeviceGetCount_v2", GetCount);
    let get_handle = function!(library, c"nvmlDeviceGetHandleByIndex_v2", GetHandle);
    let get_processes = function!(library, c"nvmlDeviceGetComputeRunningProcesses_v3", GetProcesses);
    // SAFETY: the call takes nothing.
    if unsafe { init() } != 0 {
        return None;
    }
    let mut count = 0;
    // SAFETY: the pointer is to a local of the right type.
    if unsafe { get_count(&raw mut count) } != 0 {
        return None;
    }
    let mut rows = Vec::new();
    for index in 0..count {
        let mut device = std::ptr::null_mut();
        // SAFETY: the pointer is to a local of the right type.
        if unsafe { get_handle(index, &raw mut device) } != 0 {
            continue;
        }
        let empty = ProcessInfo { pid: 0, used_memory: 0, gpu_instance: 0, compute_instance: 0 };
        let mut processes = vec![empty; MAX_PROCESSES];
        let mut length = c_uint::try_from(MAX_PROCESSES).expect("a thousand fit");
        // SAFETY: the array has the length that is named, and the library writes no more.
        if unsafe { get_processes(device, &raw mut length, processes.as_mut_ptr()) } != 0 {
            continue;
        }
        let told = processes.iter().take(length as usize).filter(|process| process.used_memory != NOT_AVAILABLE);
        rows.extend(told.map(|process| ProbedUsage { pid: process.pid, bytes: process.used_memory }));
    }
    Some(rows)
}

/// Prints the account on standard output; returns the exit status, 1 when there is none.
#[must_use]
pub fn run() -> u8 {
    let Some(rows) = usage() else {
        return 1;
    };
    let mut output = std::io::stdout().lock();
    for row in rows {
        let line = serde_json::to_string(&row).expect("plain data");
        if writeln!(output, "{line}").is_err() {
            return 1;
        }
    }
    0
}
