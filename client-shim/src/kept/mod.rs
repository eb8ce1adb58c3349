//! `MPS_SHIM_KEEP=memory`: device memory that outlives a fault.
//!
//! GPU memory that was allocated so that it can be exported stays alive as long as somebody holds its descriptor, through
//! the death of the server, of the context and of the process's channels (`recovery-findings` 3). So what a program gets
//! from `cuMemAlloc` is made of such memory here ([`memory`](mod@memory)), in slabs for small requests, with one descriptor for
//! each slab ([`descriptors`](crate::process::descriptors)). A program cannot tell, except for what
//! `client-shim/README.md` lists.
//!
//! If anything of ours fails, the call goes to the driver as it would without us, and what the program then has is
//! counted as not recoverable, with the reason ([`account`]).
//!
//! All of it is one value, [`Kept`], with a lock for each room; only the counts of streams' work, which take no lock, lie
//! apart. No two of the locks are held at once. None is held over a call of the driver but that of the arenas, while one
//! is reserved, which waits for no work; what is to be unmapped is taken out of its room first. `code` has no room of its
//! own: modules and libraries are recipes among the others, since only one map by handle tells that a handle was given
//! out again.
//!
//! A forked child finds the fork page empty and takes no part any longer, so it never waits for a lock that a thread of
//! its parent had.

pub(crate) mod account;
pub(crate) mod code;
pub(crate) mod graphs;
pub(crate) mod memory;
pub(crate) mod objects;
pub(crate) mod work;

pub(crate) use memory::vault::{Adopted, add_adopted, is_kept, outside};

use std::sync::{
    Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use crate::{
    cuda::call::Bypass,
    process::{fork, settings},
};
use account::Account;
use graphs::known::Graphs;
use memory::{Memory, arena::Arenas};
use objects::{Objects, recipes::Recipes};
use work::Work;

/// The word of the fork page that belongs to this module and `init`.
const PROCESS: usize = 0;
/// The driver was initialised in this process with memory to be kept.
const KEEPING: u32 = 1 << 3;

/// What a room keeps, behind its lock.
struct Room<T>(Mutex<Option<T>>);

impl<T: Default> Room<T> {
    const fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // A panic while it was held has been answered by the driver; the maps are whole between any two of their calls.
        work(self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
    }
}

/// All that is kept of the program.
struct Kept {
    memory: Room<Memory>,
    /// Apart from the memory that lies in them, because the lock is held over a call of the driver.
    arenas: Room<Arenas>,
    objects: Room<Objects>,
    graphs: Room<Graphs>,
    work: Room<Work>,
    account: Room<Account>,
    /// Streams that are being captured.
    captures: AtomicUsize,
    /// Whether the program has the address of any variable: without one, copies and sets take no lock.
    has_variables: AtomicBool,
    surroundings: OnceLock<Surroundings>,
}

static KEPT: Kept = Kept {
    memory: Room::new(),
    arenas: Room::new(),
    objects: Room::new(),
    graphs: Room::new(),
    work: Room::new(),
    account: Room::new(),
    captures: AtomicUsize::new(0),
    has_variables: AtomicBool::new(false),
    surroundings: OnceLock::new(),
};

/// What is called where somebody else has a part in what is kept.
pub(crate) struct Surroundings {
    /// The program has a context of a device for the first time.
    pub(crate) has_context: fn(),
    /// Memory is short: waits until what the program has freed is let go of outside too.
    pub(crate) is_short: fn(),
    /// A member of the report at the program's end, in JSON.
    pub(crate) report: fn() -> Option<String>,
    /// Private functions that the program has called, and which of them are in a recovery's way: two lists in JSON.
    pub(crate) private: fn() -> (String, String),
}

/// Memory is kept from now on: the driver has been initialised in this process. Whether this is the first time.
pub(crate) fn begin(surroundings: Surroundings) -> bool {
    let is_first = fork::remember(PROCESS, KEEPING) & KEEPING == 0 && fork::recall(PROCESS) & KEEPING != 0;
    if is_first {
        // A child that begins anew has its parent's.
        let _earlier = KEPT.surroundings.set(surroundings);
        account::report_at_exit();
    }
    is_first
}

/// Whether this process keeps memory.
pub(crate) fn is_on() -> bool {
    fork::recall(PROCESS) & KEEPING != 0
}

/// Works on what is kept of memory.
pub(crate) fn memory<T>(work: impl FnOnce(&mut Memory) -> T) -> Result<T, Bypass> {
    if is_on() { Ok(KEPT.memory.with(work)) } else { Err(Bypass::NotKeeping) }
}

/// Works on what is known of contexts and captures.
pub(crate) fn objects<T>(work: impl FnOnce(&mut Objects) -> T) -> Result<T, Bypass> {
    if is_on() { Ok(KEPT.objects.with(work)) } else { Err(Bypass::NotKeeping) }
}

/// Works on the recipes, if more is kept than memory.
pub(crate) fn recipes<T>(work: impl FnOnce(&mut Recipes) -> T) -> Result<T, Bypass> {
    if settings::is_recording() { objects(|objects| work(&mut objects.recipes)) } else { Err(Bypass::NotKeeping) }
}

/// Works on the graphs, if more is kept than memory.
pub(crate) fn graphs<T>(work: impl FnOnce(&mut Graphs) -> T) -> Result<T, Bypass> {
    if settings::is_recording() && is_on() { Ok(KEPT.graphs.with(work)) } else { Err(Bypass::NotKeeping) }
}

/// What an object is that can be made again, by the living copy's handle. What is known by its address is none.
pub(crate) fn kind_of(handle: usize) -> Option<&'static str> {
    let of_recipe = recipes(|recipes| recipes.kind_of(handle)).ok().flatten();
    let is_context = || objects(|objects| objects.contexts.has(handle)).unwrap_or(false);
    let is_of_graph = || graphs(|graphs| graphs.has(handle)).unwrap_or(false);
    of_recipe.or_else(|| is_context().then_some("contexts")).or_else(|| is_of_graph().then_some("graphs"))
}

/// Whether a stream is being captured, without a lock.
fn has_capture() -> bool {
    KEPT.captures.load(Ordering::Acquire) > 0
}

/// Whether the program has the address of any variable.
pub(crate) fn has_variables() -> bool {
    KEPT.has_variables.load(Ordering::Relaxed)
}

/// Whether a stream is being captured.
pub(crate) fn is_capturing() -> Result<bool, Bypass> {
    objects(|objects| !objects.captures.is_empty())
}
