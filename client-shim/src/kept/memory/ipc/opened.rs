//! Which memory of other processes is open here, for which devices, and how often.

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
    /// The blocks that it was opened for. One that its owner has freed meanwhile is not opened any more.
    blocks: BTreeSet<u64>,
    /// How often it was opened and not closed.
    count: u64,
}

/// All that this process has opened.
#[derive(Debug, Default)]
pub(crate) struct Ipc(BTreeMap<(Secret, u64), Opened>);

/// What a handle that is closed was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// None of ours.
    Unknown,
    /// It was opened more often than that.
    StillOpen,
    /// Nobody needs this range any longer.
    Last(u64, u64),
}

impl Ipc {
    /// Whether a block is open already.
    pub(super) fn knows(&self, said: &Said) -> bool {
        self.0.get(&(said.secret, said.piece)).is_some_and(|opened| opened.blocks.contains(&said.block))
    }

    /// Opens a block of a piece that is mapped already; where that is, and whether this device may use it.
    pub(super) fn again(&mut self, said: &Said, device: CUdevice) -> Option<(u64, bool)> {
        let opened = self.0.get_mut(&(said.secret, said.piece))?;
        opened.count += 1;
        opened.blocks.insert(said.block);
        Some((opened.base, opened.devices.contains(&device)))
    }

    /// A device may use a piece from now on.
    pub(super) fn is_allowed(&mut self, said: &Said, device: CUdevice) {
        if let Some(opened) = self.0.get_mut(&(said.secret, said.piece)) {
            opened.devices.insert(device);
        }
    }

    /// Notes what was opened for a device, unless it is open already.
    pub(super) fn note(&mut self, said: &Said, base: u64, device: CUdevice) -> bool {
        let (devices, blocks) = (BTreeSet::from([device]), BTreeSet::from([said.block]));
        let opened = Opened { base, size: said.size, devices, blocks, count: 1 };
        match self.0.entry((said.secret, said.piece)) {
            Entry::Vacant(place) => {
                place.insert(opened);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    pub(super) fn close(&mut self, address: u64) -> Closed {
        let is_there = |opened: &Opened| (opened.base..opened.base + opened.size).contains(&address);
        let found = self.0.iter_mut().find(|(_, opened)| is_there(opened)).map(|(key, opened)| {
            opened.count -= 1;
            (*key, opened.count == 0, opened.base, opened.size)
        });
        match found {
            None => Closed::Unknown,
            Some((_, false, ..)) => Closed::StillOpen,
            Some((key, true, base, size)) => {
                self.0.remove(&key);
                Closed::Last(base, size)
            }
        }
    }
}
