//! One function of the driver: its description, and where the copy of the driver that lives has it, and a spare one.

use std::{
    ffi::{CStr, c_void},
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

use super::{Class, Effect};
use crate::cuda::{call::Bypass, library, second};
use crate::process::settings;

/// One function of the driver.
pub(crate) struct Function {
    /// Its name as a symbol of the driver's library.
    pub(crate) name: &'static CStr,
    /// What it deals with.
    class: Class,
    /// What it does to a stream's work.
    effect: Effect,
    /// Whether the default stream is the thread's own.
    is_per_thread: bool,
    /// Whether our function does nothing but to pass calls on, unless they pass the gate of recoveries.
    is_plain: bool,
    /// The driver's own function, or [`MISSING`]. Its library is never unloaded. Once known it changes only when
    /// another copy of the driver takes over, while nobody is inside one.
    driver: AtomicPtr<c_void>,
    /// The spare copy's, null without one: for threads that have [chosen](second) it.
    spare: AtomicPtr<c_void>,
}

/// Whether a name, which ends in NUL, is that of a function whose default stream is the thread's own.
const fn is_for_threads(name: &[u8]) -> bool {
    let end = name.len() - 1;
    end > 5 && name[end - 5] == b'_' && name[end - 4] == b'p' && name[end - 3] == b't'
}

/// Stands for a function that the driver does not have. No function has this address.
const MISSING: *mut c_void = ptr::without_provenance_mut(1);

impl Function {
    /// One whose driver's function is still unknown. `name` ends in NUL.
    pub(crate) const fn new(name: &'static str, class: Class, effect: Effect, is_plain: bool) -> Self {
        let is_per_thread = is_for_threads(name.as_bytes());
        let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else {
            panic!("the rows' macro ends every name in NUL");
        };
        Self {
            name,
            class,
            effect,
            is_per_thread,
            is_plain,
            driver: AtomicPtr::new(ptr::null_mut()),
            spare: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Whether our function does more in this process than to pass calls on.
    pub(crate) fn is_active(&self) -> bool {
        self.class.is_active()
    }

    /// Whether our function is handed out in the driver's place: it does something, or its answers are listened to.
    pub(crate) fn is_handed_out(&self) -> bool {
        (self.is_active() && (!self.is_plain || settings::is_replaying()))
            || (self.class.tells_of_errors() && settings::is_telling_of_faults())
    }

    /// Its name.
    pub(crate) fn text(&self) -> &'static str {
        self.name.to_str().unwrap_or("?")
    }

    /// What it does to a stream's work.
    pub(crate) fn effect(&self) -> Effect {
        self.effect
    }

    /// Whether the driver may compile code in it, for as long as that takes.
    pub(crate) fn compiles(&self) -> bool {
        self.class.compiles()
    }

    /// Whether the default stream is the thread's own for it.
    pub(crate) fn is_per_thread(&self) -> bool {
        self.is_per_thread
    }

    /// Puts what is found in another copy of the driver in the place of what is known; the address before.
    pub(crate) fn exchange(&self, find: impl FnOnce() -> Option<NonNull<c_void>>) -> *mut c_void {
        let known = self.driver.load(Ordering::Acquire);
        if !known.is_null() {
            self.driver.store(find().map_or(MISSING, NonNull::as_ptr), Ordering::Release);
        }
        known
    }

    /// The spare copy's function.
    pub(crate) fn spare(&self) -> Option<NonNull<c_void>> {
        NonNull::new(self.spare.load(Ordering::Acquire))
    }

    /// Notes where the spare copy has it; null without one.
    pub(crate) fn set_spare(&self, address: *mut c_void) {
        self.spare.store(address, Ordering::Release);
    }

    /// Puts an address back that [`Self::exchange`] has given.
    pub(crate) fn restore(&self, address: *mut c_void) {
        self.driver.store(address, Ordering::Release);
    }

    /// The driver's own function, looked for among the loaded libraries if need be; `None` if no driver is loaded, or
    /// if it has no such function. For a thread that has chosen the spare copy it is that one's.
    pub(crate) fn driver(&self) -> Option<NonNull<c_void>> {
        if second::is_chosen() {
            second::calls();
            return self.spare();
        }
        let known = self.driver.load(Ordering::Acquire);
        if known == MISSING {
            return None;
        }
        NonNull::new(known).or_else(|| {
            let found = library::in_loaded_driver(self);
            if found.is_none() && library::is_driver_known() {
                // Which of two threads notes it makes no difference: nothing was found.
                let _other =
                    self.driver.compare_exchange(ptr::null_mut(), MISSING, Ordering::AcqRel, Ordering::Acquire);
            }
            self.known_after(found?)
        })
    }

    /// The driver's own function for a call of it, which loads the driver if need be; `None` if there is no driver.
    #[inline(always)]
    pub(crate) fn driver_for_call(&self) -> Option<NonNull<c_void>> {
        self.known_for_call().or_else(|| self.driver_for_first_call())
    }

    /// The same where it is known.
    #[inline(always)]
    pub(crate) fn known_for_call(&self) -> Option<NonNull<c_void>> {
        let known = self.driver.load(Ordering::Acquire);
        if known.addr() > MISSING.addr() { NonNull::new(known) } else { None }
    }

    #[cold]
    fn driver_for_first_call(&self) -> Option<NonNull<c_void>> {
        self.driver().or_else(|| self.known_after(library::in_driver_loaded_now(self)?))
    }

    fn known(&self) -> Option<NonNull<c_void>> {
        NonNull::new(self.driver.load(Ordering::Acquire)).filter(|address| address.as_ptr() != MISSING)
    }

    /// The driver's own function once `found` was taken for it, or another one by a thread that was faster.
    fn known_after(&self, found: NonNull<c_void>) -> Option<NonNull<c_void>> {
        let _refused = self.learn(found);
        self.known()
    }

    /// Takes `address` for the driver's own function, unless another one is known: the first one found stays.
    pub(crate) fn learn(&self, address: NonNull<c_void>) -> Result<(), Bypass> {
        let known = self.driver.load(Ordering::Acquire);
        // The program may look for it in the copy that it has loaded itself, in whose place another one stands.
        if known == address.as_ptr() || library::is_former(address) {
            return Ok(());
        }
        if !known.is_null() && known != MISSING {
            return Err(Bypass::SecondCopy);
        }
        library::keep_loaded(address)?;
        self.driver
            .compare_exchange(known, address.as_ptr(), Ordering::AcqRel, Ordering::Acquire)
            .or_else(|earlier| if earlier == address.as_ptr() { Ok(earlier) } else { Err(Bypass::SecondCopy) })
            .map(drop)
    }
}
