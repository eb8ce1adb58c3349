//! Work that was given to the GPU: how far it is known to have come, what it may have written, what can be done again.

pub(crate) mod doubt;
pub(crate) mod progress;
pub(crate) mod reissue;

use std::collections::BTreeMap;

use super::Room;
use progress::Streams;
use reissue::Reissue;

/// What is known of work.
pub(super) struct Work {
    /// Counts, which every launch takes part in without a lock.
    streams: Streams,
    noted: Room<Noted>,
    /// Apart, because a program may speak of its kernels in a process that keeps nothing.
    reissue: Room<Reissue>,
}

/// What is noted less often.
#[derive(Debug, Default)]
struct Noted {
    /// Where each event was recorded last: place and number.
    recorded: BTreeMap<usize, (usize, u64)>,
    /// What the last recovery has left in doubt, address and size.
    in_doubt: Vec<(u64, u64)>,
}

impl Work {
    pub(super) const fn new() -> Self {
        Self { streams: Streams::new(), noted: Room::new(), reissue: Room::new() }
    }
}
