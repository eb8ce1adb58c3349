//! How much memory of each GPU the process has, told to whoever looks at its UVM descriptor.

use crate::tables::Table;
use sim_wire::uvm::set_memory;
use std::fs::File;
use std::sync::Arc;

/// Bytes in use by device.
#[derive(Debug, Default)]
pub(crate) struct Used {
    bytes: Table<u32, u64>,
    told_to: Option<Arc<File>>,
}

impl Used {
    /// Nothing in use, told to this address space.
    pub(crate) fn new(space: Arc<File>) -> Self {
        Self { bytes: Table::default(), told_to: Some(space) }
    }

    /// Of one device.
    pub(crate) fn of(&self, device: u32) -> u64 {
        self.bytes.get(&device).copied().unwrap_or_default()
    }

    /// So many more.
    pub(crate) fn add(&mut self, device: u32, bytes: u64) {
        self.set(device, self.of(device).saturating_add(bytes));
    }

    /// So many less.
    pub(crate) fn remove(&mut self, device: u32, bytes: u64) {
        self.set(device, self.of(device).saturating_sub(bytes));
    }

    fn set(&mut self, device: u32, bytes: u64) {
        self.bytes.insert(device, bytes);
        if let Some(space) = &self.told_to {
            // Who looks there then sees what was told before.
            let _ = set_memory(space, device, bytes);
        }
    }
}
