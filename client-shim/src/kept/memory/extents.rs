//! The free parts of a slab, and which of them a request gets.
//!
//! A request gets the smallest part that is large enough, the lowest of several: small holes are filled first, so that
//! whole slabs become empty and can be given back.

use std::collections::{BTreeMap, BTreeSet};

/// Alignment and least size of a part, in bytes. The driver promises 256 for its own allocations; 512 is what
/// `cudaMalloc` gives in practice and what some libraries' vector loads want.
pub(crate) const GRAIN: u64 = 512;

/// Free parts of a range that begins at 0; no two of them touch.
#[derive(Debug)]
pub(crate) struct Extents {
    whole: u64,
    /// Length by start.
    by_start: BTreeMap<u64, u64>,
    /// Length and start.
    by_length: BTreeSet<(u64, u64)>,
}

impl Extents {
    /// A range of so many bytes, all free.
    pub(crate) fn new(whole: u64) -> Self {
        let mut extents = Self { whole, by_start: BTreeMap::new(), by_length: BTreeSet::new() };
        extents.insert(0, whole);
        extents
    }

    /// Takes `length` bytes, which must be a multiple of [`GRAIN`]; where they begin.
    pub(crate) fn take(&mut self, length: u64) -> Option<u64> {
        let &(found, start) = self.by_length.range((length, 0)..).next()?;
        self.remove(start, found);
        if found > length {
            self.insert(start + length, found - length);
        }
        Some(start)
    }

    /// The same from a multiple of `alignment` on, which is one of [`GRAIN`].
    pub(crate) fn take_aligned(&mut self, length: u64, alignment: u64) -> Option<u64> {
        if alignment <= GRAIN {
            return self.take(length);
        }
        let fits = |&(found, start): &(u64, u64)| {
            let first = start.checked_next_multiple_of(alignment)?;
            (first.checked_add(length)? <= start + found).then_some(first)
        };
        let first = self.by_length.range((length, 0)..).find_map(fits)?;
        self.take_at(first, length).then_some(first)
    }

    /// Takes `length` bytes from `start`, both multiples of [`GRAIN`]; whether they were free.
    pub(crate) fn take_at(&mut self, start: u64, length: u64) -> bool {
        let Some((&before, &size)) = self.by_start.range(..=start).next_back() else { return false };
        let Some(left) = (before + size).checked_sub(start).and_then(|room| room.checked_sub(length)) else {
            return false;
        };
        self.remove(before, size);
        if start > before {
            self.insert(before, start - before);
        }
        if left > 0 {
            self.insert(start + length, left);
        }
        true
    }

    /// Gives back what [`Self::take`] gave.
    pub(crate) fn give(&mut self, start: u64, length: u64) {
        let (mut start, mut length) = (start, length);
        if let Some((&before, &size)) = self.by_start.range(..start).next_back()
            && before + size == start
        {
            self.remove(before, size);
            start = before;
            length += size;
        }
        if let Some(&size) = self.by_start.get(&(start + length)) {
            self.remove(start + length, size);
            length += size;
        }
        self.insert(start, length);
    }

    /// Free bytes.
    pub(crate) fn free(&self) -> u64 {
        self.by_start.values().sum()
    }

    /// Whether nothing is taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_start.get(&0) == Some(&self.whole)
    }

    fn insert(&mut self, start: u64, length: u64) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
    }

    fn remove(&mut self, start: u64, length: u64) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Extents, GRAIN};

    const WHOLE: u64 = 64 * GRAIN;

    #[test]
    fn the_smallest_hole_is_filled_first() {
        let mut extents = Extents::new(WHOLE);
        let taken: Vec<_> = [8, 1, 2, 1].iter().map(|grains| extents.take(grains * GRAIN).unwrap()).collect();
        extents.give(taken[0], 8 * GRAIN);
        extents.give(taken[2], 2 * GRAIN);
        assert_eq!(extents.take(GRAIN), Some(taken[2]));
        assert_eq!(extents.take(3 * GRAIN), Some(taken[0]));
        assert_eq!(extents.take(WHOLE), None);
    }

    #[test]
    fn a_part_begins_where_it_is_asked_to_and_leaves_what_is_before_it() {
        let mut extents = Extents::new(WHOLE);
        assert_eq!(extents.take(GRAIN), Some(0));
        assert_eq!(extents.take_aligned(2 * GRAIN, 16 * GRAIN), Some(16 * GRAIN));
        assert_eq!(extents.take_aligned(GRAIN, GRAIN), Some(GRAIN), "as ever");
        // The smaller hole is large enough, and has no such place.
        assert_eq!(extents.take_aligned(8 * GRAIN, 16 * GRAIN), Some(32 * GRAIN));
        assert_eq!(extents.take_aligned(32 * GRAIN, 16 * GRAIN), None);
        assert_eq!(extents.free(), WHOLE - 12 * GRAIN);
        for (start, grains) in [(16, 2), (0, 2), (32, 8)] {
            extents.give(start * GRAIN, grains * GRAIN);
        }
        assert!(extents.is_empty());
    }

    #[test]
    fn a_part_is_taken_where_it_is_if_it_is_free() {
        let mut extents = Extents::new(WHOLE);
        assert!(extents.take_at(8 * GRAIN, 4 * GRAIN));
        assert!(!extents.take_at(8 * GRAIN, GRAIN) && !extents.take_at(7 * GRAIN, 2 * GRAIN));
        assert!(!extents.take_at(WHOLE - GRAIN, 2 * GRAIN), "beyond the end");
        assert!(extents.take_at(0, 8 * GRAIN) && extents.take_at(12 * GRAIN, WHOLE - 12 * GRAIN));
        assert_eq!((extents.free(), extents.take(GRAIN)), (0, None));
        extents.give(0, 8 * GRAIN);
        extents.give(12 * GRAIN, WHOLE - 12 * GRAIN);
        extents.give(8 * GRAIN, 4 * GRAIN);
        assert!(extents.is_empty());
    }

    proptest! {
        #[test]
        fn no_byte_is_given_twice_and_none_is_lost(steps in prop::collection::vec((any::<bool>(), 0..64_u64), 1..200)) {
            let mut extents = Extents::new(WHOLE);
            let mut owner = [false; 64];
            let mut taken: Vec<(u64, u64)> = Vec::new();
            let grain = |bytes: u64| usize::try_from(bytes / GRAIN).unwrap();
            for (is_taking, number) in steps {
                if is_taking {
                    let length = (number % 9 + 1) * GRAIN;
                    if let Some(start) = extents.take(length) {
                        for place in &mut owner[grain(start)..grain(start + length)] {
                            prop_assert!(!*place, "given twice");
                            *place = true;
                        }
                        taken.push((start, length));
                    } else {
                        let longest = owner.split(|place| *place).map(<[bool]>::len).max();
                        prop_assert!(longest < Some(grain(length)), "there was room");
                    }
                } else if !taken.is_empty() {
                    let (start, length) = taken.swap_remove(usize::try_from(number).unwrap() % taken.len());
                    extents.give(start, length);
                    owner[grain(start)..grain(start + length)].fill(false);
                }
                prop_assert_eq!(extents.free(), owner.iter().filter(|place| !**place).count() as u64 * GRAIN);
                prop_assert_eq!(extents.is_empty(), taken.is_empty());
            }
        }
    }
}
