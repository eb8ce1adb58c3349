//! `dlsym`, by which programs find the driver's functions.
//!
//! cudart, PyTorch, ctypes and cudarc open the driver's library by hand and ask `dlsym` for its functions, so `dlsym`
//! must be ours. It cannot be an ordinary function: the real one looks at its caller's address, and called from here
//! "the next library" would mean the one after this one, so that a program's own wrapper around some function would
//! find itself. Ours therefore saves its arguments, asks [`route`], and ends in a jump to the real `dlsym` with stack
//! and registers as they were: the real one sees the program. Only for a name in the hook table, and a handle other
//! than `RTLD_NEXT`, is there an answer of our own, and it begins with the real lookup.
#![expect(unsafe_code, reason = "replaces a function of the dynamic linker and calls it")]

use std::{
    ffi::{CStr, c_char, c_void},
    ptr::{self, NonNull},
};

use super::{
    Hook, by_name,
    notes::{self, Event},
};
use crate::{
    cuda::{
        call::Bypass,
        library::{Dlsym, find, is_driver, real_dlsym},
    },
    process::panics::unpanicked,
};

/// What the naked `dlsym` does next, in the two registers in which C returns such a pair.
#[repr(C)]
struct Route {
    /// Where to jump with the program's arguments, or null to return `answer`.
    jump: Option<Dlsym>,
    answer: *mut c_void,
}

/// The `dlsym` that programs reach.
///
/// # Safety
/// As `dlsym(3)`.
#[cfg(not(test))]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        // The compiler adds no unwind information to a naked function.
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        // The stack is aligned to 16 bytes where a function is called.
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {route}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "mov rax, rdx",
        "ret",
        ".cfi_endproc",
        route = sym route,
    )
}

/// Decides what becomes of a lookup.
///
/// # Safety
/// As `dlsym(3)`.
#[cfg_attr(test, expect(dead_code, reason = "the test binary keeps its own dlsym"))]
unsafe extern "C" fn route(handle: *mut c_void, name: *const c_char) -> Route {
    let jump = real_dlsym();
    let to_the_real_one = Route { jump, answer: ptr::null_mut() };
    if name.is_null() || handle == libc::RTLD_NEXT {
        return to_the_real_one;
    }
    // SAFETY: the caller passes a C string, as `dlsym` demands.
    let name = unsafe { CStr::from_ptr(name) };
    #[cfg(not(test))]
    if name == c"dlsym" {
        // Whoever asks libc's handle for `dlsym` would step around us without meaning to.
        return match find(handle, name) {
            Some(_) => Route { jump: None, answer: dlsym as *mut c_void },
            None => to_the_real_one,
        };
    }
    let Some(hook) = by_name(name) else {
        return to_the_real_one;
    };
    match unpanicked(|| look_up(handle, hook)) {
        Some(answer) => Route { jump: None, answer },
        None => to_the_real_one,
    }
}

/// The answer to a lookup of a hooked function: null where the real `dlsym` finds nothing, our entry where it finds the
/// driver, and else what it found.
fn look_up(handle: *mut c_void, hook: &'static Hook) -> *mut c_void {
    let found = if handle == libc::RTLD_DEFAULT { None } else { find(handle, hook.function.name) };
    let ours = |address: NonNull<c_void>| address.as_ptr() == hook.entry();
    match found {
        // Through `RTLD_DEFAULT` or the program's own handle our entry is found first. It only counts with a driver
        // behind it.
        _ if handle == libc::RTLD_DEFAULT || found.is_some_and(ours) => match hook.function.driver() {
            // The last failed lookup is the one whose text `dlerror` gives to the program.
            None => return find(libc::RTLD_NEXT, hook.function.name).map_or(ptr::null_mut(), NonNull::as_ptr),
            Some(theirs) if !hook.function.is_handed_out() => return theirs.as_ptr(),
            Some(_) => {}
        },
        None => return ptr::null_mut(),
        Some(address) if !hook.function.is_handed_out() => return address.as_ptr(),
        Some(address) => {
            let taken = if is_driver(handle, address) { hook.function.learn(address) } else { Err(Bypass::NotDriver) };
            if let Err(reason) = taken {
                notes::note(hook.function, Event::Bypassed(reason));
                return address.as_ptr();
            }
        }
    }
    notes::note(hook.function, Event::FoundByDlsym);
    hook.entry()
}
