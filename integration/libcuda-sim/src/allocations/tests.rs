//! Ranges of addresses: taken, found and freed.

use super::*;

#[test]
fn memory_is_found_by_any_of_its_addresses_and_by_no_other() {
    let mut ranges = Ranges::default();
    let address = ranges.allocate(100, Owner::Context(1), 0).expect("memory");
    assert!(ranges.is_accessible(address + 96, 4));
    assert!(!ranges.is_accessible(address + 97, 4));
    assert!(!ranges.is_accessible(address - 1, 1));
    ranges.increment(address, 25);
    let mut word = [0_u8; 4];
    copy(word.as_mut_ptr().expose_provenance(), address + 96, 4);
    assert_eq!(word, [1, 0, 0, 0]);
    assert_eq!(ranges.free(address + 4).err(), Some(Code::INVALID_VALUE));
    assert_eq!(ranges.free(address).map(|range| range.size), Ok(100));
    assert!(!ranges.is_accessible(address, 1));
}

#[test]
fn mapped_memory_is_accessible_only_once_access_is_set() {
    let mut ranges = Ranges::default();
    let mapping = |is_accessible| {
        let owner = Owner::Mapping { allocation: 1, is_accessible, bytes: 0x5000 };
        Range::new(16, owner, 0)
    };
    ranges.0.insert(0x1000, mapping(true));
    ranges.0.insert(0x1010, mapping(false));
    assert!(ranges.is_accessible(0x1000, 16));
    assert!(!ranges.is_accessible(0x1000, 17));
    ranges.0.insert(0x1010, mapping(true));
    assert!(ranges.is_accessible(0x1000, 32));
}

#[test]
fn mapped_bytes_are_not_where_their_addresses_are_and_a_piece_ends_where_its_mapping_does() {
    let mut ranges = Ranges::default();
    let [low, high] = [[1_u32, 2], [3, 4]].map(Box::new);
    for (address, words) in [(0x1000, &low), (0x1008, &high)] {
        let bytes = words.as_ptr().expose_provenance();
        let owner = Owner::Mapping { allocation: 1, is_accessible: true, bytes };
        ranges.0.insert(address, Range::new(8, owner, 0));
    }
    let words = |address| [0, 1, 2].map(|index| word_of(&ranges.read(address, 12), index));
    assert_eq!(words(0x1004), [2, 3, 4]);
    ranges.increment(0x1000, 4);
    assert_eq!(words(0x1000), [2, 3, 4]);
    ranges.fill(0x1004, &7_u32.to_ne_bytes(), 2);
    assert_eq!(words(0x1004), [7, 7, 5]);
    ranges.copy(0x1004, 0x1000, 12);
    assert_eq!(words(0x1004), [2, 7, 7], "a copy onto itself");
    // Each word is the next one's source.
    ranges.mix(0x1004, 0x1000, 3, 1);
    assert_eq!(words(0x1004), [13, 49, 85]);
}
