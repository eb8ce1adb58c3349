//! When a spare copy looks at what its program has, by the hands of a clock that is set.

use std::time::{Duration, Instant};

use super::{Due, Followed, OfGraphs, OfObjects, OfValues, Pace, Seen, UNSEEN};

#[test]
fn calls_are_made_while_the_gpu_moves_and_else_seldom_enough_for_one_that_stands_still() {
    let begin = Instant::now();
    let mut pace = Pace::default();
    let mut is_time = |is_moving, ms| pace.is_time(is_moving, begin + Duration::from_millis(ms));
    let stand_still = 150;
    assert!(is_time(false, 0));
    assert!(is_time(true, 20));
    assert!((21..20 + stand_still).all(|ms| !is_time(false, ms)));
    assert!(is_time(true, 20 + stand_still));
    let unseen = u64::try_from(UNSEEN.as_millis()).unwrap();
    assert!(!is_time(false, 20 + stand_still + unseen - 1));
    assert!(is_time(false, 20 + stand_still + unseen));
}

#[test]
fn what_changes_at_each_look_keeps_nothing_else_from_following() {
    let of = OfObjects { copy: 1, changes: 5 };
    let look = |settled, quiet, are_all_quiet| Seen {
        objects: of,
        values: OfValues { of, settled, is_still: false },
        graphs: OfGraphs { of, quiet, are_all_quiet },
    };
    let mut followed = Followed::default();
    let mut changes = 3;
    let mut at = |seen: Seen, more: u64| {
        changes += more;
        let due = followed.due((seen, changes));
        followed.seen.objects = seen.objects;
        followed.has_settled(due, &seen);
        due
    };
    // All that there is, but graphs that have changed since there was nothing.
    assert_eq!(at(look(1, 0, false), 0), Due { objects: true, values: true, graphs: Some(0) });
    // Variables and one graph go on changing.
    assert_eq!(at(look(2, 2, false), 1), Due { objects: false, values: false, graphs: Some(3) });
    assert_eq!(at(look(3, 2, false), 1), Due::default());
    // They are left alone.
    assert_eq!(at(look(3, 5, true), 0), Due { objects: false, values: true, graphs: Some(5) });
    assert_eq!(at(look(3, 5, true), 0), Due::default());
}
