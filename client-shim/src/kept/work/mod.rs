//! Work that was given to the GPU: how far it is known to have come, and what it may have written.

pub(crate) mod doubt;
pub(crate) mod progress;

use std::collections::BTreeMap;

/// What is known of work besides how far each stream has come.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Where each event was recorded last: place and number.
    recorded: BTreeMap<usize, (usize, u64)>,
    /// What the last recovery has left in doubt, address and size.
    in_doubt: Vec<(u64, u64)>,
}
