//! Work that was given to the GPU: how far it is known to have come, what it may have written, what can be done again.

pub(crate) mod doubt;
pub(crate) mod progress;
pub(crate) mod reissue;

use std::collections::BTreeMap;

/// What is known of work besides how far each stream has come.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Where each event was recorded last: place and number.
    recorded: BTreeMap<usize, (usize, u64)>,
    /// What the last recovery has left in doubt, address and size.
    in_doubt: Vec<(u64, u64)>,
}
