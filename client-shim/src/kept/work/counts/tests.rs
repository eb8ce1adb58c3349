use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use super::{Counts, LANES, OWNERS};

const PIECES: u64 = 3000;

#[test]
fn a_wait_says_nothing_of_work_whose_call_was_on_its_way() {
    // By threads with lanes of their own, and by such as share one.
    for seats in [[1, 2, 3], [0, 0, 0]] {
        let counts = Counts::none();
        let first = counts.give(seats[0]);
        assert_eq!(first.waits_for, 1);
        counts.came_back(first, true);
        // Another thread has a number and is not in the driver yet.
        let slow = counts.give(seats[1]);
        let quick = counts.give(seats[2]);
        let waited = counts.settled_with(quick);
        counts.came_back(quick, true);
        counts.complete(&waited);
        assert!(counts.is_busy(), "a copy that waits now does not wait for the second");
        assert!(counts.is_on_its_way() && !counts.has_come_to(&counts.settled_with(slow)));
        counts.came_back(slow, true);
        assert_eq!(counts.0.iter().map(super::Lane::submitted).sum::<u64>(), 3);
        assert!(!counts.is_on_its_way() && counts.is_busy());
        counts.complete(&counts.settled());
        assert!(!counts.is_busy() && counts.has_come_to(&counts.settled()));
    }
}

#[test]
fn what_the_driver_refuses_is_no_work_unless_more_came_after_it() {
    for seat in [0, 7] {
        let counts = Counts::none();
        let refused = counts.give(seat);
        counts.came_back(refused, false);
        assert!(!counts.is_any() && !counts.is_busy());
    }
    let counts = Counts::none();
    let [refused, given] = [0; 2].map(|seat| counts.give(seat));
    counts.came_back(refused, false);
    counts.came_back(given, true);
    assert_eq!((counts.open(), counts.is_on_its_way()), (2, false));
}

#[test]
fn other_lanes_are_looked_at_as_soon_as_one_is_used() {
    for others in [5, 0] {
        let counts: &'static Counts = Box::leak(Box::new(Counts::none()));
        assert!(counts.give_in_own(7).is_none() && counts.give_in_own(0).is_none(), "nobody has a lane");
        counts.came_back(counts.give(7), true);
        let piece = counts.give_in_own(7).expect("it has one");
        assert_eq!((counts.settled(), counts.is_on_its_way()), (super::Mark([1, 0, 0, 0]), true));
        piece.came_back(false);
        assert_eq!(counts.submitted(), 1, "what is refused is no work");
        counts.give_in_own(7).expect("it has one").came_back(true);
        assert!(!counts.is_of_many());
        let given = counts.give(others);
        assert!(counts.is_of_many());
        counts.came_back(given, true);
        let noted = super::Noted::none();
        counts.note_settled(&noted);
        assert_eq!(noted.read(), counts.settled());
        counts.complete_noted(&noted);
        assert_eq!((counts.known(), counts.open()), (3, 0));
    }
}

#[test]
fn a_lane_is_one_threads_and_all_others_share_the_last() {
    let counts = Counts::none();
    let lanes: Vec<usize> = (1..=5).map(|seat| counts.give(seat).lane).collect();
    assert_eq!(lanes, [0, 1, 2, OWNERS, OWNERS]);
    assert_eq!(counts.give(0).lane, LANES - 1);
    // A thread with the seat of one that has ended goes on with its numbers.
    let other = Counts::none();
    let before = other.give(9);
    other.came_back(before, true);
    other.complete(&other.settled());
    assert_eq!((other.give(9).number, other.open()), (2, 1));
}

/// What a wait may complete is what was given before it began; here a counter that a thread raises in the driver.
#[test]
fn beside_others_a_wait_never_says_that_work_is_done_which_it_did_not_wait_for() {
    static GIVEN: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let counts: &'static Counts = Box::leak(Box::new(Counts::none()));
    let givers: Vec<_> = (0..GIVEN.len())
        .map(|thread| {
            thread::spawn(move || {
                for number in 1..=PIECES {
                    let seat = u32::try_from(thread).unwrap();
                    match counts.give_in_own(seat) {
                        Some(piece) => {
                            GIVEN[thread].store(number, Ordering::Release);
                            piece.came_back(true);
                        }
                        None => {
                            let piece = counts.give(seat);
                            GIVEN[thread].store(number, Ordering::Release);
                            counts.came_back(piece, true);
                        }
                    }
                }
            })
        })
        .collect();
    let waiter = thread::spawn(move || {
        while !IS_OVER.load(Ordering::Acquire) {
            let mark = counts.settled();
            let in_driver: u64 = GIVEN.iter().map(|given| given.load(Ordering::Acquire)).sum();
            assert!(mark.0.iter().sum::<u64>() <= in_driver);
            counts.complete(&mark);
        }
    });
    givers.into_iter().for_each(|giver| giver.join().unwrap());
    IS_OVER.store(true, Ordering::Release);
    waiter.join().unwrap();
    counts.complete(&counts.settled());
    assert_eq!((counts.open(), counts.settled().0.iter().sum()), (0, PIECES * GIVEN.len() as u64));
}
