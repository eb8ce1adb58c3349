//! `MPS_SHIM_KEEP=memory`: device memory that outlives a fault.
//!
//! GPU memory that was allocated so that it can be exported stays alive as long as somebody holds its descriptor, through
//! the death of the server, of the context and of the process's channels (`recovery-findings` 3). So what a program gets
//! from `cuMemAlloc` is made of such memory here ([`memory`]), in slabs for small requests, with one descriptor for
//! each slab ([`descriptors`](crate::process::descriptors)). A program cannot tell, except for what
//! `client-shim/README.md` lists.
//!
//! If anything of ours fails, the call goes to the driver as it would without us, and what the program then has is
//! counted as not recoverable, with the reason ([`account`]).
//!
//! There is one lock. No call of the driver that may wait for the GPU is made while it is held, and none of ours at all:
//! what is to be unmapped is taken out of the store first. A forked child finds the fork page empty and takes no part
//! any longer, so it never waits for a lock that a thread of its parent had.

pub(crate) mod account;
pub(crate) mod code;
pub(crate) mod graphs;
pub(crate) mod memory;
pub(crate) mod objects;
pub(crate) mod work;

pub(crate) use memory::vault::{Adopted, add_adopted, is_kept, outside};

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::{cuda::call::Bypass, process::fork};
use memory::store::Store;

/// The word of the fork page that belongs to this module and `init`.
const PROCESS: usize = 0;
/// The driver was initialised in this process with memory to be kept.
const KEEPING: u32 = 1 << 3;

static STORE: Mutex<Option<Store>> = Mutex::new(None);

/// What is called where somebody else has a part in what is kept.
pub(crate) struct Surroundings {
    /// The program has a context of a device for the first time.
    pub(crate) has_context: fn(),
    /// Memory is short: waits until what the program has freed is let go of outside too.
    pub(crate) is_short: fn(),
    /// A member of the report at the program's end, in JSON.
    pub(crate) report: fn() -> Option<String>,
}

static SURROUNDINGS: OnceLock<Surroundings> = OnceLock::new();

/// Memory is kept from now on: the driver has been initialised in this process. Whether this is the first time.
pub(crate) fn begin(surroundings: Surroundings) -> bool {
    let is_first = fork::remember(PROCESS, KEEPING) & KEEPING == 0 && fork::recall(PROCESS) & KEEPING != 0;
    if is_first {
        // A child that begins anew has its parent's.
        let _earlier = SURROUNDINGS.set(surroundings);
        account::report_at_exit();
    }
    is_first
}

fn surroundings() -> Option<&'static Surroundings> {
    SURROUNDINGS.get()
}

/// The program has a context of a device for the first time.
fn has_context() {
    if let Some(surroundings) = surroundings() {
        (surroundings.has_context)();
    }
}

/// Memory is short: waits until what the program has freed is let go of outside too.
fn wait_for_the_outside() {
    if let Some(surroundings) = surroundings() {
        (surroundings.is_short)();
    }
}

/// Whether this process keeps memory.
pub(crate) fn is_on() -> bool {
    fork::recall(PROCESS) & KEEPING != 0
}

/// Works on the store.
pub(crate) fn with<T>(work: impl FnOnce(&mut Store) -> T) -> Result<T, Bypass> {
    if !is_on() {
        return Err(Bypass::NotKeeping);
    }
    // A panic while it was held has been answered by the driver; the maps are whole between any two of their calls.
    let mut store = STORE.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(work(store.get_or_insert_default()))
}
