//! Another copy of the driver lives, and the one before is cut off: the daemon, which may hold copies of its files, looks
//! then which are closed. Before that it would find them open, and hold them on.

use std::sync::atomic::{AtomicU64, Ordering};

use super::link::started;

/// The last recovery whose dead copy is cut off, and those of all before.
static CUT_OFF: AtomicU64 = AtomicU64::new(0);

/// The copy that lived until the recovery of this number is cut off.
pub(crate) fn is_cut_off(number: u64) {
    CUT_OFF.fetch_max(number, Ordering::AcqRel);
    if let Some(link) = started() {
        link.wake();
    }
}

/// The last recovery of which that is so.
pub(super) fn cut_off() -> u64 {
    CUT_OFF.load(Ordering::Acquire)
}
