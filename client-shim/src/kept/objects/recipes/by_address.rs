//! What is known by its address and not by a handle of the driver's: host memory, and variables with what the program
//! has written there.

use std::ffi::c_uint;

use super::{Recipe, Recipes};
use crate::kept::objects::written::Written;

/// Bytes that are kept of all variables together at most. What is more begins anew, as what kernels have written does.
pub(crate) const MOST_WRITTEN: usize = 64 << 20;

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
    /// Whether it is known by an address, which stays, and not by a handle or an address of the driver's.
    pub(crate) const fn has_address(&self) -> bool {
        matches!(self, Self::HostRange { .. } | Self::HostMemory { .. })
    }

    /// Whether it is known by a handle or an address of the driver's, which another copy gives anew.
    pub(crate) const fn has_handle(&self) -> bool {
        !self.has_address() && !matches!(self, Self::Texture { .. })
    }
}

impl Recipes {
    /// What lies at an address or nearest below it. Nothing that has a handle lies in what has an address.
    fn below(&self, address: usize) -> Option<(usize, &Recipe)> {
        self.by_handle.range(..=address).next_back().map(|(start, kept)| (*start, &kept.recipe))
    }

    /// The host memory of ours around an address.
    pub(crate) fn host_memory(&self, address: usize) -> Option<HostMemory> {
        let (start, &Recipe::HostMemory { size, flags, .. }) = self.below(address)? else { return None };
        (address - start < size).then_some(HostMemory { start, size, flags })
    }

    /// Whether an address is of the host's memory that a device reaches.
    pub(crate) fn is_of_host(&self, address: usize) -> bool {
        let Some((start, Recipe::HostMemory { size, .. } | Recipe::HostRange { size, .. })) = self.below(address)
        else {
            return false;
        };
        address - start < *size
    }

    /// The variables that a range meets: address and size.
    pub(crate) fn variables_in(&self, address: usize, length: usize) -> Vec<(usize, usize)> {
        let end = address.saturating_add(length);
        let first = self.below(address).map_or(address, |(start, _)| start);
        let near = self.by_handle.range(first..end).filter_map(|(start, kept)| {
            let Recipe::Variable { size, .. } = kept.recipe else { return None };
            Some((*start, size))
        });
        near.filter(|(start, size)| start + size > address).collect()
    }

    /// The program has written `length` bytes at an address, as far as they are in variables: `bytes` if they are known.
    pub(crate) fn write(&mut self, address: usize, length: usize, bytes: Option<&[u8]>) {
        self.settled += 1;
        for (start, size) in self.variables_in(address, length) {
            let (from, to) = (address.max(start), address.saturating_add(length).min(start + size));
            let written = self.written.entry(start).or_default();
            let before = written.cost();
            match bytes.and_then(|bytes| bytes.get(from - address..to - address)) {
                Some(bytes) => written.write(from - start, bytes),
                None => written.forget(from - start, to - from),
            }
            self.written_bytes = self.written_bytes - before + written.cost();
            if self.written_bytes > MOST_WRITTEN {
                self.forget_written(start);
            }
        }
    }

    /// What was written to a variable is not kept any longer.
    pub(super) fn forget_written(&mut self, variable: usize) -> Option<Written> {
        let written = self.written.remove(&variable)?;
        self.written_bytes -= written.cost();
        Some(written)
    }

    /// What is known of all variables: addresses and bytes.
    pub(crate) fn all_written(&self) -> Vec<(usize, Vec<u8>)> {
        let ranges = self
            .written
            .iter()
            .flat_map(|(start, written)| written.ranges().map(move |(offset, bytes)| (start + offset, bytes.to_vec())));
        ranges.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::{
        super::{HostMemory, Image, KINDS, Recipe, Recipes},
        MOST_WRITTEN,
    };

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

    /// A module at 4 with two variables that touch.
    fn with_variables(size: usize) -> Recipes {
        let mut recipes = Recipes::default();
        recipes.keep(4, Recipe::Module { context: 0xc0, image: Image::Bytes([0; 4].into()), options: Vec::new() });
        for (number, name) in [c"first", c"second"].into_iter().enumerate() {
            let variable =
                Recipe::Variable { context: 0xc0, of: 4, is_of_library: false, name: CString::from(name), size };
            recipes.keep(0x10_0000_0000 + number * size, variable);
        }
        recipes
    }

    #[test]
    fn what_is_written_is_kept_where_there_are_variables_and_goes_with_their_module() {
        let mut recipes = with_variables(16);
        let base = 0x10_0000_0000;
        recipes.write(base - 4, 24, Some(&[5; 24]));
        recipes.write(base + 8, 4, None);
        recipes.write(base + 100, 4, Some(&[6; 4]));
        let expected = vec![(base, vec![5; 8]), (base + 12, vec![5; 4]), (base + 16, vec![5; 4])];
        assert_eq!(recipes.all_written(), expected);
        let taken = recipes.take(4);
        assert_eq!((recipes.all_written(), recipes.written_bytes), (Vec::new(), 0));
        recipes.put_back(taken);
        assert_eq!(recipes.all_written(), expected);
        recipes.rename(|handle| handle + 0x1000);
        let moved: Vec<_> = expected.iter().map(|(address, bytes)| (address + 0x1000, bytes.clone())).collect();
        assert_eq!(recipes.all_written(), moved, "variables have other addresses");
        assert!(recipes.forget(0x1004));
        assert_eq!((recipes.all_written(), recipes.written_bytes), (Vec::new(), 0));
    }

    #[test]
    fn what_is_written_is_kept_within_bounds() {
        let mut recipes = with_variables(MOST_WRITTEN);
        let base = 0x10_0000_0000;
        recipes.write(base, 10, Some(&[1; 10]));
        recipes.write(base + MOST_WRITTEN, MOST_WRITTEN, Some(&vec![2; MOST_WRITTEN]));
        assert_eq!(recipes.all_written(), [(base, vec![1; 10])]);
    }
}
