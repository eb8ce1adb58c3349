//! What a program has copied into a module's variable, or set there: the latest bytes of each range. Pure bookkeeping.

use std::collections::BTreeMap;

/// What keeping a range costs besides its bytes, about.
const COST_OF_A_RANGE: usize = 64;

/// Ranges by their offset. None meets another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    ranges: BTreeMap<usize, Vec<u8>>,
}

impl Written {
    /// Notes bytes from an offset on, in place of what was known there.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.forget(offset, bytes.len());
        let before = self.ranges.range_mut(..offset).next_back();
        match before.filter(|(start, known)| **start + known.len() == offset) {
            Some((_, known)) => known.extend_from_slice(bytes),
            None => drop(self.ranges.insert(offset, bytes.to_vec())),
        }
    }

    /// What is in a range is not known any longer.
    pub(crate) fn forget(&mut self, offset: usize, length: usize) {
        let end = offset.saturating_add(length);
        let first = self.ranges.range(..offset).next_back().map_or(offset, |(start, _)| *start);
        let met: Vec<(usize, Vec<u8>)> = self.ranges.extract_if(first..end, |_, _| true).collect();
        for (start, mut bytes) in met {
            let behind = bytes.split_off(bytes.len().min(end.saturating_sub(start)));
            bytes.truncate(offset.saturating_sub(start));
            if !behind.is_empty() {
                self.ranges.insert(end, behind);
            }
            if !bytes.is_empty() {
                self.ranges.insert(start, bytes);
            }
        }
    }

    /// Offsets and bytes.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.ranges.iter().map(|(offset, bytes)| (*offset, bytes.as_slice()))
    }

    /// Bytes that it takes, about.
    pub(crate) fn cost(&self) -> usize {
        self.ranges.values().map(|bytes| bytes.len() + COST_OF_A_RANGE).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Written;

    /// Bytes of the variable in the tests.
    const SIZE: usize = 24;

    proptest! {
        #[test]
        fn it_is_what_a_variable_would_be_of_which_nothing_else_is_known(
            steps in prop::collection::vec((0..SIZE, 0..SIZE, any::<Option<u8>>()), 0..40)
        ) {
            let mut written = Written::default();
            let mut variable = [None; SIZE];
            for (offset, length, value) in steps {
                let length = length.min(SIZE - offset);
                match value {
                    Some(value) => written.write(offset, &vec![value; length]),
                    None => written.forget(offset, length),
                }
                variable[offset..offset + length].fill(value);
            }
            let mut known = [None; SIZE];
            for (offset, bytes) in written.ranges() {
                for (at, byte) in bytes.iter().enumerate() {
                    prop_assert!(known[offset + at].is_none(), "ranges meet");
                    known[offset + at] = Some(*byte);
                }
            }
            prop_assert_eq!(known, variable);
        }
    }

    #[test]
    fn what_is_written_in_pieces_is_one_range() {
        let mut written = Written::default();
        for at in 0..1000 {
            written.write(at, &[7]);
        }
        assert_eq!(written.ranges().count(), 1);
        assert!(written.cost() < 1100);
        written.forget(0, 1000);
        assert_eq!(written, Written::default());
    }
}
