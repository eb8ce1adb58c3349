//! The C side of a call: what comes in through pointers, what goes out through them, and no panic across.
#![expect(unsafe_code, reason = "a C caller's pointers are followed here, and only here")]

use crate::codes::{Code, Outcome};
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A pointer at which the caller wants a value. Only C can make one, and vouches for it by the function's contract.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// The place at an address that the caller gave.
    pub(crate) fn at(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address))
    }

    /// Writes the value.
    pub(crate) fn put(&self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller of a driver function gives pointers that are null or valid for what they are documented for.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Whether no value is wanted.
    pub(crate) fn is_absent(&self) -> bool {
        self.0.is_null()
    }

    /// Writes the value where one is wanted.
    pub(crate) fn put_if_wanted(&self, value: T) {
        // The only error is a null pointer, which says that the value is not wanted.
        let _ = self.put(value);
    }
}

impl Out<c_char> {
    /// Writes a text of at most `room` bytes with its NUL.
    pub(crate) fn put_text(&self, text: &str, room: i32) -> Outcome {
        let room = usize::try_from(room).map_err(|_| Code::INVALID_VALUE)?;
        if self.0.is_null() || room == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let length = text.len().min(room - 1);
        let source = text.as_ptr().cast::<c_char>();
        // SAFETY: by the function's contract `room` bytes are writable there; the NUL has been left room for.
        unsafe { self.0.copy_from_nonoverlapping(source, length) };
        // SAFETY: `length` is less than `room`.
        unsafe { self.0.wrapping_add(length).write(0) };
        Ok(())
    }
}

/// A pointer to values of the caller's.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// The values at an address that the caller gave.
    pub(crate) fn placed(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance(address))
    }

    /// The value.
    pub(crate) fn get(&self) -> Outcome<T> {
        self.at(0)
    }

    /// The value at an index.
    pub(crate) fn at(&self, index: usize) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: as for `Out`; an index is one that the function's contract asks the caller to have filled.
        Ok(unsafe { self.0.wrapping_add(index).read_unaligned() })
    }

    /// Whether nothing was given.
    pub(crate) fn is_absent(&self) -> bool {
        self.0.is_null()
    }
}

impl<T> In<T> {
    /// The value where it is.
    pub(crate) fn get_ref(&self) -> Outcome<&T> {
        // SAFETY: as for `Out`.
        unsafe { self.0.as_ref() }.ok_or(Code::INVALID_VALUE)
    }
}

impl In<*const u8> {
    /// Reads kernel argument `index`, which has `size` bytes, as a number.
    pub(crate) fn argument(&self, index: usize, size: usize) -> Outcome<u64> {
        let place = self.at(index)?;
        let mut bytes = [0; 8];
        if place.is_null() || size > bytes.len() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: by the contract of cuLaunchKernel each pointer is to an argument of the size the kernel declares.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(place, size) };
        Ok(u64::from_le_bytes(bytes))
    }
}

/// A NUL-terminated text of the caller's.
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// The text.
    pub(crate) fn get(&self) -> Outcome<&str> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: by the function's contract it is a NUL-terminated string that outlives the call.
        unsafe { CStr::from_ptr(self.0) }.to_str().map_err(|_| Code::INVALID_VALUE)
    }
}

/// Runs a driver function; a panic becomes `CUDA_ERROR_UNKNOWN`.
pub(crate) fn enter(name: &str, function: impl FnOnce() -> Outcome) -> Code {
    match catch_unwind(AssertUnwindSafe(|| crate::copies::before(name).and_then(|()| function()))) {
        Ok(Ok(())) => Code::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => Code::UNKNOWN,
    }
}

/// Declares exported functions and the module's table of them.
macro_rules! entry_points {
    ($( fn $name:ident( $($argument:ident: $type:ty),* $(,)? ) $body:block )+) => {
        $(
            #[expect(unsafe_code, reason = "exported under the name that C programs ask for")]
            #[unsafe(no_mangle)]
            pub(super) extern "C" fn $name($($argument: $type),*) -> crate::codes::Code {
                crate::abi::enter(stringify!($name), move || $body)
            }
        )+

        /// Names and addresses of the functions of this module.
        pub(super) fn table() -> Vec<(&'static str, *const std::ffi::c_void)> {
            vec![$( (stringify!($name), $name as *const std::ffi::c_void) ),+]
        }
    };
}
pub(crate) use entry_points;
