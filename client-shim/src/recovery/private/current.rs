//! A thread's current context by the private table that cuBLAS asks for it (ZLUDA calls it `TOOLS_TLS`).
//!
//! What its two functions do is known from their code in drivers 535.309.01 and 550.163.01, and from cuBLAS 13 with
//! 580.159.04: [1] sets a thread's current context as `cuCtxSetCurrent` does, [2] gives it. Each copy of the driver has
//! its own notes of that, so a copy that is dead would go on telling what was current when it died, and a thread that has
//! begun since would have no context there.
#![expect(unsafe_code, reason = "functions without a public declaration")]

use std::ffi::c_void;

use super::{CURRENT, passing, theirs, to_driver, to_program};
use crate::{
    cuda::{result::CUresult, threads, types::CUcontext},
    process::panics::unpanicked,
};

type Set = unsafe extern "C" fn(CUcontext) -> CUresult;
type Get = unsafe extern "C" fn(*mut CUcontext) -> CUresult;

/// Places in the table.
const SET: usize = 1;
const GET: usize = 2;

/// Our functions in the table's places.
pub(super) fn ours(index: usize) -> Option<*mut c_void> {
    match index {
        SET => Some(set as *mut c_void),
        GET => Some(get as *mut c_void),
        _ => None,
    }
}

unsafe extern "C" fn set(context: CUcontext) -> CUresult {
    passing(move || {
        // SAFETY: the place's type.
        let theirs = unsafe { theirs::<Set>(CURRENT, SET) };
        let context = to_driver(context);
        // SAFETY: the program's call with the program's argument.
        let answer = unsafe { theirs(context) };
        if answer.is_success() {
            // A thread that is ending has nothing that could be noted.
            let _noted = unpanicked(|| threads::set(context.0));
        }
        answer
    })
}

unsafe extern "C" fn get(context: *mut CUcontext) -> CUresult {
    passing(move || {
        // SAFETY: the place's type.
        let theirs = unsafe { theirs::<Get>(CURRENT, GET) };
        // SAFETY: the program's call with the program's argument.
        let answer = unsafe { theirs(context) };
        if answer.is_success() && !context.is_null() {
            // SAFETY: the driver has just written there.
            let now = unsafe { context.read() };
            // SAFETY: as above.
            unsafe { context.write(to_program(now)) };
        }
        answer
    })
}
