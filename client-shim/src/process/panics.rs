//! Panics of our own code, which must not reach the program.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Runs `work`; `None` if it panicked.
pub(crate) fn unpanicked<T>(work: impl FnOnce() -> T) -> Option<T> {
    // What `work` borrowed is either the call state, which is consistent at every step, or given up by the caller.
    catch_unwind(AssertUnwindSafe(work)).map_err(mem::forget).ok()
}
