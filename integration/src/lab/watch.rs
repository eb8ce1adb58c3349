//! Waits for facts about files, woken by the kernel and bounded by a deadline.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Waits until `fact` is true; looked at first, and again whenever something in `dir` or, once it is there, in `inner`
/// changes.
///
/// # Panics
/// When it does not become true in time.
pub fn wait_for(dir: &Path, inner: &Path, limit: Duration, what: &str, fact: impl Fn() -> bool) {
    assert!(became_true(dir, inner, limit, fact), "waited {limit:?} in vain for {what:?} in {}", dir.display());
}

/// Whether `fact` becomes true in time.
#[must_use]
pub fn became_true(dir: &Path, inner: &Path, limit: Duration, fact: impl Fn() -> bool) -> bool {
    /// Some facts (a socket that listens) change without any change in the folder.
    const LOOK_AGAIN: Duration = Duration::from_millis(20);
    let deadline = Instant::now() + limit;
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).expect("an inotify descriptor");
    let changes = AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_MODIFY
        | AddWatchFlags::IN_MOVE
        | AddWatchFlags::IN_ATTRIB;
    let _ = inotify.add_watch(dir, changes);
    loop {
        // Adding it again changes nothing; the folder may have appeared since the last time.
        let _ = inotify.add_watch(inner, changes);
        if fact() {
            return true;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let timeout = PollTimeout::try_from(left.min(LOOK_AGAIN)).expect("20 ms fit");
        let _ = poll(&mut [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)], timeout);
        let _ = inotify.read_events();
    }
}

/// Waits until something changes in a folder, or a little while: for facts that are another process's to make.
pub fn wait_a_little(dir: &Path) {
    const A_LITTLE: Duration = Duration::from_millis(20);
    let _ = became_true(dir, dir, A_LITTLE, || false);
}
