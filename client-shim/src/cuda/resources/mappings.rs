//! What a copy has mapped.
//!
//! A mapping in which something lies that the program knows by its address stays reserved when the copy goes: a variable
//! that has moved, or an object's name. Nothing else may be found there.

use std::{
    collections::BTreeMap,
    ffi::{c_int, c_void},
    ptr,
};

use super::{Lead, RESOURCES, locked};

const PAGE: usize = 4096;

/// Ranges that don't meet: where each begins, and its end.
#[derive(Debug)]
pub(super) struct Mappings(BTreeMap<usize, usize>);

impl Mappings {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// A range is mapped by the copy, or by somebody else from now on.
    fn note(&mut self, start: usize, size: usize, is_copys: bool) {
        let end = start.saturating_add(size.next_multiple_of(PAGE));
        let met: Vec<_> = self.0.range(..end).rev().take_while(|(_, of)| **of > start).map(|(a, b)| (*a, *b)).collect();
        for (from, to) in met {
            self.0.remove(&from);
            if from < start {
                self.0.insert(from, start);
            }
            if to > end {
                self.0.insert(end, to);
            }
        }
        if is_copys && start < end {
            self.0.insert(start, end);
        }
    }

    /// Unmaps everything, but for the ranges that have one of these addresses: they are reserved only.
    ///
    /// # Safety
    /// Nobody uses it.
    pub(super) unsafe fn unmap(&mut self, kept: &[usize]) {
        for (start, end) in std::mem::take(&mut self.0) {
            let place = ptr::with_exposed_provenance_mut::<c_void>(start);
            if kept.iter().any(|address| (start..end).contains(address)) {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
                // SAFETY: the copy's own, which nobody uses.
                unsafe { libc::mmap(place, end - start, libc::PROT_NONE, flags, -1, 0) };
            } else {
                // SAFETY: as above.
                unsafe { libc::munmap(place, end - start) };
            }
        }
    }
}

unsafe extern "C" fn mmap<const OWNER: usize>(
    place: *mut c_void,
    size: usize,
    access: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: i64,
) -> *mut c_void {
    let mut mappings = locked(&RESOURCES[OWNER].mappings);
    // SAFETY: as the caller asks.
    let found = unsafe { libc::mmap(place, size, access, flags, descriptor, offset) };
    if found != libc::MAP_FAILED {
        mappings.note(found.expose_provenance(), size, true);
    }
    found
}

unsafe extern "C" fn munmap<const OWNER: usize>(place: *mut c_void, size: usize) -> c_int {
    let mut mappings = locked(&RESOURCES[OWNER].mappings);
    // SAFETY: as the caller asks.
    let failed = unsafe { libc::munmap(place, size) };
    if failed == 0 {
        mappings.note(place.addr(), size, false);
    }
    failed
}

unsafe extern "C" fn mremap<const OWNER: usize>(
    place: *mut c_void,
    size: usize,
    next_size: usize,
    flags: c_int,
    next: *mut c_void,
) -> *mut c_void {
    let mut mappings = locked(&RESOURCES[OWNER].mappings);
    // SAFETY: as the caller asks; the last argument is looked at when the flags say so.
    let found = unsafe { libc::mremap(place, size, next_size, flags, next) };
    if found != libc::MAP_FAILED {
        mappings.note(place.addr(), size, false);
        mappings.note(found.expose_provenance(), next_size, true);
    }
    found
}

/// What stands in the place of which function.
pub(super) fn leads<const OWNER: usize>() -> [Lead; 4] {
    [
        (c"mmap", mmap::<OWNER> as *const c_void),
        (c"mmap64", mmap::<OWNER> as *const c_void),
        (c"munmap", munmap::<OWNER> as *const c_void),
        (c"mremap", mremap::<OWNER> as *const c_void),
    ]
}

#[cfg(test)]
mod tests {
    use super::Mappings;

    fn ranges(of: &Mappings) -> Vec<(usize, usize)> {
        of.0.iter().map(|(from, to)| (*from, *to)).collect()
    }

    #[test]
    fn ranges_are_cut_and_joined_as_they_are_mapped_over_and_unmapped() {
        let mut mappings = Mappings::new();
        mappings.note(0x10_000, 0x8000, true);
        mappings.note(0x20_000, 1, true);
        assert_eq!(ranges(&mappings), [(0x10_000, 0x18_000), (0x20_000, 0x21_000)]);
        // Out of the middle, and over an end.
        mappings.note(0x12_000, 0x1000, false);
        assert_eq!(ranges(&mappings), [(0x10_000, 0x12_000), (0x13_000, 0x18_000), (0x20_000, 0x21_000)]);
        mappings.note(0x17_000, 0x9000, true);
        assert_eq!(
            ranges(&mappings),
            [(0x10_000, 0x12_000), (0x13_000, 0x17_000), (0x17_000, 0x20_000), (0x20_000, 0x21_000)]
        );
        mappings.note(0, 0x30_000, false);
        assert_eq!(ranges(&mappings), []);
    }
}
