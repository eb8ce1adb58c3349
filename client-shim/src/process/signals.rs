//! `SIGPIPE` around a recovery: a dead copy of the driver writes to its server's pipe while it is torn down, until it is
//! cut off.
//!
//! A handler that does nothing, and not to ignore it: what is ignored stays so in a program that this one begins
//! meanwhile, and a handler does not. A forked child has what there was before ([`in_a_child`]).
#![expect(unsafe_code, reason = "looks at and changes what a signal does")]

use std::{
    ffi::c_int,
    mem::MaybeUninit,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many want it, and what was set before the first of them.
static SET: Mutex<(usize, Option<libc::sigaction>)> = Mutex::new((0, None));

fn set() -> MutexGuard<'static, (usize, Option<libc::sigaction>)> {
    SET.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn nothing(_signal: c_int) {}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == nothing as *const () as usize
}

/// What the signal does now.
fn now() -> Option<libc::sigaction> {
    let mut known = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only writes what is set to the variable.
    let failed = unsafe { libc::sigaction(libc::SIGPIPE, ptr::null(), known.as_mut_ptr()) } != 0;
    // SAFETY: zeroed is a valid value, filled in or not.
    let known = unsafe { known.assume_init() };
    (!failed).then_some(known)
}

/// While it lives, a broken pipe ends nobody. Any thread may end it.
#[derive(Debug)]
pub(crate) struct NoBrokenPipe(());

impl NoBrokenPipe {
    /// Has the signal do nothing, unless the program does something else about it.
    pub(crate) fn begin() -> Self {
        let mut set = set();
        set.0 += 1;
        if let Some(before) = now().filter(|known| known.sa_sigaction == libc::SIG_DFL) {
            let mut ours = before;
            ours.sa_sigaction = nothing as *const () as usize;
            // Nobody's wait is to end by it.
            ours.sa_flags = libc::SA_RESTART;
            // SAFETY: the handler does nothing, on whatever stack.
            let is_set = unsafe { libc::sigaction(libc::SIGPIPE, &raw const ours, ptr::null_mut()) } == 0;
            set.1 = is_set.then_some(before).or(set.1);
        }
        Self(())
    }
}

impl Drop for NoBrokenPipe {
    fn drop(&mut self) {
        let mut set = set();
        set.0 -= 1;
        if set.0 > 0 {
            return;
        }
        // What the program has set meanwhile stays.
        if let Some(before) = set.1.take()
            && now().is_some_and(|known| is_ours(&known))
        {
            // SAFETY: the structure that was set before.
            unsafe { libc::sigaction(libc::SIGPIPE, &raw const before, ptr::null_mut()) };
        }
    }
}

/// In a forked child, in which nobody ends it: the signal does what it does by itself. Asks the system and nobody else.
pub(crate) fn in_a_child() {
    if now().is_some_and(|known| is_ours(&known)) {
        // SAFETY: zeroed is the signal's own action, with no flags and nothing blocked.
        let own = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
        // SAFETY: as above.
        unsafe { libc::sigaction(libc::SIGPIPE, &raw const own, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::{NoBrokenPipe, in_a_child, is_ours, now};

    /// One test, since the process has one action for the signal.
    #[test]
    fn a_broken_pipe_ends_nobody_as_long_as_anybody_wants_that_and_the_programs_own_word_stays() {
        let set_to = |action: usize| {
            let mut wanted = now().expect("an action");
            wanted.sa_sigaction = action;
            // SAFETY: the default, or to ignore it.
            assert_eq!(unsafe { libc::sigaction(libc::SIGPIPE, &raw const wanted, std::ptr::null_mut()) }, 0);
        };
        let action = || now().expect("an action").sa_sigaction;
        let at_first = action();
        set_to(libc::SIG_DFL);
        let first = NoBrokenPipe::begin();
        let second = NoBrokenPipe::begin();
        assert!(now().is_some_and(|known| is_ours(&known)));
        // SAFETY: a signal that does nothing now.
        assert_eq!(unsafe { libc::raise(libc::SIGPIPE) }, 0);
        drop(first);
        assert!(now().is_some_and(|known| is_ours(&known)), "the other one wants it still");
        drop(second);
        assert_eq!(action(), libc::SIG_DFL);
        let third = NoBrokenPipe::begin();
        in_a_child();
        assert_eq!(action(), libc::SIG_DFL);
        set_to(libc::SIG_IGN);
        drop(third);
        assert_eq!(action(), libc::SIG_IGN, "the program has said so meanwhile");
        drop(NoBrokenPipe::begin());
        assert_eq!(action(), libc::SIG_IGN, "it is the program's");
        set_to(at_first);
    }
}
