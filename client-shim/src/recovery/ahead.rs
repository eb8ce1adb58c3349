//! Ahead of the driver: a program that has nothing at work goes on with its spare copy as soon as the daemon says that its
//! server is spoilt or gone.
//!
//! The driver tells its processes of a fault one after the other, each 100 to 250 ms behind the last (measured with
//! 580.159.04 on an H100: traps beside one, four and eight programs). Work that is given meanwhile is lost, and whoever
//! waits for it waits as long. None of that need be where nothing was given before:
//!
//! | needed | why |
//! |---|---|
//! | the daemon's word of this copy's server | without it there is nothing to go away from |
//! | a spare copy that stands, on a sound server | another copy is not made on the word alone |
//! | all work is known to be done, the streams being asked once more | nothing can write any more, whatever becomes of the old context |
//! | nothing would have to be told: no variable begins anew, no launch is waited for by the driver itself | the program stays unaware |
//! | nobody is in the driver | who waits there waits for work, and gets the driver's answer |
//!
//! If one is missing nothing was changed, and the driver is asked as ever ([`announced`](super::announced)). A word that
//! is wrong costs a switch and no data: the old copy is cut off as a dead one is.

use std::time::Duration;

use super::{objects::Objects, variables};
use crate::{kept::work::progress, process::settings};

/// How long threads may take to come out, and the spare's own thread: the program does not wait in vain for longer.
pub(super) const PATIENCE: Duration = Duration::from_millis(1);

/// Whether all work is done. The gate is closed and nobody is inside.
pub(super) fn is_all_done() -> bool {
    if progress::busy() > 0 {
        variables::ask_busy_streams();
    }
    progress::busy() == 0
}

/// Whether the program would have to be told of something, with these objects.
pub(super) fn would_be_told(objects: &Objects) -> bool {
    settings::are_launches_blocking() || !objects.anew().is_empty()
}
