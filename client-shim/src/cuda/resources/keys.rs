//! The keys by which a copy has data in each thread. Without its key the data of a dead copy has no destructor.

use std::ffi::{c_int, c_void};

use super::{Lead, RESOURCES, locked};
use crate::process::glibc;

unsafe extern "C" fn create<const OWNER: usize>(
    place: *mut libc::pthread_key_t,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
) -> c_int {
    // SAFETY: as the caller asks.
    let failed = unsafe { glibc::pthread_key_create(place, destructor) };
    if failed == 0 {
        // SAFETY: the key was written there.
        locked(&RESOURCES[OWNER].keys).push(unsafe { place.read() });
    }
    failed
}

unsafe extern "C" fn delete_one<const OWNER: usize>(key: libc::pthread_key_t) -> c_int {
    locked(&RESOURCES[OWNER].keys).retain(|known| *known != key);
    // SAFETY: as the caller asks.
    unsafe { glibc::pthread_key_delete(key) }
}

/// Deletes all of them.
pub(super) fn delete(keys: &mut Vec<libc::pthread_key_t>) {
    for key in keys.drain(..) {
        // SAFETY: the copy has made it and not deleted it.
        unsafe { glibc::pthread_key_delete(key) };
    }
}

/// What stands in the place of which function.
pub(super) fn leads<const OWNER: usize>() -> [Lead; 2] {
    [
        (c"pthread_key_create", create::<OWNER> as *const c_void),
        (c"pthread_key_delete", delete_one::<OWNER> as *const c_void),
    ]
}
