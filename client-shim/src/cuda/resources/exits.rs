//! What a copy wants to do at the end of the process, done for the copy that lives then: an orderly end of its work harms
//! no neighbour under MPS.
//!
//! What it wants to do at the end of one of the program's threads is not done: what it has there goes with its heap.

use std::{
    ffi::{c_int, c_void},
    sync::Once,
};

use super::{Lead, RESOURCES, locked};

/// A function and its argument.
#[derive(Clone, Copy)]
pub(super) struct Exit {
    function: unsafe extern "C" fn(*mut c_void),
    argument: usize,
}

extern "C" fn at_the_end() {
    for of in &RESOURCES {
        while let Some(exit) = { locked(&of.exits).pop() } {
            // SAFETY: a function of a copy that lives, which has asked for it.
            unsafe { (exit.function)(std::ptr::with_exposed_provenance_mut(exit.argument)) };
        }
    }
}

unsafe extern "C" fn at_exit<const OWNER: usize>(
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
    _library: *mut c_void,
) -> c_int {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the function takes no arguments and lies in a library that is never unloaded.
        let _full = unsafe { libc::atexit(at_the_end) };
    });
    locked(&RESOURCES[OWNER].exits).push(Exit { function, argument: argument.expose_provenance() });
    0
}

unsafe extern "C" fn at_thread_exit(_function: *const c_void, _argument: *mut c_void, _library: *mut c_void) -> c_int {
    0
}

/// What stands in the place of which function.
pub(super) fn leads<const OWNER: usize>() -> [Lead; 2] {
    [
        (c"__cxa_atexit", at_exit::<OWNER> as *const c_void),
        (c"__cxa_thread_atexit_impl", at_thread_exit as *const c_void),
    ]
}
