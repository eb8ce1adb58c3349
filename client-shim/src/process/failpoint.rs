//! A sudden end, or a stop, at a named step, for the tests of what is left when anybody dies there.
//!
//! `MPS_SHIM_TEST_AT=kill:name` makes the process send itself SIGKILL when it comes to that step; `stop:name` makes it
//! stop, so that a test can kill somebody else there and let it go on. `name:n` means the n-th time. The steps are those
//! of allocation, escrow, adoption and recovery: between each two of them something has changed that outlives the process,
//! or that another process sees.
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
    // The vault.
    "escrow-sent",
    "escrow-answered",
    "release-sent",
    "release-answered",
    "shadow-copied",
    "commit-settled",
    "commit-answered",
    // An adoption.
    "succession-answered",
    "adoption-imported",
    "adoption-mapped",
    "adoption-allowed",
    "adoption-noted",
    "adoption-done",
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
    "dead-amputated",
    "handles-renamed",
    "generation-known",
    "gate-open",
    "renewal-told",
    // A spare copy, and the switch to it.
    "spare-file",
    "spare-loaded",
    "spare-cleared",
    "spare-initialised",
    "spare-contexts",
    "spare-memory",
    "spare-objects",
    "spare-memory-again",
    "spare-objects-again",
    "spare-leads",
    "spare-former-cut",
];

#[cfg(debug_assertions)]
mod armed {
    use std::sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    };

    use super::POINTS;
    use crate::process::settings;

    struct Armed {
        signal: libc::c_int,
        name: String,
        left: AtomicU32,
    }

    fn parse(text: &str) -> Option<Armed> {
        let mut parts = text.split(':');
        let signal = match parts.next()? {
            "kill" => libc::SIGKILL,
            "stop" => libc::SIGSTOP,
            _ => return None,
        };
        let name = parts.next().filter(|name| POINTS.contains(name))?.to_owned();
        let times = parts.next().map_or(Some(1), |times| times.parse().ok())?;
        Some(Armed { signal, name, left: AtomicU32::new(times) })
    }

    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

    pub(super) fn reached(name: &'static str) {
        debug_assert!(POINTS.contains(&name), "{name} is missing in the list of steps");
        let read = || {
            let text = settings::variable(c"MPS_SHIM_TEST_AT")?.into_string().unwrap_or_default();
            let armed = parse(&text);
            // A misspelt name would silently test nothing.
            assert!(armed.is_some(), "MPS_SHIM_TEST_AT: there is no step {text}");
            armed
        };
        let Some(armed) = ARMED.get_or_init(read) else { return };
        if armed.name == name && armed.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            // SAFETY: a signal that no handler of the program's sees.
            unsafe { libc::raise(armed.signal) };
        }
    }

    #[cfg(test)]
    mod tests {
        use super::parse;

        #[test]
        fn a_step_is_a_known_name_with_what_happens_there() {
            let armed = parse("stop:memory-mapped:2").unwrap();
            assert_eq!(
                (armed.signal, armed.name.as_str(), armed.left.into_inner()),
                (libc::SIGSTOP, "memory-mapped", 2)
            );
            assert!(parse("kill:gate-closed").is_some());
            for wrong in ["memory-mapped", "kill:nowhere", "kill:memory-mapped:x", "end:memory-mapped", ""] {
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
