//! Functions of the C library that a copy does not import but asks the dynamic linker for.
//!
//! The real driver finds `pipe2`, `eventfd` and `accept4` so, by their versions, since it runs with C libraries that have
//! none. It is given what stands in their place.

use std::{
    ffi::{CStr, c_char, c_void},
    ptr::NonNull,
};

use super::{Lead, leads};
use crate::{cuda::library, process::glibc};

/// Files of the C library.
const OF_C: [&[u8]; 3] = [b"libc.so", b"libc-", b"libpthread"];

/// What a lookup for this name has found, or what stands in its place if it is the C library's.
///
/// # Safety
/// The name is a C string.
unsafe fn led<const OWNER: usize>(found: *mut c_void, name: *const c_char) -> *mut c_void {
    let is_of_c = |address| {
        let path = library::library_of(address).map(CStr::to_bytes);
        let file = path.and_then(|path| path.rsplit(|byte| *byte == b'/').next()).unwrap_or_default();
        OF_C.iter().any(|name| file.starts_with(name))
    };
    if !NonNull::new(found).is_some_and(is_of_c) {
        return found;
    }
    // SAFETY: by the contract.
    let name = unsafe { CStr::from_ptr(name) };
    leads::<OWNER>().into_iter().find(|(led, _)| *led == name).map_or(found, |(_, ours)| ours.cast_mut())
}

unsafe extern "C" fn versioned<const OWNER: usize>(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    // SAFETY: as the caller asks.
    let found = unsafe { glibc::dlvsym(handle, name, version) };
    // SAFETY: as above.
    unsafe { led::<OWNER>(found, name) }
}

unsafe extern "C" fn unversioned<const OWNER: usize>(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let Some(real) = library::real_dlsym() else { return std::ptr::null_mut() };
    // SAFETY: as the caller asks.
    let found = unsafe { real(handle, name) };
    // SAFETY: as above.
    unsafe { led::<OWNER>(found, name) }
}

/// What stands in the place of which function.
pub(super) fn all<const OWNER: usize>() -> [Lead; 2] {
    [(c"dlvsym", versioned::<OWNER> as *const c_void), (c"dlsym", unversioned::<OWNER> as *const c_void)]
}
