//! Texts that the driver gives out by their address: names and descriptions of errors, names of functions.
//!
//! A program keeps such an address for as long as it likes, and a copy of the driver that is dead is unloaded. So what
//! another copy than the program's own gives out is put into memory that stays; each text once.
#![expect(unsafe_code, reason = "reads and writes what the driver has written for its caller")]

use std::{
    collections::BTreeSet,
    ffi::{CStr, c_char},
    sync::{Mutex, PoisonError},
};

use super::library;

static TEXTS: Mutex<BTreeSet<&'static CStr>> = Mutex::new(BTreeSet::new());

/// The same text where it stays.
fn lasting(text: &CStr) -> &'static CStr {
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text) {
        return known;
    }
    let known: &'static CStr = Box::leak(text.into());
    texts.insert(known);
    known
}

/// Has the address at this place lead to where the text stays.
///
/// # Safety
/// The driver has written the address of a text there, or null.
pub(crate) unsafe fn keep(place: *mut *const c_char) {
    // SAFETY: by the contract.
    let given = unsafe { place.read() };
    if library::generation() > 0 && !given.is_null() {
        // SAFETY: by the contract it is a text.
        let text = lasting(unsafe { CStr::from_ptr(given) });
        // SAFETY: by the contract.
        unsafe { place.write(text.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::lasting;

    #[test]
    fn a_text_is_kept_once() {
        let first = lasting(c"CUDA_ERROR_TRAP");
        let again = lasting(CString::from(c"CUDA_ERROR_TRAP").as_c_str());
        assert_eq!((first.as_ptr(), first), (again.as_ptr(), c"CUDA_ERROR_TRAP"));
        assert_ne!(lasting(c"another").as_ptr(), first.as_ptr());
    }
}
