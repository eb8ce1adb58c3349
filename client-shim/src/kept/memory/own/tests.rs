//! References, mappings and reservations in the orders that programs take.

use super::{super::arena, Own, Reservation};

const SIZE: u64 = 2 << 20;

#[test]
fn an_allocation_lives_as_long_as_a_handle_or_a_mapping() {
    let mut own = Own::default();
    own.create(7, SIZE, 0, None, true);
    assert!(own.map(0x1000_0000, SIZE, 0, 7));
    drop(own.release(7));
    assert_eq!(own.totals()[0], 1, "it is mapped");
    assert!(!own.is_exportable_by_us(7), "the handle is gone");
    own.retain(7, 0x1000_0000 + 5);
    drop(own.unmap(0x1000_0000, SIZE));
    assert_eq!(own.totals()[..4], [1, SIZE, 0, 0], "it has a handle again");
    drop(own.release(7));
    assert_eq!(own.totals()[..4], [0; 4]);
}

#[test]
fn what_the_driver_refuses_is_as_it_was() {
    let mut own = Own::default();
    own.create(7, SIZE, 0, None, false);
    own.map(0x1000_0000, SIZE / 2, 0, 7);
    own.map(0x1010_0000, SIZE / 2, SIZE / 2, 7);
    let released = own.release(7);
    own.unrelease(released);
    let before = own.totals();
    drop(own.release(7));
    let unmapped = own.unmap(0x1000_0000, SIZE);
    assert_eq!(own.totals()[0], 0);
    own.remap(unmapped);
    assert_eq!(own.totals(), before);
    drop(own.unmap(0x1000_0000, SIZE));
    assert_eq!(own.totals()[0], 0);
}

#[test]
fn a_handle_that_is_given_out_again_is_another_allocation() {
    let mut own = Own::default();
    own.create(7, SIZE, 0, None, true);
    own.map(0x1000_0000, SIZE, 0, 7);
    drop(own.release(7));
    own.create(7, 2 * SIZE, 0, None, false);
    assert_eq!(own.totals()[..2], [2, 3 * SIZE]);
    drop(own.unmap(0x1000_0000, SIZE));
    assert_eq!(own.totals()[..2], [1, 2 * SIZE]);
}

#[test]
fn what_is_not_known_is_let_alone() {
    let mut own = Own::default();
    drop(own.release(9));
    own.retain(9, 0x5000);
    assert!(!own.map(0x1000_0000, SIZE, 0, 9), "a multicast object");
    drop(own.unmap(0x1000_0000, SIZE));
    let whole = Reservation { size: SIZE, reserved: SIZE };
    own.reserve(0x2000_0000, whole);
    assert_eq!((own.unreserve(0x2000_0000), own.unreserve(0x2000_0000)), (Some(whole), None));
    assert_eq!(own.totals(), [0; 6]);
}

#[test]
fn reservations_of_a_program_follow_each_other_and_gaps_are_used_again() {
    let (area, step) = (arena::of_program(0), arena::GRANULE);
    let start = area.start;
    let mut own = Own::default();
    let small = Reservation { size: SIZE, reserved: step };
    for index in 0..3 {
        assert_eq!(own.place(step, step, 0), start + index * step);
        own.reserve(start + index * step, small);
    }
    own.unreserve(start + step);
    assert_eq!((own.place(step, step, 0), own.place(2 * step, step, 0)), (start + step, start + 3 * step));
    assert_eq!(own.place(step, 1 << 40, 0), start.next_multiple_of(1 << 40) + (1 << 40), "the first is taken");
    assert_eq!(own.place(area.end - start + 1, step, 0), 0);
    assert_eq!(own.enlarged_around(start + SIZE - 1), Some(small));
    assert_eq!(own.enlarged_around(start + SIZE), None, "the program has nothing there");
    own.reserve(start, Reservation { size: step, reserved: step });
    assert_eq!(own.enlarged_around(start), None);
}

#[test]
fn a_multicast_object_is_released_as_often_as_it_is_held_and_is_no_allocation() {
    let mut own = Own::default();
    own.hold_multicast(7, "any");
    assert!(!own.map(0x1000_0000, SIZE, 0, 7), "it is no allocation");
    own.retain(7, 0x1000_0000);
    let mut left = || own.release_multicast(7).map(|left| left.references);
    assert_eq!([left(), left(), left()], [Some(1), Some(0), None]);
    own.hold_multicast(7, "any");
    own.create(7, SIZE, 0, None, false);
    assert_eq!(own.release_multicast(7), None, "its handle was given out again");
}

#[test]
fn what_is_used_as_a_multicast_object_was_none_of_the_allocations() {
    let mut own = Own::default();
    own.create(7, 0, -1, None, false);
    own.retain(7, 0);
    assert!(own.map(0x1000_0000, SIZE, 0, 7), "it may be one");
    own.retain(7, 0x1000_0000);
    assert!(own.is_multicast(7, "any") && !own.is_multicast(7, "any") && !own.is_multicast(8, "any"));
    assert_eq!((own.all_allocations().len(), own.all_mappings()[0].id), (0, None));
    let mut left = || own.release_multicast(7).map(|left| (left.references, left.by));
    assert_eq!([left(), left(), left()], [Some((1, "any")), Some((0, "any")), None]);
    drop(own.unmap(0x1000_0000, SIZE));
    assert_eq!(own.totals(), [0; 6]);
}

#[test]
fn a_handle_of_a_mapping_of_no_allocation_is_a_multicast_objects_until_it_is_held() {
    let mut own = Own::default();
    assert!(!own.map(0x1000_0000, SIZE, 0, 7));
    assert!(own.is_new_multicast(7, 0x1000_0000) && !own.is_new_multicast(7, 0x1000_0000 + SIZE));
    own.create(8, SIZE, 0, None, false);
    assert!(own.map(0x2000_0000, SIZE, 0, 8));
    assert!(!own.is_new_multicast(8, 0x2000_0000), "it is an allocation's");
}
