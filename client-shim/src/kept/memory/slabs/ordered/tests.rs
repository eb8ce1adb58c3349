//! What waits in a stream's order, while others ask the driver of it and streams and contexts end.

use super::{Again, Freed, Pending, Settled, Wish};
use crate::{
    cuda::types::CUevent,
    kept::memory::slabs::{
        LARGE, Slabs,
        tests::{CONTEXT, allocate, of},
    },
};

const POOL: usize = 0x90;
const STREAM: usize = 0x10;
const OTHER: usize = CONTEXT + 1;

fn with_a_pool() -> Slabs {
    let mut slabs = Slabs::default();
    slabs.pools.know(POOL, 0, 0);
    slabs
}

/// A block of the pool that was freed in a stream's order, with the event of a context.
fn freed(slabs: &mut Slabs, size: u64, order: usize, (event, event_context): (usize, usize)) -> Freed {
    let address = allocate(slabs, 0, CONTEXT, size);
    slabs.pools.took(POOL, address, size);
    assert!(slabs.mark_freed(address).is_some());
    let block = of(slabs, address);
    slabs.pending.push(Pending { block, event: CUevent(event), event_context, order });
    block
}

fn wish(size: u64) -> Wish {
    Wish { context: CONTEXT, pool: POOL, size }
}

fn again(Freed { address, .. }: Freed, event: usize) -> Option<Again> {
    Some(Again { address, destroy: Some(CUevent(event)) })
}

#[test]
fn what_was_freed_in_a_streams_order_is_given_again_in_that_order_alone() {
    let mut slabs = with_a_pool();
    let first = freed(&mut slabs, 1000, STREAM, (1, CONTEXT));
    let large = freed(&mut slabs, LARGE, 0x20, (2, CONTEXT));
    for (order, wish) in [
        (0x11, wish(1000)),
        (STREAM, Wish { context: OTHER, ..wish(1000) }),
        (STREAM, Wish { pool: 0x91, ..wish(1000) }),
        (STREAM, wish(1025)),
        (0, wish(1000)),
    ] {
        assert_eq!(slabs.again(order, &wish), None, "{order:#x} {wish:?}");
    }
    assert_eq!(slabs.again(STREAM, &wish(990)), again(first, 1), "it takes as much");
    let (at, block) = slabs.around(first.address + 5).expect("it is there again");
    assert!(at == first.address && block.size == 990 && block.number > first.number);
    assert_eq!(slabs.pools.get(POOL).map(|pool| pool.usage()[0]), Some(990 + LARGE));
    assert_eq!(slabs.again(STREAM, &wish(990)), None, "it is nobody's to give any more");
    slabs.pending.order_ends(0x20);
    assert_eq!(slabs.again(0x20, &wish(LARGE)), None, "another stream may have that name");
    let asked = slabs.pending.ask(1).remove(0);
    assert_eq!(
        slabs.settle(asked, true),
        Settled { free: Some(large), destroy: Some(CUevent(2)) },
        "it waits for its event"
    );
}

#[test]
fn an_order_is_looked_through_whatever_waits_in_others() {
    let mut slabs = with_a_pool();
    for event in 0..1000 {
        freed(&mut slabs, 1000, 0x20, (event, CONTEXT));
    }
    let last = freed(&mut slabs, 1000, STREAM, (5000, CONTEXT));
    assert_eq!(slabs.again(STREAM, &wish(1000)), again(last, 5000));
}

#[test]
fn what_somebody_asks_of_is_given_again_meanwhile_and_its_event_lives_until_he_has() {
    let mut slabs = with_a_pool();
    let block = freed(&mut slabs, 1000, STREAM, (1, CONTEXT));
    let [query, wait] = [slabs.pending.ask(9).remove(0), slabs.pending.ask_all().remove(0)];
    assert!(slabs.pending.ask(9).is_empty(), "somebody does so already");
    assert_eq!(slabs.again(STREAM, &wish(1000)), Some(Again { address: block.address, destroy: None }));
    assert!(slabs.pending.ask_all().is_empty(), "nobody waits for it");
    assert_eq!(slabs.settle(query, true), Settled::default(), "the other one still asks");
    assert_eq!(slabs.settle(wait, true), Settled { free: None, destroy: Some(CUevent(1)) });
    assert!(slabs.around(block.address).is_some() && !slabs.is_any_leaving(), "it is the program's");
}

#[test]
fn what_somebody_asks_of_is_not_given_again_after_its_streams_end() {
    let mut slabs = with_a_pool();
    let block = freed(&mut slabs, 1000, STREAM, (1, CONTEXT));
    let asked = slabs.pending.ask(1).remove(0);
    slabs.pending.order_ends(STREAM);
    assert_eq!(slabs.settle(asked, false), Settled::default());
    assert_eq!(
        slabs.again(STREAM, &wish(1000)),
        None,
        "a new stream has the name, and the work of the old one goes on"
    );
    let asked = slabs.pending.ask(1).remove(0);
    assert_eq!(slabs.settle(asked, true).free, Some(block));
    assert!(slabs.is_any_leaving());
    assert!(slabs.remove(block).is_none(), "the slab is kept as a spare one");
    slabs.has_left();
    assert!(!slabs.is_any_leaving() && slabs.totals()[2] == 0);
}

#[test]
fn who_has_asked_frees_nothing_that_is_another_ones_by_now() {
    let mut slabs = with_a_pool();
    let block = freed(&mut slabs, LARGE, STREAM, (1, CONTEXT));
    let asked = slabs.pending.ask(1).remove(0);
    let (emptied, events) = slabs.remove_context(CONTEXT);
    assert_eq!((emptied.len(), events.len()), (1, 0), "the event has ended");
    slabs.unclaim(block.address);
    let next = allocate(&mut slabs, 0, OTHER, LARGE);
    assert_eq!(next, block.address);
    assert_eq!(slabs.settle(asked, true), Settled::default(), "the event's handle may be another one's");
    assert!(slabs.remove(block).is_none() && slabs.around(next).is_some());
}

#[test]
fn what_waits_for_work_of_a_context_that_ends_is_free_and_its_event_is_left_alone() {
    let mut slabs = with_a_pool();
    let theirs = freed(&mut slabs, LARGE, STREAM, (1, OTHER));
    let (emptied, events) = slabs.remove_context(OTHER);
    assert_eq!((emptied.len(), events.len()), (1, 0));
    assert!(slabs.pending.ask_all().is_empty() && slabs.around(theirs.address).is_none());
    // The other way round the event is alive, and nobody's.
    freed(&mut slabs, LARGE, STREAM, (2, OTHER));
    let (emptied, events) = slabs.remove_context(CONTEXT);
    assert_eq!((emptied.len(), events), (1, vec![CUevent(2)]));
}

#[test]
fn a_full_pool_gives_what_another_stream_has_freed_to_one_of_those_who_wait_for_its_event() {
    let mut slabs = with_a_pool();
    let block = freed(&mut slabs, 1000, STREAM, (1, CONTEXT));
    assert!(slabs.elsewhere(&wish(5000)).is_none());
    let [first, second] = [(); 2].map(|()| slabs.elsewhere(&wish(1000)).expect("it fits"));
    let (given, settled) = slabs.again_elsewhere(first, &wish(1000));
    assert_eq!((given, settled), (Some(Again { address: block.address, destroy: None }), Settled::default()));
    let (given, settled) = slabs.again_elsewhere(second, &wish(1000));
    assert_eq!((given, settled), (None, Settled { free: None, destroy: Some(CUevent(1)) }));
    assert!(slabs.elsewhere(&wish(1000)).is_none() && slabs.around(block.address).is_some());
}
