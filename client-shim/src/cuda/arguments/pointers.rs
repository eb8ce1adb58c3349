//! Pointers to what the driver reads or writes: what is passed in their place, and what is brought back.
#![expect(unsafe_code, reason = "reads and writes through the program's pointers, as the driver does")]

use super::{Argument, Launched, Pointee, Subject, Untranslatable};

/// What is passed in a pointer's place.
#[derive(Debug)]
pub(crate) struct Place<T: Pointee> {
    pointer: *mut T,
    copy: Option<T::Copy>,
}

impl<T: Pointee> Argument for *const T {
    type Held = Place<T>;

    fn hold(self, launched: &Launched) -> Result<Place<T>, Untranslatable> {
        // SAFETY: it is the program's argument.
        Ok(Place { pointer: self.cast_mut(), copy: unsafe { T::copy(self, launched) }? })
    }

    fn pass(held: &Place<T>) -> Self {
        held.copy.as_ref().map_or(held.pointer.cast_const(), T::original)
    }

    fn describe(self, subject: &mut Subject) {
        // SAFETY: it is the program's argument.
        unsafe { T::describe(self, subject) };
    }
}

impl<T: Pointee> Argument for *mut T {
    type Held = Place<T>;

    fn hold(self, launched: &Launched) -> Result<Place<T>, Untranslatable> {
        // SAFETY: it is the program's argument.
        let copy = if T::IS_WRITTEN { None } else { unsafe { T::copy(self, launched) }? };
        Ok(Place { pointer: self, copy })
    }

    fn pass(held: &Place<T>) -> Self {
        held.copy.as_ref().map_or(held.pointer, |copy| T::original(copy).cast_mut())
    }

    fn describe(self, subject: &mut Subject) {
        // SAFETY: it is the program's argument.
        unsafe { T::describe(self, subject) };
    }

    fn name_results(held: &Place<T>) {
        match &held.copy {
            // SAFETY: it is the program's argument, and the driver has returned success.
            None => unsafe { T::name_result(held.pointer) },
            // SAFETY: as above.
            Some(copy) => unsafe { T::give_back(copy, held.pointer) },
        }
    }
}
