//! What a copy wants to do at the end of the process, done for the copy that lives then: an orderly end of its work harms
//! no neighbour under MPS.
//!
//! A spare copy ends as well, when its thread is out of it: what a copy does at the end frees what a call under way still uses.
//! NVIDIA's driver answers 4 to calls behind that, or the process dies (580.159.04).
//!
//! What it wants to do at the end of one of the program's threads is not done: what it has there goes with its heap.

use std::{
    ffi::{c_int, c_void},
    sync::{Once, OnceLock},
};

use super::{Lead, Owner, RESOURCES, locked, spare};

/// A function and its argument.
#[derive(Clone, Copy)]
pub(super) struct Exit {
    function: unsafe extern "C" fn(*mut c_void),
    argument: usize,
}

/// Keeps this library's threads out of the spare copy; whether they are.
static BEFORE: OnceLock<fn() -> bool> = OnceLock::new();

/// Has this asked before anything is done for a copy at the end of the process.
pub(crate) fn before_the_end(are_out: fn() -> bool) {
    let _the_first_one_stays = BEFORE.set(are_out);
}

extern "C" fn at_the_end() {
    let is_left = BEFORE.get().is_some_and(|are_out| !are_out());
    let left = spare().filter(|_| is_left);
    for (_, of) in RESOURCES.iter().enumerate().filter(|(number, _)| left != Some(Owner(*number))) {
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
