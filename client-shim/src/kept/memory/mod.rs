//! Device memory and pinned host memory that outlive a copy of the driver.
//!
//! What a program gets from `cuMemAlloc` is a block ([`store`], [`extents`]) in a slab ([`region`]) of an arena
//! ([`arena`]); what it maps itself is noted as its own ([`own`]).

pub(crate) mod allocation;
pub(crate) mod arena;
mod extents;
pub(crate) mod freeing;
mod kept_ranges;
pub(crate) mod mapping;
pub(crate) mod own;
pub(crate) mod pinned;
pub(crate) mod pointers;
pub(crate) mod region;
pub(crate) mod store;
pub(crate) mod stream_ordered;
pub(crate) mod vault;
