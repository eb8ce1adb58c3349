//! Which copy of the driver a thread calls: the one that lives, or the spare one, where the thread has chosen that.
//!
//! The hooks' own way to the driver does not ask ([`Function::driver_for_call`](super::functions::Function)): a program's
//! thread never chooses. What asks is `driver!`, by which this library makes calls of its own, with the same code for
//! either copy.

use std::{
    cell::Cell,
    marker::PhantomData,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use super::functions;

/// A thread may have chosen: as long as no copy was ever spare, no thread is looked at.
static MAY_BE: AtomicBool = AtomicBool::new(false);

thread_local! {
    static IS_CHOSEN: Cell<bool> = const { Cell::new(false) };
    /// Functions of the spare copy that this thread has asked for since it has last begun to.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread calls the spare copy.
#[inline]
pub(super) fn is_chosen() -> bool {
    MAY_BE.load(Ordering::Relaxed) && IS_CHOSEN.get()
}

/// This thread is about to call the spare copy.
pub(super) fn calls() {
    CALLS.set(CALLS.get().saturating_add(1));
}

/// As long as this lasts, the thread that has begun it calls the spare copy.
#[derive(Debug)]
pub(crate) struct Chosen(PhantomData<*const ()>);

impl Chosen {
    pub(crate) fn begin() -> Self {
        MAY_BE.store(true, Ordering::Relaxed);
        IS_CHOSEN.set(true);
        CALLS.set(0);
        Self(PhantomData)
    }

    /// Calls of the spare copy by this thread since then.
    #[expect(clippy::unused_self, reason = "there is a number as long as the thread has chosen")]
    pub(crate) fn calls(&self) -> u32 {
        CALLS.get()
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        IS_CHOSEN.set(false);
    }
}

/// Nobody finds a spare copy's functions any more.
pub(crate) fn forget() {
    functions::all().for_each(|function| function.set_spare(ptr::null_mut()));
}
