//! What a copy has mapped, and what stays reserved of it.

use super::{All, Mappings, PAGE, pages_of, place};
use std::collections::BTreeMap;

fn ranges(of: &Mappings) -> Vec<(usize, usize)> {
    of.0.iter().map(|(from, (to, _))| (*from, *to)).collect()
}

#[test]
fn ranges_are_cut_and_joined_as_they_are_mapped_over_and_unmapped() {
    let mut mappings = Mappings(BTreeMap::new());
    mappings.note(0x10_000, 0x8000, Some(false));
    mappings.note(0x20_000, 1, Some(false));
    assert_eq!(ranges(&mappings), [(0x10_000, 0x18_000), (0x20_000, 0x21_000)]);
    // Out of the middle, and over an end.
    mappings.note(0x12_000, 0x1000, None);
    assert_eq!(ranges(&mappings), [(0x10_000, 0x12_000), (0x13_000, 0x18_000), (0x20_000, 0x21_000)]);
    mappings.note(0x17_000, 0x9000, Some(false));
    assert_eq!(
        ranges(&mappings),
        [(0x10_000, 0x12_000), (0x13_000, 0x17_000), (0x17_000, 0x20_000), (0x20_000, 0x21_000)]
    );
    mappings.note(0, 0x30_000, None);
    assert_eq!(ranges(&mappings), []);
}

#[test]
fn what_another_copy_maps_is_no_longer_the_one_befores() {
    let mut all = All::new();
    all.mapped(0, 0x10_000, 0x8000, true);
    all.mapped(1, 0x12_000, 0x1000, false);
    assert_eq!(all.files(0), [(0x10_000, 0x12_000), (0x13_000, 0x18_000)]);
    assert_eq!(all.all_files().count(), 2);
    assert_eq!(ranges(&all.0[0]), [(0x10_000, 0x12_000), (0x13_000, 0x18_000)]);
    assert_eq!(ranges(&all.0[1]), [(0x12_000, 0x13_000)]);
    all.unmapped(0x10_000, 0x8000);
    assert!(all.0.iter().all(|of| ranges(of).is_empty()));
}
#[test]
fn pages_with_something_known_are_found_once_and_in_order() {
    let known = [(0x3_010, 8), (0x1_ff8, 16), (0x3_800, 0), (0x6_fff, 1), (0x9_000, 0x100), (0x500, 0x10)];
    assert_eq!(pages_of(&known, 0x1_000, 0x8_000), [(0x1_000, 0x4_000), (0x6_000, 0x7_000)]);
    assert_eq!(pages_of(&known, 0x4_000, 0x6_000), []);
    assert_eq!(pages_of(&[(0, usize::MAX)], 0x1_000, 0x2_000), [(0x1_000, 0x2_000)]);
    assert_eq!(pages_of(&[(usize::MAX - 8, 100)], 0x1_000, 0x2_000), []);
}

/// What is mapped of these pages: whether the kernel lets somebody else have each.
fn are_free(start: usize, pages: usize) -> Vec<bool> {
    (0..pages)
        .map(|page| {
            let (flags, at) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, place(start + page * PAGE));
            // SAFETY: maps nothing over anything.
            let found = unsafe { libc::mmap(at, PAGE, libc::PROT_NONE, flags | libc::MAP_FIXED_NOREPLACE, -1, 0) };
            // SAFETY: it was just mapped.
            found != libc::MAP_FAILED && unsafe { libc::munmap(found, PAGE) } == 0 && found == at
        })
        .collect()
}

#[test]
fn pages_stay_reserved_as_long_as_the_program_knows_something_there() {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory.
    let start = unsafe { libc::mmap(place(0), 16 * PAGE, libc::PROT_NONE, flags, -1, 0) }.expose_provenance();
    let (first, second) = (start, start + 8 * PAGE);
    let mut all = All::new();
    all.mapped(1, first, 8 * PAGE, false);
    all.mapped(2, second, 8 * PAGE, false);
    let known = [(first + 3 * PAGE + 8, 8), (second + 7 * PAGE, PAGE)];
    // SAFETY: nobody uses it.
    unsafe { all.give_back(1, &known) };
    let only = |page: usize| (0..8).map(|at| at != page).collect::<Vec<_>>();
    assert_eq!(are_free(first, 8), only(3));
    assert_eq!(are_free(second, 8), vec![false; 8]);
    // SAFETY: as above.
    unsafe { all.give_back(2, &known[1..]) };
    assert_eq!(are_free(first, 8), vec![true; 8], "nothing is known there any more");
    assert_eq!(are_free(second, 8), only(7));
    // Somebody else's from now on: not ours to unmap.
    all.mapped(1, second + 7 * PAGE, PAGE, false);
    // SAFETY: as above.
    unsafe { all.give_back(3, &[]) };
    assert_eq!(are_free(second, 8), only(7));
    // SAFETY: as above.
    unsafe { all.give_back(1, &[]) };
    assert_eq!(are_free(second, 8), vec![true; 8]);
}
