//! Ctrl-C and its like: noted, so that the demonstration ends in its own way and leaves nothing behind.
#![expect(unsafe_code, reason = "a signal handler is installed")]

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::sync::atomic::{AtomicI32, Ordering};

/// What a user or a service manager ends a program with.
const SIGNALS: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// The signal that came first; 0 as long as none has.
static CAME: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: i32) {
    // The first one counts; cleaning up takes no longer for the second.
    let _ = CAME.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
}

/// From now on these signals are noted.
pub(super) fn listen() {
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESTART, SigSet::empty());
    for signal in SIGNALS {
        // SAFETY: the handler writes an atomic number and does nothing else.
        let before = unsafe { sigaction(signal, &action) }.expect("these signals may be handled");
        if matches!(before.handler(), SigHandler::SigIgn) {
            // As under nohup: who has started this wants it to go on.
            // SAFETY: no handler at all.
            let _ = unsafe { sigaction(signal, &before) };
        }
    }
}

/// The signal that came.
pub(super) fn came() -> Option<i32> {
    Some(CAME.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
}
