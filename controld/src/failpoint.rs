//! Sudden death at a named point, for the tests of what a killed daemon leaves behind.
//!
//! `MPS_TEST_KILL_AT=name`, or `name:n` for the n-th time, makes the daemon send itself SIGKILL when it comes to that
//! point. The points lie between every two steps that somebody else can see: the holder, a server, a client, the
//! command line, the file system. The variable is read once.
//!
//! `MPS_TEST_PANIC=name` makes a program of this binary panic at a place of its own ([`panics`]).
//!
//! The code exists only where `debug_assertions` are on: what is shipped can't be armed, has no branch here, and the
//! tests run debug builds anyway. A misspelt name would silently test nothing, so the names are a closed list.

/// Every point, in about the order in which a daemon comes by.
#[cfg(debug_assertions)]
pub(crate) const POINTS: &[&str] = &[
    // The start, fresh or as a successor.
    "attached",
    "state-restored",
    "start-saved",
    "connections-restored",
    "listening",
    "pid-file-written",
    // A connection.
    "accepted",
    "credentials-taken",
    "role-seen",
    "role-noted",
    "role-taken",
    "client-waits",
    // A server.
    "before-spawn",
    "spawned",
    "stderr-held",
    "spawn-saved",
    "server-role-noted",
    "server-role-taken",
    "hello-seen",
    "hello-noted",
    "hello-taken",
    "configuration-sent",
    "link-held",
    // A client that is handed over.
    "dispatching-noted",
    "client-end-held",
    "server-told",
    "hand-over-noted",
    "client-told",
    "status-read",
    "client-released",
    // Commands.
    "command-read",
    "asked",
    "answer-read",
    "answered",
    "saved",
    "state-half-held",
    // Named servers on disk.
    "state-asked",
    "state-written",
    "state-renamed",
    "state-kept",
    "state-known",
    // The end of a server and of the daemon.
    "server-signalled",
    "server-exit-seen",
    "server-exit-known",
    "sessions-closed",
    "quit-known",
    "files-removed",
    "holder-left",
    // The vault.
    "region-asked",
    "region-held",
    "region-safe",
    "region-released",
    "adoption-known",
    "adoption-half-noted",
    "adoption-noted",
    "owner-end-seen",
    "owner-end-noted",
    "commit-asked",
    "commit-held",
    "commit-safe",
    "owner-ends-seen",
    "offer-made",
    "succession-known",
    "succession-noted",
    "succession-safe",
    "vault-restored",
    // The word to programs that come back in place.
    "news-asked",
    "renewal-asked",
    "renewal-known",
    "renewal-done",
    // Compute modes.
    "gpus-seen",
    "modes-held",
    "modes-changed",
    // Another holder.
    "holder-replaced",
    "everything-held",
];

#[cfg(debug_assertions)]
mod armed {
    use super::POINTS;
    use nix::sys::signal::{Signal, raise};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Armed {
        name: String,
        left: AtomicU32,
    }

    fn read() -> Option<Armed> {
        let text = std::env::var("MPS_TEST_KILL_AT").ok()?;
        let (name, times) = text.split_once(':').unwrap_or((&text, "1"));
        assert!(POINTS.contains(&name), "MPS_TEST_KILL_AT: there is no point {name}");
        Some(Armed { name: name.to_owned(), left: AtomicU32::new(times.parse().unwrap_or(1)) })
    }

    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

    pub(super) fn reached(name: &'static str) {
        debug_assert!(POINTS.contains(&name), "{name} is missing in the list of points");
        let Some(armed) = ARMED.get_or_init(read) else { return };
        if armed.name == name && armed.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            // Nobody lives to see an error.
            let _ = raise(Signal::SIGKILL);
        }
    }
}

/// The daemon has come to this point, one of `POINTS`.
#[inline]
pub(crate) fn reached(name: &'static str) {
    #[cfg(debug_assertions)]
    armed::reached(name);
    #[cfg(not(debug_assertions))]
    let _ = name;
}

/// Panics where a test asks for that, by this name.
#[inline]
pub(crate) fn panics(name: &'static str) {
    #[cfg(debug_assertions)]
    assert!(std::env::var_os("MPS_TEST_PANIC").is_none_or(|asked| asked != name), "a test asks for a panic: {name}");
    #[cfg(not(debug_assertions))]
    let _ = name;
}
