//! Pipes and event descriptors that every copy of the library has, to wake its own threads.
//!
//! The real library asks the dynamic linker for `pipe2` and `eventfd` by their versions when it is initialised, since it
//! runs with C libraries that have none (seen in 550.163.01). So no list of what it imports has them. A copy of
//! 580.159.04 has three pipes with both their ends, and three event descriptors (measured on an H100). With which flags
//! they are made is not known; here they are not closed at `execve`, which is the worse of the two.
//!
//! A thread of the real library that is woken as its copy's descriptors are exchanged takes what stands in their places for
//! something that is ready, and makes pairs of pipes without end (seen on an H100 whose machine was busy, 580.159.04).
#![expect(unsafe_code, reason = "functions are found by name, as the real library finds them")]

use crate::codes::{Code, Outcome};
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::{MaybeUninit, transmute};
use std::{env, ptr, thread};

const PIPES: usize = 3;
const EVENTS: usize = 3;

type Pipe2 = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type Eventfd = unsafe extern "C" fn(c_uint, c_int) -> c_int;

/// A function of the C library.
fn found(name: &CStr, version: &CStr) -> Outcome<*mut c_void> {
    // SAFETY: stands for the program and what is loaded with it.
    let program = unsafe { libc::dlopen(ptr::null(), libc::RTLD_LAZY) };
    // SAFETY: the handle is open, and both are C strings.
    let found = unsafe { libc::dlvsym(program, name.as_ptr(), version.as_ptr()) };
    if found.is_null() { Err(Code::OPERATING_SYSTEM) } else { Ok(found) }
}

/// Waits until another file lies in this descriptor's place, and makes pipes from then on.
fn is_woken(number: c_int, pipe2: Pipe2) {
    const BETWEEN_LOOKS: c_int = 1;
    let file = || {
        let mut status = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: writes to the structure.
        let is_known = unsafe { libc::fstat(number, status.as_mut_ptr()) } == 0;
        // SAFETY: zeros are a value, filled in or not.
        is_known.then_some(unsafe { status.assume_init() }.st_ino)
    };
    let before = file();
    loop {
        let mut woken = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
        let is_exchanged = file() != before;
        // SAFETY: one structure.
        unsafe { libc::poll(&raw mut woken, 1, if is_exchanged { 0 } else { BETWEEN_LOOKS }) };
        if is_exchanged {
            let mut ends = [0; 2];
            // SAFETY: there is room for two.
            let _refused = unsafe { pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
        }
    }
}

/// Makes them. They stay as long as the process lives.
pub(crate) fn open() -> Outcome {
    // SAFETY: the function of this name has this type.
    let pipe2 = unsafe { transmute::<*mut c_void, Pipe2>(found(c"pipe2", c"GLIBC_2.9")?) };
    // SAFETY: as above.
    let eventfd = unsafe { transmute::<*mut c_void, Eventfd>(found(c"eventfd", c"GLIBC_2.7")?) };
    let mut last = 0;
    for _ in 0..PIPES {
        let mut ends = [0; 2];
        // SAFETY: there is room for two.
        if unsafe { pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK) } != 0 {
            return Err(Code::OPERATING_SYSTEM);
        }
        last = ends[0];
    }
    if env::var_os("MPS_SIM_WOKEN").is_some() {
        thread::Builder::new()
            .name("cuda-woken".into())
            .spawn(move || is_woken(last, pipe2))
            .map_err(|_| Code::OPERATING_SYSTEM)?;
    }
    // SAFETY: makes a descriptor.
    let has_failed = (0..EVENTS).any(|_| unsafe { eventfd(0, libc::EFD_NONBLOCK) } < 0);
    if has_failed { Err(Code::OPERATING_SYSTEM) } else { Ok(()) }
}
