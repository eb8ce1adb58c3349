//! An argument that is needed again only if a call of the driver fails in a way that is ours to deal with.
//!
//! The compiler would keep it in a register that the driver leaves as it was. Each of those has to be saved first and
//! restored afterwards, in every call, and whatever else is in them meanwhile makes way. Here it is written to memory once.

use std::{cell::UnsafeCell, mem::MaybeUninit};

/// A place for it.
pub(crate) struct Aside<T>(UnsafeCell<MaybeUninit<T>>);

impl<T: Copy> Aside<T> {
    /// Nothing.
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// Puts it there, in memory: a compiler may keep what is written in another way where it wants.
    #[inline(always)]
    pub(crate) fn put(&self, argument: T) {
        // SAFETY: the place is this value's own, and nobody has a reference into it.
        unsafe { self.0.get().cast::<T>().write_volatile(argument) };
    }

    /// What is there.
    ///
    /// # Safety
    /// Something was [`put`](Self::put) there.
    #[inline(always)]
    pub(crate) unsafe fn take(&self) -> T {
        // SAFETY: by the contract.
        unsafe { self.0.get().cast::<T>().read_volatile() }
    }
}

#[cfg(test)]
mod tests {
    use super::Aside;

    #[test]
    fn what_was_put_aside_is_taken_again() {
        let aside = Aside::new();
        aside.put((7_u64, 8_u8));
        // SAFETY: it was put there.
        assert_eq!(unsafe { aside.take() }, (7, 8));
    }
}
