//! `pthread_create`: who has begun whom, since a recovery has lost work.
//!
//! Until then a thread is begun as if the library were not there, but for a look at one number. Afterwards the new
//! thread takes with it what its creator knew ([`descent`](crate::cuda::descent)). It begins in a few instructions of
//! ours, which leave nothing on its stack: the program's function is jumped to, so that it returns, unwinds, is cancelled
//! and is seen by debuggers as if libc had called it.
#![expect(unsafe_code, reason = "replaces a function of libc and calls it")]

use std::{
    alloc::{self, Layout},
    ffi::{c_int, c_void},
    mem,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::{
    cuda::{descent::Descent, library::find, threads},
    process::glibc,
    recovery,
};

/// What a thread does, and what its threads are begun by.
type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;

/// What a new thread is to do, in the two registers in which C returns such a pair.
#[repr(C)]
struct Work {
    start: Start,
    argument: *mut c_void,
}

/// The same on its way to the thread.
struct Child {
    work: Work,
    descent: Descent,
}

/// The `pthread_create` that programs reach.
///
/// # Safety
/// As `pthread_create(3)`.
#[cfg_attr(not(test), unsafe(export_name = "pthread_create"))]
unsafe extern "C" fn entry(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let Some(next) = next() else { return libc::EAGAIN };
    match recovery::of_child() {
        // SAFETY: as the caller asks.
        None => unsafe { next(thread, attributes, start, argument) },
        // SAFETY: as the caller asks.
        Some(descent) => unsafe { create(next, thread, attributes, Work { start, argument }, descent) },
    }
}

/// The next one after ours: glibc's, or that of a sanitizer or of another preloaded library.
fn next() -> Option<Create> {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let mut found = NEXT.load(Ordering::Relaxed);
    if found.is_null() {
        found = find(libc::RTLD_NEXT, c"pthread_create").map_or_else(oldest, NonNull::as_ptr);
        NEXT.store(found, Ordering::Relaxed);
    }
    // SAFETY: null, or the address was found under the name of a function of this type.
    unsafe { mem::transmute::<*mut c_void, Option<Create>>(found) }
}

/// glibc's, whatever is loaded where; null where there is none.
#[cold]
fn oldest() -> *mut c_void {
    // SAFETY: the strings are C strings.
    unsafe { glibc::dlvsym(libc::RTLD_DEFAULT, c"pthread_create".as_ptr(), c"GLIBC_2.2.5".as_ptr()) }
}

/// Begins a thread of this descent.
///
/// # Safety
/// As `pthread_create(3)`.
#[cold]
unsafe fn create(
    next: Create,
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    work: Work,
    descent: Descent,
) -> c_int {
    let layout = Layout::new::<Child>();
    // SAFETY: the layout has a size.
    let child = unsafe { alloc::alloc(layout) }.cast::<Child>();
    if child.is_null() {
        return libc::EAGAIN;
    }
    // SAFETY: it has just been allocated for this.
    unsafe { child.write(Child { work, descent }) };
    // SAFETY: as the caller asks, but for the function; that one takes what it is given here.
    let failed = unsafe { next(thread, attributes, begin, child.cast()) };
    if failed != 0 {
        // SAFETY: no thread has it.
        unsafe { alloc::dealloc(child.cast(), layout) };
    }
    failed
}

/// Where such a thread begins.
///
/// # Safety
/// The argument is a [`Child`] for this thread alone.
#[unsafe(naked)]
unsafe extern "C-unwind" fn begin(child: *mut c_void) -> *mut c_void {
    std::arch::naked_asm!(
        // The compiler adds no unwind information to a naked function.
        ".cfi_startproc",
        // The stack is aligned to 16 bytes where a function is called.
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {arrive}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, rdx",
        "jmp rax",
        ".cfi_endproc",
        arrive = sym arrive,
    )
}

/// The new thread takes what its creator has left for it. Nothing here waits, or is a point of cancellation.
///
/// # Safety
/// As [`begin`].
unsafe extern "C" fn arrive(child: *mut c_void) -> Work {
    let child = child.cast::<Child>();
    // SAFETY: made by `create`, for this thread alone.
    let Child { work, descent } = unsafe { child.read() };
    // SAFETY: allocated there with this layout, and not used any more.
    unsafe { alloc::dealloc(child.cast(), Layout::new::<Child>()) };
    threads::here(|here| here.comes_of(descent));
    work
}

#[cfg(test)]
mod tests;
