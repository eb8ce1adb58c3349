//! Device memory and pinned host memory that outlive a copy of the driver.
//!
//! What a program gets from `cuMemAlloc` is a block ([`slabs`], [`extents`]) in a slab ([`region`]) of an arena
//! ([`arena`]); what it maps itself is noted as its own ([`own`]). Arrays are views of such blocks ([`arrays`]).

pub(crate) mod allocation;
pub(crate) mod arena;
pub(crate) mod arrays;
mod extents;
pub(crate) mod freeing;
pub(crate) mod ipc;
mod kept_ranges;
pub(crate) mod mapping;
pub(crate) mod own;
pub(crate) mod pinned;
pub(crate) mod pointers;
pub(crate) mod pools;
pub(crate) mod region;
pub(crate) mod slabs;
pub(crate) mod stream_ordered;
pub(crate) mod vault;

use std::{collections::BTreeMap, ffi::c_uint};

use super::keeping::{Room, is_on, surroundings};
use crate::{
    cuda::{call::Bypass, types::CUdevice},
    process::descriptors::Held,
};
use ipc::Ipc;
use kept_ranges::KeptRange;
use own::Own;
use slabs::Slabs;

/// What is kept of memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// What the program has allocated.
    pub(crate) slabs: Slabs,
    /// What it has by virtual memory management.
    pub(crate) own: Own,
    /// What it has opened of other processes.
    ipc: Ipc,
    /// By the flags that pinned memory was asked for with, those that the driver would tell of it.
    pinned_flags: BTreeMap<c_uint, c_uint>,
}

static MEMORY: Room<Memory> = Room::new();

/// Works on what is kept of memory.
pub(crate) fn memory<T>(work: impl FnOnce(&mut Memory) -> T) -> Result<T, Bypass> {
    if is_on() { Ok(MEMORY.with(work)) } else { Err(Bypass::NotKeeping) }
}

impl Memory {
    /// Every range that is kept, by address.
    fn kept(&self) -> Vec<KeptRange> {
        let mut kept: Vec<KeptRange> = self.slabs.kept().chain(self.own.kept()).collect();
        kept.sort_unstable_by_key(|range| range.base);
        kept
    }

    /// Every piece of memory that has a descriptor: with its device, bytes, and where all of it is mapped.
    fn each_outside(&self, tell: &mut dyn FnMut(&Held, CUdevice, u64, u64)) {
        self.slabs.each_outside(tell);
        self.own.each_outside(tell);
    }

    /// Contexts and allocations have other handles now.
    pub(crate) fn rename(&mut self, current: impl Fn(usize) -> usize) {
        self.slabs.rename(&current);
        self.own.rename(&current);
    }
}

/// Memory is short: waits until what the program has freed is let go of outside too.
fn wait_for_the_outside() {
    if let Some(surroundings) = surroundings() {
        (surroundings.is_short)();
    }
}
