//! The library's functions, found by name, and copies from and to the device.
#![expect(unsafe_code, reason = "the functions are unsafe, and are found by name")]

use super::{checked, failed};
use crate::programs::gpu::GpuError;
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// Bytes of a commit at most.
const ROOM: usize = 4096;

/// `struct mps_state_range`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Found {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) flags: u32,
    pub(super) is_in_doubt: u32,
}

/// `struct mps_state_recovery`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Recovery {
    generation: u64,
    server: u64,
    region_bytes: u64,
    wait_us: u64,
    map_us: u64,
    is_committed: u32,
    data_bytes: u32,
    predecessor: u32,
    rest: u32,
    regions: u32,
    ranges: u32,
    ranges_in_doubt: u32,
    was_standby: u32,
    offered_us: u64,
    mapped_us: u64,
}

type Timed = unsafe extern "C" fn(u32) -> c_int;
type Labelled = unsafe extern "C" fn(*const c_char) -> c_int;
type Register = unsafe extern "C" fn(*const c_char, u64, u64, u32) -> c_int;
type Find = unsafe extern "C" fn(*const c_char, *mut Found) -> c_int;
type Commit = unsafe extern "C" fn(u64, *const c_void, usize, u32) -> c_int;
type LastRecovery = unsafe extern "C" fn(*mut Recovery, usize, *mut c_void, usize) -> c_int;

/// The functions of `mps_shim.h`.
#[derive(Clone, Copy)]
pub(super) struct Api {
    adopt: Timed,
    wait: Timed,
    discard: Timed,
    unregister: Labelled,
    restore: Labelled,
    register: Register,
    find: Find,
    commit: Commit,
    last_recovery: LastRecovery,
}

fn look_up(name: &'static CStr) -> Result<*mut c_void, GpuError> {
    // SAFETY: looks a name up.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        Err(failed("dlsym", format_args!("{name:?}: the library is not preloaded")))
    } else {
        Ok(found)
    }
}

fn label(text: &str) -> CString {
    CString::new(text).expect("a word of a line has no NUL")
}

impl Api {
    pub(super) fn loaded() -> Result<Self, GpuError> {
        Ok(Self {
            // SAFETY: the function of this name has this type, by the library's header.
            adopt: unsafe { std::mem::transmute::<*mut c_void, Timed>(look_up(c"mps_state_adopt")?) },
            // SAFETY: as above.
            wait: unsafe { std::mem::transmute::<*mut c_void, Timed>(look_up(c"mps_state_wait_for_activation")?) },
            // SAFETY: as above.
            discard: unsafe { std::mem::transmute::<*mut c_void, Timed>(look_up(c"mps_state_discard")?) },
            // SAFETY: as above.
            unregister: unsafe { std::mem::transmute::<*mut c_void, Labelled>(look_up(c"mps_state_unregister")?) },
            // SAFETY: as above.
            restore: unsafe { std::mem::transmute::<*mut c_void, Labelled>(look_up(c"mps_state_restore")?) },
            // SAFETY: as above.
            register: unsafe { std::mem::transmute::<*mut c_void, Register>(look_up(c"mps_state_register")?) },
            // SAFETY: as above.
            find: unsafe { std::mem::transmute::<*mut c_void, Find>(look_up(c"mps_state_find")?) },
            // SAFETY: as above.
            commit: unsafe { std::mem::transmute::<*mut c_void, Commit>(look_up(c"mps_state_commit")?) },
            // SAFETY: as above.
            last_recovery: unsafe {
                std::mem::transmute::<*mut c_void, LastRecovery>(look_up(c"mps_state_last_recovery")?)
            },
        })
    }

    pub(super) fn adopt(&self, limit: u32) -> c_int {
        // SAFETY: takes a number.
        unsafe { (self.adopt)(limit) }
    }

    pub(super) fn wait(&self, limit: u32) -> c_int {
        // SAFETY: takes a number.
        unsafe { (self.wait)(limit) }
    }

    pub(super) fn discard(&self, limit: u32) -> c_int {
        // SAFETY: takes a number.
        unsafe { (self.discard)(limit) }
    }

    pub(super) fn register(&self, text: &str, address: u64, bytes: usize, flags: u32) -> c_int {
        // SAFETY: a C string.
        unsafe { (self.register)(label(text).as_ptr(), address, bytes as u64, flags) }
    }

    pub(super) fn unregister(&self, text: &str) -> c_int {
        // SAFETY: a C string.
        unsafe { (self.unregister)(label(text).as_ptr()) }
    }

    pub(super) fn restore(&self, text: &str) -> c_int {
        // SAFETY: a C string.
        unsafe { (self.restore)(label(text).as_ptr()) }
    }

    pub(super) fn find(&self, text: &str) -> Option<Found> {
        let mut found = Found::default();
        // SAFETY: a C string, and room for the result.
        let code = unsafe { (self.find)(label(text).as_ptr(), &raw mut found) };
        (code == 0).then_some(found)
    }

    pub(super) fn commit(&self, generation: u64, data: &[u8], limit: u32) -> c_int {
        // SAFETY: as many bytes as are said.
        unsafe { (self.commit)(generation, data.as_ptr().cast(), data.len(), limit) }
    }

    pub(super) fn last_recovery(&self) -> (Value, Vec<u8>) {
        let (mut recovery, mut data) = (Recovery::default(), vec![0; ROOM]);
        // SAFETY: room as it is said.
        let code =
            unsafe { (self.last_recovery)(&raw mut recovery, size_of::<Recovery>(), data.as_mut_ptr().cast(), ROOM) };
        data.truncate(recovery.data_bytes as usize);
        let Recovery { generation, server, region_bytes, wait_us, map_us, is_committed, .. } = recovery;
        let Recovery { predecessor, rest, regions, ranges, ranges_in_doubt, was_standby, .. } = recovery;
        let Recovery { offered_us, mapped_us, .. } = recovery;
        let told = json!({
            "code": code, "generation": generation, "server": server, "region_bytes": region_bytes,
            "wait_us": wait_us, "map_us": map_us, "is_committed": is_committed, "predecessor": predecessor,
            "rest": rest, "regions": regions, "ranges": ranges, "ranges_in_doubt": ranges_in_doubt,
            "was_standby": was_standby, "offered_us": offered_us, "mapped_us": mapped_us,
        });
        (told, data)
    }
}

/// Copies to the device.
pub(super) fn write(address: u64, bytes: &[u8]) -> Result<(), GpuError> {
    // SAFETY: the source is as long as the copy; the driver checks the destination.
    checked("cuMemcpyHtoD", unsafe { sys::cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()) })
}

/// Copies from the device.
pub(super) fn read(address: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
    // SAFETY: the destination is as long as the copy; the driver checks the source.
    checked("cuMemcpyDtoH", unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, bytes.len()) })
}

/// Frees device memory.
pub(super) fn free(address: u64) -> Result<(), GpuError> {
    // SAFETY: the driver checks the address.
    checked("cuMemFree", unsafe { sys::cuMemFree_v2(address) })
}
