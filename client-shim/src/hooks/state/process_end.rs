//! The end of the process.
//!
//! A program that ends by itself with status 0 has finished its work: what the vault has of it is released, or its GPU
//! memory would stay allocated for a successor that never comes. Any other end leaves everything. A program that the
//! wrapper `nvidia-cuda-mps-control run` has started also notes the error of its context, if it has one, on the page
//! that the wrapper gave it ([`noted`]), so that the wrapper knows an end by a fault from another one.
#![expect(unsafe_code, reason = "asks to be called at the process's end, and maps a page that it was given")]

use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use remps_proto::shim::Ask;

use super::started;
use crate::process::panics::unpanicked;
use crate::process::settings::succession;
use crate::{
    cuda::{result::CUresult, types::CUstream},
    kept,
};

/// An ending program waits for the daemon no longer than for any packet of it.
const PATIENCE: Duration = Duration::ZERO;
/// Errors that end a context for good, by a fault of this process or of another client. Measured; OBSERVED.md has which
/// fault gives which.
const STICKY: [u32; 14] = [46, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 806, 807];

unsafe extern "C" {
    /// glibc's: as `atexit`, with the status.
    fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Has [`at_exit`] called, if there is anything for it to do.
pub(super) fn prepare() {
    if !succession::is_named() && succession::exit_page().is_none() {
        return;
    }
    // SAFETY: the handler is a function of ours in a library that is never unloaded.
    let _not_told = unsafe { on_exit(at_exit, ptr::null_mut()) };
}

extern "C" fn at_exit(status: c_int, _argument: *mut c_void) {
    let _silent = unpanicked(|| {
        if !kept::is_on() {
            // A forked child, which has nothing.
            return;
        }
        let error = context_error();
        if !error.is_success() {
            noted(error);
        } else if status == 0
            && let Some(link) = started()
            && link.may_escrow.swap(false, Ordering::AcqRel)
            && let Some(name) = succession::name()
        {
            let _nobody_to_tell = link.ask(Ask::Discard { name }, PATIENCE);
        }
    });
}

/// The error of the current context. It is asked for without waiting.
fn context_error() -> CUresult {
    let answer = driver!(stream::cuStreamQuery(CUstream(0)));
    if STICKY.contains(&answer.0) { answer } else { CUresult::CUDA_SUCCESS }
}

/// Notes a driver's error for whoever started this program. The first one stays.
pub(crate) fn noted(error: CUresult) {
    let Some(number) = succession::exit_page() else { return };
    let (length, protection) = (size_of::<AtomicU32>(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping at an address of the kernel's choice; one that is no file can't be mapped.
    let page = unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, number, 0) };
    if page == libc::MAP_FAILED {
        return;
    }
    // SAFETY: the mapping is a page long, aligned, and stays.
    let word = unsafe { AtomicU32::from_ptr(page.cast()) };
    let _first = word.compare_exchange(0, error.0, Ordering::AcqRel, Ordering::Acquire);
}
