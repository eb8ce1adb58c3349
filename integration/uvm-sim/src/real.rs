//! The functions behind ours.
//!
//! Looked up at their first use and kept in plain atomics: a lock would be one more caller of `syscall`.

use std::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

fn find(cache: &AtomicUsize, name: &CStr) -> usize {
    match cache.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: the name ends with NUL.
            let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.addr();
            assert_ne!(found, 0, "the C library has {name:?}");
            cache.store(found, Ordering::Relaxed);
            found
        }
        found => found,
    }
}

macro_rules! real {
    ($($name:ident = $text:literal ($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        /// The C library's.
        pub(crate) fn $name($($argument: $type),*) -> $result {
            static FOUND: AtomicUsize = AtomicUsize::new(0);
            let address = std::ptr::with_exposed_provenance::<c_void>(find(&FOUND, $text));
            // SAFETY: the C library's function of this name has these arguments and this result.
            let function: extern "C" fn($($type),*) -> $result = unsafe { std::mem::transmute(address) };
            function($($argument),*)
        }
    )*};
}

real! {
    open64 = c"open64" (path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int;
    close = c"close" (fd: c_int) -> c_int;
    ioctl = c"ioctl" (fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
    syscall = c"syscall" (
        number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long
    ) -> c_long;
}
