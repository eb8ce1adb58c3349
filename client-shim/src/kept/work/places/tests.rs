//! Places are found, taken and left.

use super::{FREE, MOST, MOST_LEFT, PLACES, SHARED, at, end, end_context, ended, find, of, put_back, take, used};
use crate::kept::work::counts::Mark;
use std::sync::atomic::Ordering;

fn work(place: usize) -> Mark {
    let counts = at(place).counts();
    let given = counts.give(0);
    counts.came_back(given, true);
    counts.settled()
}

/// One test, since there is one table.
#[test]
fn places_are_found_by_name_and_are_another_streams_when_their_stream_has_ended() {
    const CONTEXT: usize = 0xc00;
    let _held = super::alone();
    // Two that lie one behind the other.
    let names = [0x5000, 0x5000 + MOST * 16];
    let [first, second] = names.map(|name| take(name, || CONTEXT));
    assert_eq!(names.map(find), [Some(first), Some(second)]);
    let mark = work(first);
    at(first).counts().complete(&mark);
    assert_eq!(end(names[0]), Some(first));
    assert_eq!((find(names[0]), find(names[1])), (None, Some(second)), "what lies behind is found");
    put_back(first);
    assert_eq!(find(names[0]), Some(first));
    end(names[0]);
    ended(first);
    let third = names[0] + 2 * MOST * 16;
    assert_eq!((take(third, || CONTEXT), find(names[1])), (first, Some(second)));
    work(first);
    at(first).counts().complete(&mark);
    assert!(at(first).counts().is_busy(), "who has a number of the one before says nothing");

    // One that ends with work on its way is counted as long as that is.
    end(third);
    ended(first);
    assert_eq!((find(third), of(CONTEXT).count(), at(first).counts().is_busy()), (None, 2, true));
    assert_ne!(take(third, || 0), first, "another stream of its name is another one");
    end_context(CONTEXT);
    ended(end(third).expect("it has one"));
    assert_eq!((of(CONTEXT).count(), used().count()), (0, 0));

    // More than there are places.
    let many: Vec<usize> = (1..=MOST + 3).map(|number| number * 0x100).collect();
    let taken: Vec<usize> = many.iter().map(|name| take(*name, || CONTEXT)).collect();
    assert_eq!(taken.iter().filter(|place| **place == SHARED).count(), 3);
    assert!(many[..MOST].iter().zip(&taken).all(|(name, place)| find(*name) == Some(*place)));
    work(SHARED);
    assert_eq!(of(CONTEXT).count(), MOST + 1);
    take(0x100 * (MOST + 9), || CONTEXT + 16);
    assert_eq!(of(CONTEXT).count(), MOST, "it is of several by now");
    for (name, place) in many[..MOST].iter().zip(&taken) {
        assert_eq!(end(*name), Some(*place));
        ended(*place);
    }
    at(SHARED).counts().complete_all();
    let taken = PLACES[..MOST].iter().filter(|place| place.stream.load(Ordering::Relaxed) != FREE).count();
    assert!(taken < 2 * MOST_LEFT, "a miss ends soon: {taken}");
}
