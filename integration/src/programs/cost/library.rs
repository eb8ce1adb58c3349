//! A library by its file's name, and its functions by theirs.
#![expect(unsafe_code, reason = "loads a library, and takes addresses for functions")]

use crate::programs::gpu::GpuError;
use std::ffi::{CStr, CString, c_void};
use std::ptr::NonNull;

/// A library that stays loaded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Library(NonNull<c_void>);

fn missing(call: &'static str, name: &str) -> GpuError {
    GpuError { call, code: 0, name: format!("there is no {name}") }
}

impl Library {
    /// Loads it.
    ///
    /// # Errors
    /// When it is not there.
    pub(super) fn open(name: &str) -> Result<Self, GpuError> {
        let file = CString::new(name).map_err(|_| missing("dlopen", name))?;
        // SAFETY: the name is a C string; what its constructors do is what this program is for.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW) };
        NonNull::new(handle).map(Self).ok_or_else(|| missing("dlopen", name))
    }

    /// A function of it, looked up as programs do.
    ///
    /// # Safety
    /// `F` is the type of a pointer to this function.
    ///
    /// # Errors
    /// When it has none of that name.
    pub(super) unsafe fn function<F: Copy>(self, name: &CStr) -> Result<F, GpuError> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the library stays loaded.
        let found = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        let found = NonNull::new(found).ok_or_else(|| missing("dlsym", &name.to_string_lossy()))?;
        // SAFETY: by the contract.
        Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found.as_ptr()) })
    }
}

/// `function!(library, name(types))` is the function of that name, which returns a code.
macro_rules! function {
    ($library:expr, $name:ident($($argument:ty),* $(,)?)) => {{
        type Signature = extern "C" fn($($argument),*) -> u32;
        let name = const {
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name ends in NUL"),
            }
        };
        // SAFETY: the types are those of the vendor's header, and what is passed are this program's own handles, and
        // addresses of what lives longer than the call.
        unsafe { $library.function::<Signature>(name) }
    }};
}
pub(super) use function;
