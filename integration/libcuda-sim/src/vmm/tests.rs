//! Reserved addresses, memory and mappings, as the driver allows them.

use super::*;
use crate::allocations::{copy, fill};

/// Its only word that is asked for, at this place.
fn last_word(bytes: usize) -> u32 {
    let mut word = [0; 4];
    copy(word.as_mut_ptr().expose_provenance(), bytes + GRANULARITY - 4, 4);
    u32::from_le_bytes(word)
}

#[test]
fn memory_lives_as_long_as_a_descriptor_of_it_and_its_place_comes_back() {
    let allocation = Allocation::create(GRANULARITY, 0).expect("memory");
    let address = reserve(LARGE, 0, 0).expect("a range");
    assert!(address.is_multiple_of(GRANULE));
    let bytes = allocation.map(GRANULARITY).expect("there is room");
    fill(bytes, &0x5e90_u32.to_le_bytes(), GRANULARITY / 4);
    let descriptor = allocation.export().expect("a descriptor");
    drop(allocation);
    unmap(bytes, GRANULARITY).expect("it is mapped");
    release(address, LARGE).expect("it is reserved");

    let again = Allocation::import(descriptor, 0).expect("the descriptor is open");
    assert_eq!(again.size, GRANULARITY);
    assert_eq!(reserve(LARGE, 0, address), Ok(address), "the address is free again");
    assert_eq!(last_word(again.map(GRANULARITY).expect("there is room")), 0x5e90);
}

#[test]
fn a_place_may_be_taken_away_under_its_owner_and_another_copy_then_has_the_same() {
    let wish = 0x6200_0000_0000;
    let allocation = Allocation::create(GRANULARITY, 0).expect("memory");
    assert_eq!(reserve(LARGE, 0, wish), Ok(wish));
    let bytes = allocation.map(GRANULARITY).expect("there is room");
    assert!(reserve(LARGE, 0, wish).is_ok_and(|place| place != wish), "it is taken");
    // SAFETY: nobody reads there.
    unsafe { munmap(pointer(wish).expect("not 0"), GRANULE) }.expect("it is ours");
    fill(bytes, &7_u32.to_le_bytes(), GRANULARITY / 4);
    reserved().remove(&wish);
    assert_eq!(reserve(LARGE, 0, wish), Ok(wish), "as another copy would, which knows of nothing");
    let descriptor = allocation.export().expect("a descriptor");
    let other = Allocation::import(descriptor, 0).and_then(|memory| memory.map(GRANULARITY)).expect("mapped");
    assert!(other != bytes && last_word(other) == 7);
    fill(other, &9_u32.to_le_bytes(), GRANULARITY / 4);
    assert_eq!(last_word(bytes), 9, "both see every word");
}

#[test]
fn small_ranges_are_the_pools_whatever_is_wished_and_larger_ones_take_whole_granules() {
    let wish = 0x6100_0000_0000;
    let small = reserve(GRANULARITY, 0, wish).expect("a range");
    let start = pool().start;
    assert!((start..start + POOL).contains(&small));
    assert!(reserve(LARGE, 0, wish + GRANULARITY).is_ok_and(|place| place == wish + GRANULE), "moved up");
    assert!(reserve(LARGE, 0, wish + GRANULE + LARGE).is_ok_and(|place| place == wish + 2 * GRANULE));
    release(small, GRANULARITY).expect("it is reserved");
    assert_eq!(reserve(GRANULARITY, 0, 0), Ok(small), "it is free again");
}

#[test]
fn what_was_taken_out_of_the_maps_is_not_given_out_again_before_it_is_given_back() {
    let wish = 0x6300_0000_0000;
    assert_eq!(reserve(LARGE, 0, wish), Ok(wish));
    unmap(wish, LARGE.next_multiple_of(GRANULE)).expect("it is there");
    assert!(reserve(LARGE, 0, wish).is_ok_and(|place| place != wish));
    release(wish, LARGE).expect("it is reserved");
    assert_eq!(reserve(LARGE, 0, wish), Ok(wish));
}

#[test]
fn odd_sizes_and_foreign_descriptors_are_refused() {
    assert_eq!(Allocation::create(GRANULARITY + 4096, 0).err(), Some(Code::INVALID_VALUE));
    assert_eq!(Allocation::import(-1, 0).err(), Some(Code::INVALID_VALUE));
    let (end, _other) = nix::unistd::pipe().expect("a pipe");
    assert_eq!(Allocation::import(end.into_raw_fd(), 0).err(), Some(Code::INVALID_VALUE));
    assert_eq!(reserve(GRANULARITY, 3 << 20, 0).err(), Some(Code::INVALID_VALUE));
}
