//! What a program can find out about host memory of the driver's, right and wrong.
#![expect(unsafe_code, reason = "the driver's functions are unsafe, and so is a fork")]

use super::check;
use crate::programs::gpu::GpuError;
use cudarc::driver::sys;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use serde_json::{Value, json};
use std::ffi::c_void;

/// Bytes of what is allocated: no multiple of a page.
const BYTES: usize = 10_000;
/// `CU_MEMHOSTALLOC_PORTABLE`.
const PORTABLE: u32 = 1;
/// A byte that is written there, and one that a child writes.
const MARK: u8 = 0x5e;
const CHILDS: u8 = 0x91;

fn allocate(flags: u32) -> Result<*mut c_void, GpuError> {
    let mut memory = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&raw mut memory, BYTES, flags) })?;
    Ok(memory)
}

fn free(memory: *mut c_void) -> u32 {
    // SAFETY: what is none of the driver's is an error to it and no more.
    unsafe { sys::cuMemFreeHost(memory) as u32 }
}

/// What the driver says of an address inside: flags, kind of memory, whether devices have the same address for it. Whether the
/// memory is portable is left out: of small memory the driver says that of the piece which it was cut from, as the first who was
/// given some of it has asked (measured, driver 580).
fn said(memory: *mut c_void) -> Value {
    let inside = memory.wrapping_byte_add(BYTES / 2);
    let (mut flags, mut kind, mut device) = (0, 0_u32, 0);
    // SAFETY: the results are variables of ours.
    let by_flags = unsafe { sys::cuMemHostGetFlags(&raw mut flags, inside) } as u32;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    // SAFETY: the variable is of the attribute's type.
    let by_kind = unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), attribute, inside.addr() as u64) } as u32;
    // SAFETY: as above.
    let by_device = unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut device, inside, 0) } as u32;
    json!([by_flags, flags & !PORTABLE, by_kind, kind, by_device, device == inside.addr() as u64])
}

/// Whether a child finds the byte, and whether its parent finds what the child has written.
fn is_shared(place: *mut u8) -> [bool; 2] {
    // SAFETY: the place is memory of ours.
    unsafe { place.write_volatile(MARK) };
    // SAFETY: the child reads and writes one byte and ends.
    let is_found = match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            // SAFETY: as above; where there is nothing in a child it ends by a signal.
            let found = unsafe { place.read_volatile() };
            // SAFETY: as above.
            unsafe { place.write_volatile(CHILDS) };
            // SAFETY: ends the child and nothing else.
            unsafe { libc::_exit(i32::from(found != MARK)) }
        }
        Ok(ForkResult::Parent { child }) => matches!(waitpid(child, None), Ok(WaitStatus::Exited(_, 0))),
        Err(_) => false,
    };
    // SAFETY: the place is memory of ours.
    [is_found, unsafe { place.read_volatile() } == CHILDS]
}

/// All of it; what is allocated is freed.
pub(super) fn facts() -> Result<Value, GpuError> {
    let kinds: [u32; 4] = [0, 1, 2, 4];
    let memory = kinds.iter().map(|flags| allocate(*flags)).collect::<Result<Vec<_>, _>>()?;
    let said: Vec<Value> = memory.iter().map(|memory| said(*memory)).collect();
    let is_aligned = memory.iter().all(|memory| memory.addr().is_multiple_of(256));
    let is_shared = is_shared(memory[0].cast());
    let mut nothing = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    let empty = unsafe { sys::cuMemHostAlloc(&raw mut nothing, 0, 0) } as u32;
    // SAFETY: as above.
    let unknown = unsafe { sys::cuMemHostAlloc(&raw mut nothing, BYTES, 0x8000) } as u32;
    // SAFETY: the driver looks whether it is registered.
    let not_registered = unsafe { sys::cuMemHostUnregister(memory[1]) } as u32;
    let inside = free(memory[0].wrapping_byte_add(64));
    let freed: Vec<u32> = memory.iter().map(|memory| free(*memory)).collect();
    let twice = free(memory[0]);
    let mut own = 0_u64;
    let foreign = free((&raw mut own).cast());
    let mut flags = 0;
    // SAFETY: the results are variables of ours.
    let flags_of_foreign = unsafe { sys::cuMemHostGetFlags(&raw mut flags, (&raw mut own).cast()) } as u32;
    Ok(json!({
        "said": said, "is_aligned": is_aligned, "is_shared": is_shared, "empty": empty, "unknown": unknown,
        "not_registered": not_registered, "inside": inside, "freed": freed, "twice": twice, "foreign": foreign,
        "flags_of_foreign": flags_of_foreign,
    }))
}
