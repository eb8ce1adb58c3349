//! Variables are read by a thread of this library while the program goes on ([`still`](super::still)). What they lie in
//! must not end meanwhile: the driver reads behind the handle that it is asked for, and a copy that is under way reads an
//! address of which nothing is left. The program alone knows that its threads do not do that to each other; of this
//! thread it knows nothing.
//!
//! So who ends a module, a library or a primary context waits for a look that is under way, which waits for nothing but
//! its own copies; and nobody looks while one of them ends.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use crate::cuda::{
    call::{Bypass, Driver},
    moved,
    result::CUresult,
    types::Key,
};
use crate::kept::objects;

/// Shared by those who end something, exclusive to who looks.
static ENDINGS: RwLock<()> = RwLock::new(());

/// Something that variables lie in ends as long as this is held, and functions with it.
pub(crate) fn ending() -> RwLockReadGuard<'static, ()> {
    moved::forget_layouts();
    ENDINGS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Nothing ends that variables lie in as long as this is held; `None` if something does just now.
pub(crate) fn nothing_ends() -> Option<RwLockWriteGuard<'static, ()>> {
    match ENDINGS.try_write() {
        Ok(held) => Some(held),
        Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Logic of `cuModuleUnload` and `cuLibraryUnload`.
pub(crate) fn ends<F: Copy>(driver: &mut Driver<F>, object: impl Key) -> Result<CUresult, Bypass> {
    let _nobody_reads = ending();
    objects::ends(driver, object)
}

#[cfg(test)]
mod tests {
    use super::{ending, nothing_ends};

    #[test]
    fn who_looks_and_who_ends_something_exclude_each_other_and_those_who_end_something_do_not() {
        let [one, other] = [ending(), ending()];
        assert!(nothing_ends().is_none());
        drop((one, other));
        let held = nothing_ends();
        assert!(held.is_some() && nothing_ends().is_none());
        drop(held);
        drop(ending());
    }
}
