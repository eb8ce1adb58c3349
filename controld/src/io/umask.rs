//! Makes a name with exactly its mode from the first moment on, whatever the process's mask takes away.
//!
//! The mask belongs to the whole process, so it is lifted for one system call at a time, and not at all for what only
//! the owner may use. What other threads make in that moment gets the modes that they ask for, which in this program are
//! always the ones that are meant.

use nix::sys::stat::{Mode, umask};
use parking_lot::Mutex;

/// One at a time, or the second would take the first one's empty mask for the one to restore.
static LIFTED: Mutex<()> = Mutex::new(());

struct Restore(Mode);

impl Drop for Restore {
    fn drop(&mut self) {
        umask(self.0);
    }
}

/// Calls `make`, which makes a name with `mode`, without a mask where one could take something of it away.
pub(super) fn exactly<T>(mode: Mode, make: impl FnOnce() -> T) -> T {
    if Mode::S_IRWXU.contains(mode) {
        return make();
    }
    let _alone = LIFTED.lock();
    let _restore = Restore(umask(Mode::empty()));
    make()
}
