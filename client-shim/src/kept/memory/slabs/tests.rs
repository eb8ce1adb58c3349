//! Slabs, blocks and contexts as a program would use them.

use std::{fs::File, os::fd::IntoRawFd};

use super::{Emptied, Freed, LARGE, LARGEST, Slabs};
use crate::{
    kept::memory::{
        arena,
        extents::GRAIN,
        region::{PAGE, Region},
    },
    process::descriptors::Held,
};

pub(super) const CONTEXT: usize = 0xc0;

/// A slab's memory that is none: any file stands for its descriptor.
fn region(slabs: &mut Slabs, device: i32, size: u64) -> Region {
    let descriptor = Held::take(File::open("/dev/null").unwrap().into_raw_fd()).unwrap();
    Region { base: slabs.claim(device, size), size, device, descriptor }
}

/// The block that is at an address now.
pub(super) fn of(slabs: &Slabs, address: u64) -> Freed {
    Freed { address, number: slabs.blocks.get(&address).map_or(0, |block| block.number) }
}

fn remove(slabs: &mut Slabs, address: u64) -> Option<Emptied> {
    let freed = of(slabs, address);
    slabs.remove(freed)
}

/// Allocates as a program does; the address.
pub(super) fn allocate(slabs: &mut Slabs, device: i32, context: usize, size: u64) -> u64 {
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
    assert!(remove(&mut slabs, large).is_some(), "it is given back at once");
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
    assert!(remove(&mut slabs, small).is_none(), "the spare one");
    assert!(remove(&mut slabs, middle).is_some(), "larger than a page");
    assert_eq!(slabs.take_empty(0, 0).len(), 1);
    assert_eq!(slabs.totals(), [0; 5]);
    assert!(remove(&mut slabs, small).is_none(), "there is nothing there");
}

#[test]
fn addresses_are_used_again_and_each_device_has_its_own() {
    let mut slabs = Slabs::default();
    let blocks: Vec<u64> = (0..3).map(|_| allocate(&mut slabs, 0, CONTEXT, LARGE)).collect();
    assert_eq!(blocks, [0, 1, 2].map(|index| arena::FIRST + index * LARGE));
    let Emptied(gone) = remove(&mut slabs, blocks[1]).expect("it was alone in its slab");
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
    let freed = of(&slabs, theirs);
    slabs.deferred.push(freed);
    assert_eq!(slabs.remove_context(CONTEXT).0.len(), 1, "the other context is in the shared slab");
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
    assert!(remove(&mut slabs, blocks[0]).is_some(), "so much is used that nothing more is held");
    assert!(remove(&mut slabs, blocks[1]).is_none() && remove(&mut slabs, blocks[2]).is_none());
    assert_eq!(slabs.totals()[..3], [2, 2 * LARGE, 0]);
    let again = allocate(&mut slabs, 0, CONTEXT, LARGE);
    assert!(blocks.contains(&again) && slabs.totals()[0] == 2, "whoever asks");
    assert!(remove(&mut slabs, again).is_some(), "it was not the pool's");
    assert_eq!(slabs.take_empty(0, LARGE).len(), 0, "so much may stay");
    assert_eq!(slabs.take_empty(0, 0).len(), 1);
}

#[test]
fn an_empty_slab_is_taken_again_for_a_little_less() {
    let mut slabs = Slabs::default();
    slabs.pools.know(0x90, 0, 0);
    slabs.pools.set_threshold(0x90, u64::MAX);
    let block = allocate(&mut slabs, 0, CONTEXT, 2 * LARGE);
    slabs.pools.took(0x90, block, 2 * LARGE);
    assert!(remove(&mut slabs, block).is_none(), "it is kept");
    let much_less = allocate(&mut slabs, 0, CONTEXT, LARGE);
    assert!(much_less != block && slabs.totals()[0] == 2);
    assert_eq!(allocate(&mut slabs, 0, CONTEXT, 2 * LARGE - 3 * PAGE), block);
}
