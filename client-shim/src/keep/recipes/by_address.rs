//! What is known by its address and not by a handle of the driver's.

use std::ffi::c_uint;

use super::{Recipe, Recipes};

/// Host memory of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostMemory {
    /// First address.
    pub(crate) start: usize,
    /// Bytes as asked for.
    pub(crate) size: usize,
    /// Flags as given.
    pub(crate) flags: c_uint,
}

impl Recipe {
    /// Whether it is known by an address, which stays, and not by a handle of the driver's.
    pub(crate) const fn has_address(&self) -> bool {
        matches!(self, Self::HostRange { .. } | Self::HostMemory { .. })
    }
}

impl Recipes {
    /// The host memory of ours around an address.
    pub(crate) fn host_memory(&self, address: usize) -> Option<HostMemory> {
        // Nothing that has a handle lies in it.
        let (&start, recipe) = self.by_handle.range(..=address).next_back()?;
        let &Recipe::HostMemory { size, flags, .. } = recipe else { return None };
        (address - start < size).then_some(HostMemory { start, size, flags })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HostMemory, KINDS, Recipe, Recipes};

    #[test]
    fn host_memory_is_found_by_any_of_its_addresses_and_ends_with_its_context() {
        let mut recipes = Recipes::default();
        recipes.keep(0x1000, Recipe::Event { context: 0xc0, flags: 0 });
        recipes.keep(0x2000, Recipe::HostMemory { context: 0xc0, size: 100, flags: 4 });
        recipes.keep(0x3000, Recipe::HostRange { context: 0xc0, size: 100, flags: 0 });
        let memory = HostMemory { start: 0x2000, size: 100, flags: 4 };
        assert_eq!([0x2000, 0x2063].map(|address| recipes.host_memory(address)), [Some(memory); 2]);
        assert_eq!([0x1000, 0x1fff, 0x2064, 0x3000].map(|address| recipes.host_memory(address)), [None; 4]);
        assert_eq!(recipes.forget_context(0xc0), [memory]);
        assert_eq!(recipes.totals(), ([0; KINDS.len()], 0));
    }
}
