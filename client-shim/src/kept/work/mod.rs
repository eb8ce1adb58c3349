//! Work that was given to the GPU: how far it is known to have come, and what it may have written.

mod counts;
pub(crate) mod doubt;
mod events;
mod hosts;
mod places;
pub(crate) mod progress;
mod recorded;
mod thread_streams;

use super::keeping::Room;
use doubt::Doubt;
use events::Events;

static WORK: Room<Work> = Room::new();

/// What is known of work besides how far each stream has come.
#[derive(Debug, Default)]
struct Work {
    events: Events,
    in_doubt: Doubt,
}
