//! Whether this process keeps anything, and what the rooms are made of: a value behind a lock each, and what is called
//! where somebody outside has a part in what is kept.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::{cuda::result::CUresult, process::fork};

/// The word of the fork page that belongs to this module and `init`.
const PROCESS: usize = 0;
/// The driver was initialised in this process with memory to be kept.
const KEEPING: u32 = 1 << 3;

/// What a room keeps, behind its lock.
pub(super) struct Room<T>(Mutex<Option<T>>);

impl<T: Default> Room<T> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    pub(super) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // A panic while it was held has been answered by the driver; the maps are whole between any two of their calls.
        work(self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
    }
}

/// What is called where somebody else has a part in what is kept.
pub(crate) struct Surroundings {
    /// The program has a context of a device for the first time.
    pub(crate) has_context: fn(),
    /// Hears what the driver has answered where it has made none.
    pub(crate) has_no_context: fn(CUresult),
    /// Memory is short: waits until what the program has freed is let go of outside too.
    pub(crate) is_short: fn(),
    /// A member of the report at the program's end, in JSON.
    pub(crate) report: fn() -> Option<String>,
    /// Another one: what a spare copy of the driver takes.
    pub(crate) spare: fn() -> Option<String>,
    /// Private functions that the program has called, and which of them are in a recovery's way: two lists in JSON.
    pub(crate) private: fn() -> (String, String),
}

static SURROUNDINGS: OnceLock<Surroundings> = OnceLock::new();

/// Memory is kept from now on: the driver has been initialised in this process. Whether this is the first time.
pub(super) fn begin(surroundings: Surroundings) -> bool {
    let is_first = fork::remember(PROCESS, KEEPING) & KEEPING == 0 && is_on();
    if is_first {
        // A child that begins anew has its parent's.
        let _earlier = SURROUNDINGS.set(surroundings);
    }
    is_first
}

/// Whether this process keeps memory.
pub(crate) fn is_on() -> bool {
    fork::recall(PROCESS) & KEEPING != 0
}

/// What is called outside, once memory is kept.
pub(super) fn surroundings() -> Option<&'static Surroundings> {
    SURROUNDINGS.get()
}
