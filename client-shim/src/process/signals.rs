//! `SIGPIPE` around a recovery: the dead copy of the driver writes to its server's pipe while it is torn down.
#![expect(unsafe_code, reason = "looks at and changes what a signal does")]

use std::{mem::MaybeUninit, ptr};

/// While it lives, a broken pipe ends nobody.
pub(crate) struct NoBrokenPipe {
    before: Option<libc::sigaction>,
}

impl NoBrokenPipe {
    /// Ignores the signal, unless the program does something else about it.
    pub(crate) fn begin() -> Self {
        let mut known = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: only writes what is set to the variable.
        let failed = unsafe { libc::sigaction(libc::SIGPIPE, ptr::null(), known.as_mut_ptr()) } != 0;
        // SAFETY: zeroed is a valid value, filled in or not.
        let known = unsafe { known.assume_init() };
        if failed || known.sa_sigaction != libc::SIG_DFL {
            return Self { before: None };
        }
        let mut ignoring = known;
        ignoring.sa_sigaction = libc::SIG_IGN;
        // SAFETY: the structure is the one that was set, with another action.
        let is_set = unsafe { libc::sigaction(libc::SIGPIPE, &raw const ignoring, ptr::null_mut()) } == 0;
        Self { before: is_set.then_some(known) }
    }
}

impl Drop for NoBrokenPipe {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // SAFETY: the structure that was set before.
            unsafe { libc::sigaction(libc::SIGPIPE, before, ptr::null_mut()) };
        }
    }
}
