//! Work that was given to the GPU: how far it is known to have come, and what it may have written.

pub(crate) mod doubt;
mod events;
mod own;
mod places;
pub(crate) mod progress;

use events::Events;

/// What is known of work besides how far each stream has come.
#[derive(Debug, Default)]
pub(super) struct Work {
    events: Events,
    /// What the last recovery has left in doubt, address and size.
    in_doubt: Vec<(u64, u64)>,
}
