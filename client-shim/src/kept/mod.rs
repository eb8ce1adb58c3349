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
//! Each room has one value behind one lock, which nobody else can reach, and knows the rooms below it alone
//! (`docs/rooms.md`); what is read without a lock lies beside it. No two of the locks are held at once. None is held over
//! a call of the driver but that of the arenas, while one is reserved, which waits for no work; what is to be unmapped is
//! taken out of its room first. `code` has no value: modules and libraries are recipes among the other objects, since
//! only one map by handle tells that a handle was given out again.
//!
//! A forked child finds the fork page empty and takes no part any longer, so it never waits for a lock that a thread of
//! its parent had.

pub(crate) mod account;
pub(crate) mod code;
pub(crate) mod contexts;
pub(crate) mod graphs;
mod keeping;
pub(crate) mod memory;
pub(crate) mod objects;
mod report;
pub(crate) mod shared;
pub(crate) mod streams;
pub(crate) mod work;

pub(crate) use code::variables::has_variables;
pub(crate) use graphs::graphs;
pub(crate) use keeping::{Surroundings, is_on};
pub(crate) use memory::{
    memory,
    vault::{Adopted, add_adopted, is_kept, outside},
};
pub(crate) use objects::{is_capturing, objects, recipes};

/// Memory is kept from now on: the driver has been initialised in this process. Whether this is the first time.
pub(crate) fn begin(surroundings: Surroundings) -> bool {
    let is_first = keeping::begin(surroundings);
    if is_first {
        report::at_exit();
    }
    is_first
}

/// What an object is that can be made again, by the living copy's handle. What is known by its address is none.
pub(crate) fn kind_of(handle: usize) -> Option<&'static str> {
    let of_recipe = recipes(|recipes| recipes.kind_of(handle)).ok().flatten();
    let is_context = || objects(|objects| objects.contexts.has(handle)).unwrap_or(false);
    let is_of_graph = || graphs(|graphs| graphs.has(handle)).unwrap_or(false);
    of_recipe.or_else(|| is_context().then_some("contexts")).or_else(|| is_of_graph().then_some("graphs"))
}
