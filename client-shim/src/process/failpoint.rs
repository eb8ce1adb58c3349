//! A sudden end, or a stop, at a named step, for the tests of what is left when anybody dies there.
//!
//! `MPS_SHIM_TEST_AT=kill:name` makes the process send itself SIGKILL when it comes to that step; `stop:name` makes it
//! stop, so that a test can kill somebody else there and let it go on. `name:n` means the n-th time, `name:0` each
//! time. The steps are those
//! of allocation, escrow, adoption and recovery: between each two of them something has changed that outlives the process,
//! or that another process sees.
//!
//! `hold:name:n` keeps the thread alone there, until there is a file of the name in `MPS_SHIM_TEST_GO`: what a slow machine
//! does with a thread beside others that go on. One with `.held` behind that name says that it is there.
//!
//! `fail:name:n` makes something fail the first n times that it is tried: what a machine does that is too slow, or another
//! fault at that moment.
//!
//! As the daemon's own (`controld/src/failpoint.rs`) the code exists only where `debug_assertions` are on, and the names
//! are a closed list, of which the tests in `shim/steps.rs` take every one.
#![cfg_attr(debug_assertions, expect(unsafe_code, reason = "raises a signal"))]

/// Every step, in about the order in which a program comes by.
#[cfg(debug_assertions)]
pub(crate) const POINTS: &[&str] = &[
    // An allocation that needs a slab.
    "memory-created",
    "memory-exported",
    "memory-mapped",
    "memory-allowed",
    "memory-noted",
    // The end of an array that is noted no longer, while its textures are still noted with it.
    "array-taken",
    // The vault.
    "escrow-sent",
    "escrow-answered",
    "release-sent",
    "release-answered",
    "shadow-copied",
    "commit-settled",
    "commit-answered",
    // An adoption.
    "offer-answered",
    "offer-mapped",
    "offer-withdrawn",
    "succession-answered",
    "adoption-imported",
    "adoption-mapped",
    "adoption-allowed",
    "adoption-noted",
    "adoption-done",
    // A call that the driver has answered with an error, before anybody was told.
    "error-answered",
    // A recovery in place.
    "gate-closed",
    "threads-out",
    "dead-unmapped",
    "name-freed",
    "copy-found",
    "copy-loaded",
    "copy-leads",
    "copy-initialised",
    "contexts-again",
    "memory-again",
    "objects-again",
    "private-led",
    "handles-renamed",
    "generation-known",
    "gate-open",
    // The dead copy is cut off, beside the program that goes on or, in the second case, before.
    "burial-begun",
    "dead-silenced",
    "dead-amputated",
    "dead-cut-early",
    "renewal-told",
    // A spare copy, and the switch to it.
    "spare-file",
    "spare-loaded",
    "spare-cleared",
    "spare-bound",
    "spare-initialised",
    "spare-contexts",
    "spare-memory",
    "spare-objects",
    "spare-stands",
    "spare-memory-again",
    "spare-objects-again",
    "spare-leads",
];

/// What can be made to fail.
#[cfg(debug_assertions)]
const FAILURES: &[&str] = &["dead-threads-end", "dead-copys-thread", "copy-hit-early", "copy-hit-late", "map-ahead"];

#[cfg(debug_assertions)]
mod armed {
    use std::{
        ffi::{OsStr, OsString},
        fs,
        path::Path,
        sync::{
            OnceLock,
            atomic::{AtomicU32, Ordering},
        },
        thread,
        time::Duration,
    };

    use super::{FAILURES, POINTS};
    use crate::process::settings;

    /// Between two looks whether a thread may go on.
    const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

    /// What happens there.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum What {
        Signal(libc::c_int),
        Held,
        Failure,
    }

    struct Armed {
        what: What,
        name: String,
        /// Which time, 0 for each; of a failure, how often.
        time: u32,
        seen: AtomicU32,
    }

    impl Armed {
        /// Counts one time, from 1.
        fn count(&self) -> u32 {
            self.seen.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
        }
    }

    fn parse(text: &str) -> Option<Armed> {
        let mut parts = text.split(':');
        let what = match parts.next()? {
            "kill" => What::Signal(libc::SIGKILL),
            "stop" => What::Signal(libc::SIGSTOP),
            "hold" => What::Held,
            "fail" => What::Failure,
            _ => return None,
        };
        let names = if what == What::Failure { FAILURES } else { POINTS };
        let name = parts.next().filter(|name| names.contains(name))?.to_owned();
        let time = parts.next().map_or(Some(1), |time| time.parse().ok())?;
        Some(Armed { what, name, time, seen: AtomicU32::new(0) })
    }

    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

    fn get() -> Option<&'static Armed> {
        let read = || {
            let text = settings::variable(c"MPS_SHIM_TEST_AT")?.into_string().unwrap_or_default();
            let armed = parse(&text);
            // A misspelt name would silently test nothing.
            assert!(armed.is_some(), "MPS_SHIM_TEST_AT: there is no step {text}");
            armed
        };
        ARMED.get_or_init(read).as_ref()
    }

    pub(super) fn reached(name: &'static str) {
        debug_assert!(POINTS.contains(&name), "{name} is missing in the list of steps");
        let Some(armed) = get().filter(|armed| armed.name == name) else { return };
        if armed.what == What::Failure || ![0, armed.count()].contains(&armed.time) {
            return;
        }
        match armed.what {
            // SAFETY: a signal that no handler of the program's sees.
            What::Signal(signal) => drop(unsafe { libc::raise(signal) }),
            What::Held => hold(),
            What::Failure => {}
        }
    }

    /// Waits for the test's word. Nobody can be told of a name that is missing.
    fn hold() {
        let Some(go) = settings::variable(c"MPS_SHIM_TEST_GO") else { return };
        let held = [&go, OsStr::new(".held")].into_iter().collect::<OsString>();
        // A test that is not told so waits in vain, and says that.
        let _told = fs::write(held, "");
        while !Path::new(&go).exists() {
            thread::park_timeout(BETWEEN_LOOKS);
        }
    }

    pub(super) fn fails(name: &'static str) -> bool {
        debug_assert!(FAILURES.contains(&name), "{name} is missing in the list of failures");
        let Some(armed) = get().filter(|armed| armed.name == name) else { return false };
        armed.what == What::Failure && armed.count() <= armed.time
    }

    #[cfg(test)]
    mod tests {
        use super::{What, parse};

        #[test]
        fn a_step_is_a_known_name_with_what_happens_there() {
            let armed = parse("stop:memory-mapped:2").unwrap();
            assert_eq!(
                (armed.what, armed.name.as_str(), armed.time),
                (What::Signal(libc::SIGSTOP), "memory-mapped", 2)
            );
            assert_eq!(parse("stop:memory-mapped").unwrap().time, 1);
            assert_eq!((armed.count(), armed.count()), (1, 2));
            assert!(parse("kill:gate-closed").is_some());
            assert_eq!(parse("hold:burial-begun").unwrap().what, What::Held);
            assert_eq!(parse("fail:dead-threads-end:3").unwrap().what, What::Failure);
            for wrong in
                ["memory-mapped", "kill:nowhere", "kill:memory-mapped:x", "end:memory-mapped", "fail:memory-mapped", ""]
            {
                assert!(parse(wrong).is_none(), "{wrong}");
            }
        }
    }
}

/// The process has come to this step, one of the list.
#[inline]
pub(crate) fn reached(name: &'static str) {
    #[cfg(debug_assertions)]
    armed::reached(name);
    #[cfg(not(debug_assertions))]
    let _ = name;
}

/// Whether what has this name, one of the list, is to fail this time.
#[inline]
pub(crate) fn fails(name: &'static str) -> bool {
    #[cfg(debug_assertions)]
    return armed::fails(name);
    #[cfg(not(debug_assertions))]
    {
        let _ = name;
        false
    }
}
