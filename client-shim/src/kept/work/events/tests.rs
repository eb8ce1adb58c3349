//! Events that are recorded, waited for and asked about, and what each is known to be behind.

use super::{Behind, Events, Passed, last_unheard};
use crate::kept::work::counts::{Counts, Mark};

const EVENT: usize = 0xe0;
const SOUND: Option<Passed> = Some(Passed { doubt: 0, is_unheard: false });

/// So many pieces of work.
fn mark(pieces: usize) -> Mark {
    let counts = Counts::none();
    (0..pieces).for_each(|_| counts.came_back(counts.give(0), true));
    counts.settled()
}

#[test]
fn an_event_is_behind_what_it_was_recorded_behind_last() {
    let mut events = Events::default();
    assert_eq!(events.behind(EVENT), (Behind::Unknown, 0));
    events.begin(EVENT);
    events.end(EVENT, Behind::Work(3, mark(7)), SOUND);
    let (behind, record) = events.behind(EVENT);
    assert_eq!((behind, events.is_still(EVENT, record)), (Behind::Work(3, mark(7)), true));
    events.begin(EVENT);
    assert_eq!(events.behind(EVENT).0, Behind::Unknown, "while it is recorded again nobody knows");
    events.end(EVENT, Behind::Nothing, SOUND);
    assert_eq!((events.behind(EVENT).0, events.is_still(EVENT, record)), (Behind::Nothing, false));
    let taken = events.take(EVENT).expect("it is known");
    assert_eq!(events.behind(EVENT), (Behind::Unknown, 0), "another one of that name was never recorded");
    events.put_back(EVENT, taken);
    assert_eq!(events.behind(EVENT).0, Behind::Nothing);
}

#[test]
fn of_two_records_at_once_nobody_knows_which_was_the_last() {
    let mut events = Events::default();
    events.begin(EVENT);
    events.begin(EVENT);
    events.end(EVENT, Behind::Work(1, mark(1)), SOUND);
    events.end(EVENT, Behind::Work(2, mark(1)), SOUND);
    assert_eq!(events.behind(EVENT).0, Behind::Unknown);
    events.begin(EVENT);
    events.end(EVENT, Behind::Work(2, mark(2)), SOUND);
    assert_eq!(events.behind(EVENT).0, Behind::Work(2, mark(2)));
}

#[test]
fn what_a_graph_records_is_known_to_be_behind_nothing_for_good() {
    let mut events = Events::default();
    events.elsewhere(EVENT, true);
    events.begin(EVENT);
    events.end(EVENT, Behind::Work(1, mark(1)), SOUND);
    assert_eq!(events.behind(EVENT).0, Behind::Unknown);
    events.elsewhere(EVENT + 16, false);
    events.begin(EVENT + 16);
    events.end(EVENT + 16, Behind::Work(1, mark(1)), SOUND);
    assert_eq!(events.behind(EVENT + 16).0, Behind::Work(1, mark(1)));
}

#[test]
fn what_is_lost_is_in_doubt_until_it_is_recorded_again() {
    let mut events = Events::default();
    for (event, behind) in [(1, Behind::Work(0, mark(1))), (2, Behind::Work(0, mark(2))), (3, Behind::Unknown)] {
        events.begin(event);
        events.end(event, behind, SOUND);
    }
    assert!(events.lose(7, |_, of| *of == mark(1)));
    assert_eq!([1, 2, 3].map(|event| events.doubt(event)), [0, 7, 7]);
    assert!(events.lose(0, |_, _| true), "another recovery by which nothing is lost changes nothing");
    events.begin(2);
    events.end(2, Behind::Unknown, None);
    assert_eq!(events.doubt(2), 7, "a record that fails is none");
    events.begin(2);
    events.end(2, Behind::Nothing, SOUND);
    events.take(3);
    assert_eq!(([1, 2, 3].map(|event| events.doubt(event)), events.any_doubt()), ([0; 3], 0));
}

/// The only test that makes such records, which are numbered over all tests.
#[test]
fn a_record_is_unheard_until_there_is_another_one() {
    let mut events = Events::default();
    let before = last_unheard();
    let record = |events: &mut Events, event, passed| {
        events.begin(event);
        events.end(event, Behind::Nothing, passed);
    };
    let unheard = Some(Passed { doubt: 0, is_unheard: true });
    record(&mut events, 1, unheard);
    record(&mut events, 2, SOUND);
    let first = last_unheard();
    assert_eq!((first, events.unheard(1), events.unheard(2)), (before + 1, first, 0));
    assert!(!events.is_idle(1), "what is known of it another record would change");
    record(&mut events, 2, unheard);
    assert_eq!((events.unheard_since(before), events.unheard_since(first)), (vec![1, 2], vec![2]));

    record(&mut events, 1, None);
    assert_eq!(events.unheard(1), first, "a record that fails is none");
    assert!(!events.lose(0, |_, _| true), "nothing was lost");
    assert_eq!(events.unheard(1), first, "a recovery that loses nothing is told to nobody");
    record(&mut events, 1, SOUND);
    let taken = events.take(2).expect("it is known");
    assert_eq!((events.unheard(1), events.unheard(2)), (0, 0));
    events.put_back(2, taken);
    assert_eq!(events.unheard_since(before), [2]);
}
