//! Which memory of other processes is open here, for which devices, and how often.
//!
//! A piece is mapped once, whole, for all of its blocks that are open. What the program has of it is the blocks.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use super::said::Said;
use crate::{cuda::types::CUdevice, process::passing::Secret};

/// What another process's memory is here.
#[derive(Debug)]
struct Opened {
    base: u64,
    size: u64,
    /// The devices that may use it.
    devices: BTreeSet<CUdevice>,
    /// The blocks of it that are open, by the numbers that their owner gives them. One that is open no longer may be freed by
    /// its owner, who is asked again.
    blocks: BTreeMap<u64, Block>,
}

/// A block that is open.
#[derive(Clone, Copy, Debug)]
struct Block {
    what: OpenBlock,
    /// How often it was opened and not closed.
    count: u64,
}

/// What the program has of a block that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kept::memory) struct OpenBlock {
    /// Its address.
    pub(in crate::kept::memory) start: u64,
    /// Bytes.
    pub(in crate::kept::memory) size: u64,
    /// A number that no other one that was open here has, or had.
    pub(in crate::kept::memory) number: u64,
}

/// All that this process has opened.
#[derive(Debug, Default)]
pub(crate) struct Ipc {
    /// By who has it, and its number there.
    pieces: BTreeMap<Key, Opened>,
    last_number: u64,
}

type Key = (Secret, u64);

/// What a handle that is closed was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// None of ours.
    Unknown,
    /// It was opened more often than that, or another block of its piece is open.
    StillOpen,
    /// Nobody needs this range any longer.
    Last(u64, u64),
}

impl Opened {
    /// The block that an address lies in, by number; of several, of which the owner has freed all but one, the last one.
    fn around(&self, address: u64) -> Option<(u64, OpenBlock)> {
        let mut all = self.blocks.iter().rev().map(|(number, block)| (*number, block.what));
        all.find(|(_, block)| (block.start..block.start + block.size).contains(&address))
    }

    fn has(&self, address: u64) -> bool {
        (self.base..self.base + self.size).contains(&address)
    }

    /// A block is opened once more.
    fn open(&mut self, said: &Said, number: u64) {
        let what = OpenBlock { start: self.base + said.offset, size: said.length, number };
        self.blocks.entry(said.block).or_insert(Block { what, count: 0 }).count += 1;
    }
}

impl Ipc {
    /// Whether a block is open already.
    pub(super) fn knows(&self, said: &Said) -> bool {
        self.pieces.get(&key(said)).is_some_and(|opened| opened.blocks.contains_key(&said.block))
    }

    /// Opens a block of a piece that is mapped already; where that is, and whether this device may use it.
    pub(super) fn again(&mut self, said: &Said, device: CUdevice) -> Option<(u64, bool)> {
        let opened = self.pieces.get_mut(&key(said))?;
        self.last_number += 1;
        opened.open(said, self.last_number);
        Some((opened.base, opened.devices.contains(&device)))
    }

    /// A device may use a piece from now on.
    pub(super) fn is_allowed(&mut self, said: &Said, device: CUdevice) {
        if let Some(opened) = self.pieces.get_mut(&key(said)) {
            opened.devices.insert(device);
        }
    }

    /// Notes what was opened for a device, unless it is open already.
    pub(super) fn note(&mut self, said: &Said, base: u64, device: CUdevice) -> bool {
        let Entry::Vacant(place) = self.pieces.entry(key(said)) else { return false };
        let devices = BTreeSet::from([device]);
        self.last_number += 1;
        place.insert(Opened { base, size: said.size, devices, blocks: BTreeMap::new() }).open(said, self.last_number);
        true
    }

    /// What is open at an address: `Some(None)` where a piece is mapped, and no block of it is open there.
    pub(in crate::kept::memory) fn around(&self, address: u64) -> Option<Option<OpenBlock>> {
        let opened = self.pieces.values().find(|opened| opened.has(address))?;
        Some(opened.around(address).map(|(_, block)| block))
    }

    /// A block is closed, by an address in it.
    pub(super) fn close(&mut self, address: u64) -> Closed {
        let mut all = self.pieces.iter().filter(|(_, opened)| opened.has(address));
        let found = all.find_map(|(key, opened)| Some((*key, opened.around(address)?.0)));
        found.map_or(Closed::Unknown, |(key, block)| self.let_go(key, block))
    }

    /// A block could not be opened for a device: it is as if nobody had asked.
    pub(super) fn unopen(&mut self, said: &Said) -> Closed {
        self.let_go(key(said), said.block)
    }

    fn let_go(&mut self, key: Key, block: u64) -> Closed {
        let Some(opened) = self.pieces.get_mut(&key) else { return Closed::Unknown };
        let Entry::Occupied(mut open) = opened.blocks.entry(block) else { return Closed::Unknown };
        open.get_mut().count -= 1;
        if open.get().count == 0 {
            open.remove();
        }
        if !opened.blocks.is_empty() {
            return Closed::StillOpen;
        }
        let (base, size) = (opened.base, opened.size);
        self.pieces.remove(&key);
        Closed::Last(base, size)
    }
}

fn key(said: &Said) -> Key {
    (said.secret, said.piece)
}
