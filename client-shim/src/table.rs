//! The rows of the hook table: which function, our entry for it, and where the driver's own is.

use std::{
    ffi::{CStr, c_void},
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::{HOOKS, guard::Bypass, resolve};

/// One hooked function of the driver.
pub(crate) struct Hook {
    /// Its name as a symbol of the driver's library.
    pub(crate) name: &'static CStr,
    /// Its word of the fork page.
    pub(crate) word: usize,
    entry: Entry,
    /// The driver's own function. Once known it never changes, and its library is never unloaded.
    driver: AtomicPtr<c_void>,
}

/// The address of an exported function.
struct Entry(*const ());

// SAFETY: the address of a function, which every thread may have.
#[expect(unsafe_code, reason = "raw pointers are not shared by default")]
unsafe impl Sync for Entry {}

impl Hook {
    /// A row whose driver's function is still unknown. `name` ends in NUL, `entry` is the exported function.
    pub(crate) const fn new(name: &'static str, entry: *const (), word: usize) -> Self {
        let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else {
            panic!("the table's macro ends every name in NUL");
        };
        Self { name, word, entry: Entry(entry), driver: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Our function in the driver's place.
    pub(crate) fn entry(&self) -> *mut c_void {
        self.entry.0.cast_mut().cast()
    }

    /// The driver's own function, looked for among the loaded libraries if need be; `None` if no driver is loaded.
    pub(crate) fn driver(&self) -> Option<NonNull<c_void>> {
        self.known().or_else(|| self.known_after(resolve::in_loaded_driver(self)?))
    }

    /// The driver's own function for a call of it, which loads the driver if need be; `None` if there is no driver.
    pub(crate) fn driver_for_call(&self) -> Option<NonNull<c_void>> {
        self.driver().or_else(|| self.known_after(resolve::in_driver_loaded_now(self)?))
    }

    fn known(&self) -> Option<NonNull<c_void>> {
        NonNull::new(self.driver.load(Ordering::Acquire))
    }

    /// The driver's own function once `found` was taken for it, or another one by a thread that was faster.
    fn known_after(&self, found: NonNull<c_void>) -> Option<NonNull<c_void>> {
        let _refused = self.learn(found);
        self.known()
    }

    /// Takes `address` for the driver's own function, unless another one is known: the first one found stays.
    pub(crate) fn learn(&self, address: NonNull<c_void>) -> Result<(), Bypass> {
        let known = self.driver.load(Ordering::Acquire);
        if known == address.as_ptr() {
            return Ok(());
        }
        if !known.is_null() {
            return Err(Bypass::SecondCopy);
        }
        resolve::keep_loaded(address)?;
        self.driver
            .compare_exchange(ptr::null_mut(), address.as_ptr(), Ordering::AcqRel, Ordering::Acquire)
            .or_else(|earlier| if earlier == address.as_ptr() { Ok(earlier) } else { Err(Bypass::SecondCopy) })
            .map(drop)
    }
}

/// The hook for a symbol of that name.
pub(crate) fn by_name(name: &CStr) -> Option<&'static Hook> {
    // Nearly every lookup in nearly every program ends at this comparison.
    if !name.to_bytes().starts_with(b"cu") {
        return None;
    }
    HOOKS.into_iter().find(|hook| hook.name == name)
}

/// The hook whose driver's function stands at `address`. One name can stand for several functions, by version; the
/// address says which it is.
pub(crate) fn by_driver_address(address: NonNull<c_void>) -> Option<&'static Hook> {
    HOOKS.into_iter().find(|hook| hook.driver() == Some(address))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::by_name;
    use crate::{HOOKS, fork};

    #[test]
    fn every_hook_is_found_by_its_name_and_by_no_other() {
        for hook in HOOKS {
            assert!(by_name(hook.name).is_some_and(|found| std::ptr::eq(found, hook)));
        }
        assert!(by_name(c"cuInit_v2").is_none());
        assert!(by_name(c"cu").is_none());
        assert!(by_name(c"malloc").is_none());
    }

    #[test]
    fn every_hook_has_its_own_word_and_word_zero_is_left_free() {
        let words: HashSet<_> = HOOKS.into_iter().map(|hook| hook.word).collect();
        assert_eq!(words.len(), HOOKS.len());
        assert!(words.iter().all(|word| (1..fork::WORDS).contains(word)));
    }
}
