//! Shadows: copies of labelled ranges as they were at a commit, beside the ranges themselves.
//!
//! A commit copies each range that is registered with `MPS_STATE_SHADOWED` on the device and tells the daemon where the
//! copy lies, in the same record as everything else. So the copy that a successor finds is always the one of the commit
//! that it finds, whole: the next commit's goes to another place, and takes over only when the daemon has that commit.
//! One of which nobody knows whether the daemon has it is left alone until a later one is known to be there.
//!
//! The copies are kept memory like any other, allocated as the program's own is, and cost as much again, twice, and the
//! copying at each commit. What a program writes to a range while it commits, from another thread, is in the copy or not;
//! it must not.
#![expect(unsafe_code, reason = "calls the library's own functions as the program does")]

use std::collections::BTreeMap;

use remps_proto::shim::Range;

/// What is not the program's own in a commit: where a copy lies.
const COPY: u64 = 1 << 32;
/// How the label of a copy begins. No label of the program's does.
pub(super) const MARK: char = '~';
/// Copies of one range of which it is not known whether the daemon has them. More are not made.
const MOST_DOUBTFUL: usize = 2;

/// Why there is no copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// There is no memory for it.
    NoMemory,
    /// The driver refuses.
    Driver,
    /// Too often nobody has said whether the daemon has a commit.
    NoWord,
}

/// The places of one range's copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shadow {
    bytes: u64,
    /// Of the last commit that the daemon has.
    good: Option<u64>,
    /// Of the commit under way.
    next: Option<u64>,
    /// Of commits of which nobody knows.
    doubtful: Vec<u64>,
    spare: Vec<u64>,
}

impl Shadow {
    fn all(&self) -> impl Iterator<Item = u64> {
        self.good.iter().chain(&self.next).chain(&self.doubtful).chain(&self.spare).copied()
    }
}

/// All of them, by label.
#[derive(Debug, Default)]
pub(super) struct Shadows {
    of: BTreeMap<String, Shadow>,
    /// Places of ranges that are no longer shadowed, while the daemon's last commit may name them.
    retired: Vec<u64>,
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The daemon has it.
    Done,
    /// It has not.
    Refused,
    /// Nobody knows.
    Unknown,
}

impl Shadows {
    pub(super) const fn new() -> Self {
        Self { of: BTreeMap::new(), retired: Vec::new() }
    }

    /// A range is no longer shadowed, or is another one.
    pub(super) fn retire(&mut self, label: &str) {
        if let Some(shadow) = self.of.remove(label) {
            self.retired.extend(shadow.all());
        }
    }

    /// A place for the next copy of a range, for which `allocate` is asked if there is none.
    fn place(&mut self, range: &Range, allocate: impl FnOnce(u64) -> Option<u64>) -> Result<u64, Trouble> {
        let shadow = self.of.entry(range.label.clone()).or_default();
        if shadow.bytes != range.bytes && shadow.bytes != 0 {
            let old = std::mem::take(shadow);
            self.retired.extend(old.all());
        }
        shadow.bytes = range.bytes;
        if shadow.doubtful.len() >= MOST_DOUBTFUL {
            return Err(Trouble::NoWord);
        }
        let place = match shadow.next.take().or_else(|| shadow.spare.pop()) {
            Some(place) => place,
            None => allocate(range.bytes).ok_or(Trouble::NoMemory)?,
        };
        shadow.next = Some(place);
        Ok(place)
    }

    /// Copies these ranges; where the copies lie, for the commit.
    pub(super) fn copy(&mut self, ranges: &[Range]) -> Result<Vec<Range>, Trouble> {
        let mut told = Vec::new();
        for range in ranges {
            let address = self.place(range, allocate)?;
            if !copy(address, range.address, range.bytes) {
                return Err(Trouble::Driver);
            }
            told.push(Range { label: format!("{MARK}{}", range.label), address, bytes: range.bytes, flags: COPY });
        }
        if told.is_empty() || synchronize() { Ok(told) } else { Err(Trouble::Driver) }
    }

    /// A commit with the copies has ended so; what is of no use any more, to be freed.
    fn ended(&mut self, outcome: Outcome) -> Vec<u64> {
        let mut useless = Vec::new();
        for shadow in self.of.values_mut() {
            let Some(next) = shadow.next.take() else { continue };
            match outcome {
                Outcome::Done => {
                    shadow.spare.extend(shadow.good.replace(next));
                    shadow.spare.append(&mut shadow.doubtful);
                    useless.extend(shadow.spare.drain(1.min(shadow.spare.len())..));
                }
                Outcome::Refused => shadow.spare.push(next),
                Outcome::Unknown => shadow.doubtful.push(next),
            }
        }
        if outcome == Outcome::Done {
            useless.append(&mut self.retired);
        }
        useless
    }

    /// The same, and frees it.
    pub(super) fn end(&mut self, outcome: Outcome) {
        self.ended(outcome).into_iter().for_each(free);
    }

    /// Sorts what a predecessor has committed: the program's ranges; the copies are noted.
    pub(super) fn adopt(&mut self, ranges: Vec<Range>) -> Vec<Range> {
        let (copies, own): (Vec<_>, Vec<_>) = ranges.into_iter().partition(|range| range.flags & COPY != 0);
        for Range { label, address, bytes, .. } in copies {
            let label = label.trim_start_matches(MARK).to_owned();
            let (good, bytes) = (Some(address), bytes);
            self.of.insert(label, Shadow { bytes, good, ..Shadow::default() });
        }
        own
    }

    /// Writes a range back as it was at the last commit that the daemon has; `None` if there is no copy.
    pub(super) fn restore(&self, range: &Range) -> Option<bool> {
        let shadow = self.of.get(&range.label).filter(|shadow| shadow.bytes == range.bytes)?;
        let good = shadow.good?;
        Some(synchronize() && copy(range.address, good, range.bytes) && synchronize())
    }
}

/// Calls one of the library's own functions as the program does.
macro_rules! as_program {
    ($class:ident::$name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the arguments are as the driver documents them, and pointers are to our own variables.
        unsafe { super::super::entries::$class::$name::entry($($argument),*) }
    };
}

fn length(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

fn allocate(size: u64) -> Option<u64> {
    let mut address = 0;
    as_program!(memory::cuMemAlloc_v2(&raw mut address, length(size))).is_success().then_some(address)
}

fn free(address: u64) {
    let _refused = as_program!(memory::cuMemFree_v2(address));
}

fn copy(to: u64, from: u64, size: u64) -> bool {
    as_program!(copy::cuMemcpyDtoD_v2(to, from, length(size))).is_success()
}

fn synchronize() -> bool {
    as_program!(context::cuCtxSynchronize()).is_success()
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Range, Shadows, Trouble};

    fn range(bytes: u64) -> Range {
        Range { label: "w".to_owned(), address: 0x1000, bytes, flags: 2 }
    }

    /// Where the next copy goes; new places are numbered.
    fn place(shadows: &mut Shadows, new: u64) -> Result<u64, Trouble> {
        shadows.place(&range(8), |_| Some(new))
    }

    #[test]
    fn the_copy_that_the_daemon_has_is_never_written() {
        let mut shadows = Shadows::new();
        assert_eq!(place(&mut shadows, 1), Ok(1));
        assert_eq!(shadows.ended(Outcome::Done), [0_u64; 0]);
        for (expected, good) in [(2, 1), (1, 2), (2, 1)] {
            assert_eq!(place(&mut shadows, 2), Ok(expected), "the two alternate");
            assert_eq!(shadows.of["w"].good, Some(good));
            assert_eq!(shadows.ended(Outcome::Done), [0_u64; 0]);
        }
        assert_eq!(place(&mut shadows, 3), Ok(1));
        assert_eq!(shadows.ended(Outcome::Refused), [0_u64; 0]);
        assert_eq!((place(&mut shadows, 3), shadows.of["w"].good), (Ok(1), Some(2)));
    }

    #[test]
    fn a_copy_of_which_nobody_knows_is_left_alone_until_a_later_one_is_there() {
        let mut shadows = Shadows::new();
        assert_eq!(place(&mut shadows, 1), Ok(1));
        shadows.ended(Outcome::Done);
        assert_eq!(place(&mut shadows, 2), Ok(2));
        shadows.ended(Outcome::Unknown);
        assert_eq!(place(&mut shadows, 3), Ok(3));
        shadows.ended(Outcome::Unknown);
        assert_eq!(place(&mut shadows, 4), Err(Trouble::NoWord));
        assert_eq!(shadows.of["w"].good, Some(1));
    }

    #[test]
    fn what_is_no_longer_shadowed_is_freed_when_no_commit_names_it() {
        let mut shadows = Shadows::new();
        assert_eq!(place(&mut shadows, 1), Ok(1));
        shadows.ended(Outcome::Done);
        shadows.retire("w");
        assert_eq!(shadows.ended(Outcome::Unknown), [0_u64; 0]);
        assert_eq!(shadows.ended(Outcome::Done), [1]);
        // Another size is another copy.
        assert_eq!(place(&mut shadows, 5), Ok(5));
        shadows.ended(Outcome::Done);
        assert_eq!(shadows.place(&range(16), |_| Some(6)), Ok(6));
        assert_eq!(shadows.ended(Outcome::Done), [5]);
    }

    #[test]
    fn a_successor_has_the_copies_and_the_ranges_apart() {
        let mut shadows = Shadows::new();
        let told = Range { label: "~w".to_owned(), address: 0x2000, bytes: 8, flags: super::COPY };
        assert_eq!(shadows.adopt(vec![range(8), told]), [range(8)]);
        assert_eq!((shadows.of["w"].good, shadows.of["w"].bytes), (Some(0x2000), 8));
    }
}
