//! Slabs, blocks and contexts as a program would use them.

use std::{fs::File, os::fd::IntoRawFd};

use super::{Emptied, LARGE, LARGEST, Pending, Slabs};
use crate::{
    cuda::types::CUevent,
    kept::memory::{
        arena,
        extents::GRAIN,
        region::{PAGE, Region},
    },
    process::descriptors::Held,
};

const CONTEXT: usize = 0xc0;

/// A slab's memory that is none: any file stands for its descriptor.
fn region(slabs: &mut Slabs, device: i32, size: u64) -> Region {
    let descriptor = Held::take(File::open("/dev/null").unwrap().into_raw_fd()).unwrap();
    Region { base: slabs.claim(device, size), size, device, descriptor }
}

/// Allocates as a program does; the address.
fn allocate(slabs: &mut Slabs, device: i32, context: usize, size: u64) -> u64 {
    if let Some(found) = slabs.place(device, context, size, GRAIN) {
        return found;
    }
    let (wanted, least) = slabs.slab_size(device, size).unwrap();
    assert!(wanted >= least && least >= size);
    let region = region(slabs, device, wanted);
    slabs.add(region, context, size)
}

#[test]
fn small_requests_share_a_slab_and_large_ones_have_their_own() {
    let mut slabs = Slabs::default();
    let first = allocate(&mut slabs, 0, CONTEXT, 1000);
    let second = allocate(&mut slabs, 0, CONTEXT, 1000);
    assert_eq!((first, second), (arena::FIRST, arena::FIRST + 2 * GRAIN));
    let large = allocate(&mut slabs, 0, CONTEXT, LARGE + 1);
    assert_eq!(slabs.totals()[..2], [2, PAGE + LARGE + PAGE]);
    let third = allocate(&mut slabs, 0, CONTEXT, 1000);
    assert_eq!(third, second + 2 * GRAIN, "the rest of the large one is nobody's");
    assert!(slabs.remove(large).is_some(), "it is given back at once");
    assert_eq!(slabs.spare(0), PAGE - 6 * GRAIN);
}

#[test]
fn slabs_grow_with_what_the_device_holds() {
    let mut slabs = Slabs::default();
    let mut sizes = Vec::new();
    for _ in 0..2000 {
        let before = slabs.totals()[1];
        allocate(&mut slabs, 0, CONTEXT, 2 << 20);
        if slabs.totals()[1] > before {
            sizes.push(slabs.totals()[1] - before);
        }
    }
    assert!(sizes.is_sorted() && sizes[0] == PAGE && sizes.last() == Some(&LARGEST), "{sizes:?}");
    let [count, slab_bytes, _, bytes, _] = slabs.totals();
    assert!(count < 60, "{count} slabs for {bytes} bytes");
    assert!(slab_bytes - bytes <= bytes / 8 + PAGE, "{slab_bytes} bytes for {bytes}");
    assert_eq!(slabs.slab_size(1, 1), Some((PAGE, PAGE)), "another device begins anew");
}

#[test]
fn one_empty_small_slab_stays_and_can_be_taken() {
    let mut slabs = Slabs::default();
    let small = allocate(&mut slabs, 0, CONTEXT, 10);
    let middle = allocate(&mut slabs, 0, CONTEXT, 3 << 20);
    assert!(slabs.remove(small).is_none(), "the spare one");
    assert!(slabs.remove(middle).is_some(), "larger than a page");
    assert_eq!(slabs.take_empty(0, 0).len(), 1);
    assert_eq!(slabs.totals(), [0; 5]);
    assert!(slabs.remove(small).is_none(), "there is nothing there");
}

#[test]
fn addresses_are_used_again_and_each_device_has_its_own() {
    let mut slabs = Slabs::default();
    let blocks: Vec<u64> = (0..3).map(|_| allocate(&mut slabs, 0, CONTEXT, LARGE)).collect();
    assert_eq!(blocks, [0, 1, 2].map(|index| arena::FIRST + index * LARGE));
    let Emptied(gone) = slabs.remove(blocks[1]).expect("it was alone in its slab");
    assert_eq!(slabs.claim(0, 2 * LARGE), blocks[2] + LARGE);
    assert_eq!(slabs.claim(0, LARGE), blocks[2] + 3 * LARGE, "what is there is not given back yet");
    slabs.unclaim(gone.base);
    assert_eq!(slabs.claim(0, LARGE), blocks[1]);
    assert_eq!(slabs.claim(0, LARGE), blocks[2] + 4 * LARGE, "the others are being made");
    slabs.unclaim(blocks[1]);
    assert_eq!(slabs.claim(0, LARGE), blocks[1], "that came to nothing");
    assert_eq!(Some(slabs.claim(3, LARGE)), arena::of(3, 0));
    assert_eq!((slabs.claim(-1, LARGE), slabs.claim(99, LARGE)), (0, 0), "the driver chooses");
    assert_eq!(slabs.claim(0, arena::LENGTH), 0);
}

#[test]
fn what_was_allocated_in_a_context_ends_with_it() {
    let mut slabs = Slabs::default();
    let theirs = allocate(&mut slabs, 0, CONTEXT, 10);
    let other = allocate(&mut slabs, 0, CONTEXT + 1, 10);
    let large = allocate(&mut slabs, 0, CONTEXT, LARGE);
    slabs.mark_freed(theirs);
    slabs.deferred.push(theirs);
    assert_eq!(slabs.remove_context(CONTEXT).len(), 1, "the other context is in the shared slab");
    assert!(slabs.deferred.is_empty() && slabs.around(large).is_none());
    assert_eq!(slabs.around(other + 9).map(|(start, block)| (start, block.size)), Some((other, 10)));
    assert!(slabs.around(other + 10).is_none());
}

#[test]
fn what_the_program_has_freed_is_not_there_for_it() {
    let mut slabs = Slabs::default();
    let block = allocate(&mut slabs, 0, CONTEXT, 100);
    assert!(slabs.mark_freed(block).is_some());
    assert!(slabs.mark_freed(block).is_none() && slabs.around(block).is_none());
    slabs.unmark_freed(block);
    assert!(slabs.around(block).is_some());
    assert!(slabs.mark_freed(block + GRAIN).is_none());
}

#[test]
fn a_peer_gets_what_is_there_and_what_will_be() {
    let mut slabs = Slabs::default();
    let block = allocate(&mut slabs, 1, CONTEXT, LARGE);
    allocate(&mut slabs, 0, CONTEXT, LARGE);
    assert_eq!(slabs.add_peer(1, 0), [(block, LARGE)]);
    assert_eq!((slabs.peers(1), slabs.peers(0)), (vec![0], vec![]));
}

#[test]
fn what_was_freed_in_a_streams_order_is_given_again_in_that_order_alone() {
    let mut slabs = Slabs::default();
    slabs.pools.know(0x90, 0, 0);
    let freed = |slabs: &mut Slabs, size: u64, order: usize, event: usize| {
        let block = allocate(slabs, 0, CONTEXT, size);
        slabs.pools.took(0x90, block, size);
        slabs.mark_freed(block);
        slabs.pending.push_back(Pending { address: block, event: CUevent(event), order });
        block
    };
    let first = freed(&mut slabs, 1000, 0x10, 1);
    let large = freed(&mut slabs, LARGE, 0x20, 2);
    let number = slabs.blocks[&first].number;
    for (order, context, pool, size) in [
        (0x11, CONTEXT, 0x90, 1000),
        (0x10, CONTEXT + 1, 0x90, 1000),
        (0x10, CONTEXT, 0x91, 1000),
        (0x10, CONTEXT, 0x90, 1025),
        (0, CONTEXT, 0x90, 1000),
    ] {
        assert_eq!(slabs.again(order, context, pool, size), None, "{order:#x} {context:#x} {pool:#x} {size}");
    }
    assert_eq!(slabs.again(0x10, CONTEXT, 0x90, 990), Some((first, CUevent(1))), "it takes as much");
    let (at, block) = slabs.around(first + 5).expect("it is there again");
    assert!(at == first && block.size == 990 && block.number > number);
    assert_eq!(slabs.pools.get(0x90).map(|pool| pool.usage()[0]), Some(990 + LARGE));
    assert_eq!(slabs.again(0x10, CONTEXT, 0x90, 990), None, "it is nobody's to give any more");
    slabs.order_ends(0x20);
    assert_eq!(slabs.again(0x20, CONTEXT, 0x90, LARGE), None, "another stream may have that name");
    assert_eq!(slabs.pending.front().map(|waiting| waiting.address), Some(large), "it waits for its event");
}

#[test]
fn what_a_pool_is_told_to_keep_stays_and_is_given_to_who_asks_for_as_much() {
    let mut slabs = Slabs::default();
    slabs.pools.know(0x90, 0, 0);
    slabs.pools.set_threshold(0x90, 2 * LARGE);
    let pooled = |slabs: &mut Slabs| {
        let block = allocate(slabs, 0, CONTEXT, LARGE);
        slabs.pools.took(0x90, block, LARGE);
        block
    };
    let blocks: Vec<u64> = (0..3).map(|_| pooled(&mut slabs)).collect();
    assert!(slabs.remove(blocks[0]).is_some(), "so much is used that nothing more is held");
    assert!(slabs.remove(blocks[1]).is_none() && slabs.remove(blocks[2]).is_none());
    assert_eq!(slabs.totals()[..3], [2, 2 * LARGE, 0]);
    let again = allocate(&mut slabs, 0, CONTEXT, LARGE);
    assert!(blocks.contains(&again) && slabs.totals()[0] == 2, "whoever asks");
    assert!(slabs.remove(again).is_some(), "it was not the pool's");
    assert_eq!(slabs.take_empty(0, LARGE).len(), 0, "so much may stay");
    assert_eq!(slabs.take_empty(0, 0).len(), 1);
}
