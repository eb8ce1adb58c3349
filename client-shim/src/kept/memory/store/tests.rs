//! Slabs, blocks and contexts as a program would use them.

use std::{fs::File, os::fd::IntoRawFd};

use super::{LARGE, LARGEST, Store};
use crate::{
    kept::memory::{
        arena,
        extents::GRAIN,
        region::{PAGE, Region},
    },
    process::descriptors::Held,
};

const CONTEXT: usize = 0xc0;

/// A slab's memory that is none: any file stands for its descriptor.
fn region(store: &mut Store, device: i32, size: u64) -> Region {
    let descriptor = Held::take(File::open("/dev/null").unwrap().into_raw_fd()).unwrap();
    Region { base: store.claim(device, size), size, device, descriptor }
}

/// Allocates as a program does; the address.
fn allocate(store: &mut Store, device: i32, context: usize, size: u64) -> u64 {
    if let Some(found) = store.place(device, context, size) {
        return found;
    }
    let (wanted, least) = store.slab_size(device, size).unwrap();
    assert!(wanted >= least && least >= size);
    let region = region(store, device, wanted);
    store.add(region, context, size)
}

#[test]
fn small_requests_share_a_slab_and_large_ones_have_their_own() {
    let mut store = Store::default();
    let first = allocate(&mut store, 0, CONTEXT, 1000);
    let second = allocate(&mut store, 0, CONTEXT, 1000);
    assert_eq!((first, second), (arena::FIRST, arena::FIRST + 2 * GRAIN));
    let large = allocate(&mut store, 0, CONTEXT, LARGE + 1);
    assert_eq!(store.totals()[..2], [2, PAGE + LARGE + PAGE]);
    let third = allocate(&mut store, 0, CONTEXT, 1000);
    assert_eq!(third, second + 2 * GRAIN, "the rest of the large one is nobody's");
    assert!(store.remove(large).is_some(), "it is given back at once");
    assert_eq!(store.spare(0), PAGE - 6 * GRAIN);
}

#[test]
fn slabs_grow_with_what_the_device_holds() {
    let mut store = Store::default();
    let mut sizes = Vec::new();
    for _ in 0..2000 {
        let before = store.totals()[1];
        allocate(&mut store, 0, CONTEXT, 2 << 20);
        if store.totals()[1] > before {
            sizes.push(store.totals()[1] - before);
        }
    }
    assert!(sizes.is_sorted() && sizes[0] == PAGE && sizes.last() == Some(&LARGEST), "{sizes:?}");
    let [slabs, slab_bytes, _, bytes, _] = store.totals();
    assert!(slabs < 60, "{slabs} slabs for {bytes} bytes");
    assert!(slab_bytes - bytes <= bytes / 8 + PAGE, "{slab_bytes} bytes for {bytes}");
    assert_eq!(store.slab_size(1, 1), Some((PAGE, PAGE)), "another device begins anew");
}

#[test]
fn one_empty_small_slab_stays_and_can_be_taken() {
    let mut store = Store::default();
    let small = allocate(&mut store, 0, CONTEXT, 10);
    let middle = allocate(&mut store, 0, CONTEXT, 3 << 20);
    assert!(store.remove(small).is_none(), "the spare one");
    assert!(store.remove(middle).is_some(), "larger than a page");
    assert_eq!(store.take_empty(0).len(), 1);
    assert_eq!(store.totals(), [0; 5]);
    assert!(store.remove(small).is_none(), "there is nothing there");
}

#[test]
fn addresses_are_used_again_and_each_device_has_its_own() {
    let mut store = Store::default();
    let blocks: Vec<u64> = (0..3).map(|_| allocate(&mut store, 0, CONTEXT, LARGE)).collect();
    assert_eq!(blocks, [0, 1, 2].map(|index| arena::FIRST + index * LARGE));
    store.remove(blocks[1]);
    assert_eq!(store.claim(0, 2 * LARGE), blocks[2] + LARGE);
    assert_eq!(store.claim(0, LARGE), blocks[1]);
    assert_eq!(store.claim(0, LARGE), blocks[2] + 3 * LARGE, "the others are being made");
    store.unclaim(blocks[1]);
    assert_eq!(store.claim(0, LARGE), blocks[1], "that came to nothing");
    assert_eq!(Some(store.claim(3, LARGE)), arena::of(3, 0));
    assert_eq!((store.claim(-1, LARGE), store.claim(99, LARGE)), (0, 0), "the driver chooses");
    assert_eq!(store.claim(0, arena::LENGTH), 0);
}

#[test]
fn what_was_allocated_in_a_context_ends_with_it() {
    let mut store = Store::default();
    let theirs = allocate(&mut store, 0, CONTEXT, 10);
    let other = allocate(&mut store, 0, CONTEXT + 1, 10);
    let large = allocate(&mut store, 0, CONTEXT, LARGE);
    store.mark_freed(theirs);
    store.deferred.push(theirs);
    assert_eq!(store.remove_context(CONTEXT).len(), 1, "the other context is in the shared slab");
    assert!(store.deferred.is_empty() && store.around(large).is_none());
    assert_eq!(store.around(other + 9).map(|(start, block)| (start, block.size)), Some((other, 10)));
    assert!(store.around(other + 10).is_none());
}

#[test]
fn what_the_program_has_freed_is_not_there_for_it() {
    let mut store = Store::default();
    let block = allocate(&mut store, 0, CONTEXT, 100);
    assert!(store.mark_freed(block).is_some());
    assert!(store.mark_freed(block).is_none() && store.around(block).is_none());
    store.unmark_freed(block);
    assert!(store.around(block).is_some());
    assert!(store.mark_freed(block + GRAIN).is_none());
}

#[test]
fn a_peer_gets_what_is_there_and_what_will_be() {
    let mut store = Store::default();
    let block = allocate(&mut store, 1, CONTEXT, LARGE);
    allocate(&mut store, 0, CONTEXT, LARGE);
    assert_eq!(store.add_peer(1, 0), [(block, LARGE)]);
    assert_eq!((store.peers(1), store.peers(0)), (vec![0], vec![]));
}
