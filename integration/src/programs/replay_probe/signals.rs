//! Signals of the program: where the threads of one are that hangs, each of which writes its stack to standard error when it
//! gets `SIGUSR2`; and `SIGPIPE` as in a program in C.
//!
//! There is no debugger on the machines that lend a GPU. Addresses come with their library and offset.
#![expect(unsafe_code, reason = "a handler of a signal, and the default of one")]

use std::ffi::{c_int, c_void};
use std::io::Write as _;
use std::ptr::null_mut;

/// Calls of a stack that are written at most.
const DEPTH: c_int = 64;

extern "C" fn tell(_signal: c_int) {
    let mut calls = [null_mut::<c_void>(); DEPTH.cast_unsigned() as usize];
    // SAFETY: there is room for as many.
    let count = unsafe { libc::backtrace(calls.as_mut_ptr(), DEPTH) };
    let mut head = [0_u8; 32];
    let mut left = head.as_mut_slice();
    // SAFETY: asks for this thread's number. What is written stays on the stack.
    let _fits = writeln!(left, "stack of thread {}", unsafe { libc::gettid() });
    let length = 32 - left.len();
    // SAFETY: so many bytes are there.
    unsafe { libc::write(2, head.as_ptr().cast(), length) };
    // SAFETY: so many addresses are there; it allocates nothing.
    unsafe { libc::backtrace_symbols_fd(calls.as_ptr(), count, 2) };
}

/// From now on the signal is answered.
pub(super) fn answer() {
    // The first time it loads a library, which a handler must not.
    let mut one = [null_mut::<c_void>(); 1];
    // SAFETY: there is room for one.
    unsafe { libc::backtrace(one.as_mut_ptr(), 1) };
    // SAFETY: zeros are a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = tell as *const c_void as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler makes system calls, and reads this thread's stack.
    unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, null_mut()) };
}

/// A broken pipe ends the process from now on. Programs in Rust begin with the signal ignored.
pub(super) fn ends_by_broken_pipes() {
    // SAFETY: the signal's own action.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
