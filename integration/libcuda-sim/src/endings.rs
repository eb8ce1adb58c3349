//! What a copy does when a thread ends that has a default stream of its own.
//!
//! The real library does it in a destructor of data that it has in each thread, under a key of the C library's: it looks
//! what is unfinished there, and asks its server where the GPU says nothing. Where that is gone, and the copy with it,
//! writing that down has ended a process by signal 11 (seen once, 580.159.04 on an H100). Which of such ends that meets is
//! not known; with `MPS_SIM_ENDING_THREAD` here all do.
#![expect(unsafe_code, reason = "data under a key of the C library's, and a signal that nobody handles")]

use crate::codes::{Code, Outcome};
use crate::driver;
use std::env;
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();

unsafe extern "C" fn ends(_its_stream: *mut c_void) {
    if driver::driver().is_ok_and(driver::Driver::has_failed) {
        // SAFETY: ends the process.
        unsafe { libc::raise(libc::SIGSEGV) };
    }
}

/// `cuInit`: has a key, if a test wants to see what comes of such threads.
pub(crate) fn begin() -> Outcome {
    if env::var_os("MPS_SIM_ENDING_THREAD").is_none() {
        return Ok(());
    }
    let mut key = 0;
    // SAFETY: the function stays as long as the library does.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(ends)) } != 0 {
        return Err(Code::OPERATING_SYSTEM);
    }
    KEY.set(key).map_err(|_| Code::OPERATING_SYSTEM)
}

/// The calling thread has one from now on.
pub(crate) fn this_thread_has_a_stream() {
    if let Some(key) = KEY.get() {
        // SAFETY: the key is there for good; any value but null says so.
        let _not_noted = unsafe { libc::pthread_setspecific(*key, ptr::from_ref(&KEY).cast()) };
    }
}
