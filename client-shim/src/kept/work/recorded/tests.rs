use std::{
    sync::{
        MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    Look, begin, begin_anew, close, elsewhere, end, look,
    slots::{BANKS, SETS, WAYS},
};
use crate::{
    cuda::{arguments::Subject, functions::Effect, result::CUresult},
    kept::work::{
        counts::{Counts, Mark},
        events::{Behind, Events, Passed},
        places,
        progress::{self, begin_healthy, begin_quickly},
    },
};

/// Slots are one table for all tests, as places are, which begin with nothing in it.
fn alone() -> MutexGuard<'static, ()> {
    let held = places::alone();
    close();
    elsewhere(0);
    super::IS_CLOSED.store(false, Ordering::Release);
    held
}

const EVENT: usize = 0x1_0000;
/// Seats that no other test has.
const SEATS: [u32; BANKS + 1] = [901, 902, 903, 904, 905];

fn mark(pieces: usize) -> Mark {
    let counts = Counts::none();
    (0..pieces).for_each(|_| counts.came_back(counts.give(0), true));
    counts.settled()
}

fn work(pieces: usize) -> Behind {
    Behind::Work(7, mark(pieces))
}

/// A record by the thread with this seat, as [`progress`] makes it; whether a slot has it.
fn record(events: &mut Events, event: usize, seat: u32, behind: Behind) -> bool {
    elsewhere(events.count());
    let recording = begin(event, seat).or_else(|| begin_anew(events, event, seat));
    let is_noted_here = recording.is_some();
    match recording {
        Some(recording) => recording.end(behind),
        None => {
            if end(event) {
                events.is_met(event);
            }
            events.begin(event);
            events.end(event, behind, Some(Passed::default()));
        }
    }
    is_noted_here
}

fn said(event: usize) -> Option<Behind> {
    match look(event) {
        Look::One(seen) if seen.is_still(event) => Some(seen.behind),
        Look::One(_) | Look::Nobody | Look::Several => None,
    }
}

#[test]
fn a_record_is_known_until_the_next_one_or_until_it_is_over() {
    let _held = alone();
    let mut events = Events::default();
    assert!(record(&mut events, EVENT, SEATS[0], work(3)));
    assert_eq!((said(EVENT), events.has(EVENT)), (Some(work(3)), false));
    let Look::One(seen) = look(EVENT) else { panic!("it is known") };

    let recording = begin(EVENT, SEATS[0]).expect("its slot counts");
    assert!(matches!(look(EVENT), Look::Several) && !seen.is_still(EVENT), "while it is recorded nobody knows");
    assert!(begin(EVENT, SEATS[0]).is_none(), "one record at a time");
    recording.end(Behind::Nothing);
    assert_eq!((said(EVENT), seen.is_still(EVENT)), (Some(Behind::Nothing), false));

    // Another thread records it: only its own record counts, and then the first one's again.
    for (seat, pieces) in [(SEATS[1], 4), (SEATS[0], 5), (SEATS[1], 6)] {
        assert!(record(&mut events, EVENT, seat, work(pieces)));
        assert_eq!(said(EVENT), Some(work(pieces)));
    }
    // It is destroyed, and another one has its handle.
    end(EVENT);
    assert!(matches!(look(EVENT), Look::Nobody) && begin(EVENT, SEATS[1]).is_none());
    assert!(record(&mut events, EVENT, SEATS[1], Behind::Unknown));
    assert_eq!(said(EVENT), Some(Behind::Unknown));
    end(EVENT);
}

#[test]
fn of_two_records_at_once_nobody_knows_which_was_the_last() {
    let _held = alone();
    let mut events = Events::default();
    let event = EVENT + 0x1000;
    record(&mut events, event, SEATS[0], work(1));
    let first = begin(event, SEATS[0]).expect("its slot counts");
    assert!(!record(&mut events, event, SEATS[1], work(3)), "another one is on its way");
    first.end(work(2));
    assert_eq!((said(event), events.behind(event).0), (Some(work(2)), Behind::Unknown));
    // The next one is alone.
    assert!(record(&mut events, event, SEATS[0], work(4)) && !events.has(event));
    assert_eq!(said(event), Some(work(4)));

    // What was over before its thread came to the driver counts after all: nobody knows.
    record(&mut events, event, SEATS[1], work(5));
    assert_eq!(said(event), Some(work(5)));
    let [first, second] = [SEATS[0], SEATS[1]].map(|seat| super::bank(seat).expect("it has one").find(event));
    let late = first.expect("it had a slot").take(event);
    late.end(work(6));
    assert!(matches!(look(event), Look::Several));
    assert!(second.is_some_and(|slot| slot.counting().is_some()));
    end(event);
}

#[test]
fn what_finds_no_slot_is_left_to_the_others_and_all_is_when_work_was_lost() {
    let _held = alone();
    let mut events = Events::default();
    let many: Vec<usize> = (1..=4000).map(|number| 0x10_0000 + number * 0x40).collect();
    let noted = many.iter().filter(|event| record(&mut events, **event, SEATS[0], work(1))).count();
    assert_eq!((noted, events.count()), (SETS * WAYS, many.len() - noted), "handles are spread over all sets");
    // There are no more banks than that.
    let seats = SEATS.map(|seat| record(&mut events, EVENT + seat as usize * 64, seat, work(1)));
    assert!(!seats[BANKS], "{seats:?}");
    // A graph records it, whenever it is launched.
    end(EVENT);
    events.elsewhere(EVENT, true);
    assert!(begin_anew(&mut events, EVENT, SEATS[1]).is_none());
    let [known, unknown] = [many[0], EVENT];
    assert!(said(known).is_some() || events.has(known));

    let before = said(known);
    let closed = close();
    assert_eq!(closed.iter().find(|(event, _)| *event == known).map(|(_, behind)| *behind), before);
    closed.into_iter().for_each(|(event, behind)| events.found(event, behind));
    assert_eq!((events.behind(known).0, events.behind(unknown).0), (work(1), Behind::Unknown));
    assert!(!record(&mut events, known, SEATS[0], work(2)) && close().is_empty());
}

#[test]
fn a_thread_that_asks_for_its_own_record_knows_it_unless_anybody_else_has_recorded_the_event_since() {
    const CONTEXT: usize = 0x7e00;
    let _held = alone();
    // No place that another test counts in: its numbers go on.
    let (event, stream) = (EVENT + 0x4000, 0x8_2000);
    let at = places::take(stream, || CONTEXT);
    let own = Subject { stream: Some(stream), event, ..Subject::default() };
    let launched = |seat| {
        let subject = Subject { event: 0, ..own };
        match begin_quickly(Effect::Launches, false, &subject, CONTEXT, seat) {
            Some(call) => call.end(CUresult::CUDA_SUCCESS),
            None => begin_healthy(Effect::Launches, false, &subject, CONTEXT, seat).end(CUresult::CUDA_SUCCESS),
        }
    };
    let recorded = |seat, answer| match begin_quickly(Effect::RecordsEvent, false, &own, CONTEXT, seat) {
        Some(call) => call.end(answer),
        None => begin_healthy(Effect::RecordsEvent, false, &own, CONTEXT, seat).end(answer),
    };
    let ask = |seat| begin_quickly(Effect::FinishesEvent, false, &own, CONTEXT, seat);
    let known = || places::at(at).counts().known();
    let [first, second] = [SEATS[0], SEATS[1]];
    assert!(ask(first).is_none(), "it has recorded nothing");
    for round in 1..=2 {
        launched(first);
        recorded(first, CUresult::CUDA_SUCCESS);
        ask(first).expect("its own").end(CUresult::CUDA_ERROR_UNKNOWN);
        assert_eq!(known(), round - 1, "the event has not come");
        ask(first).expect("its own").end(CUresult::CUDA_SUCCESS);
        assert_eq!(known(), round);
    }
    // A record that fails has left the event as it was, or not.
    launched(first);
    recorded(first, CUresult::CUDA_ERROR_UNKNOWN);
    ask(first).expect("its own").end(CUresult::CUDA_SUCCESS);
    assert_eq!(known(), 2);
    // Another thread records it while this one asks, whose word is over, and gives work in another lane.
    recorded(first, CUresult::CUDA_SUCCESS);
    let asked = ask(first).expect("its own");
    launched(second);
    recorded(second, CUresult::CUDA_SUCCESS);
    asked.end(CUresult::CUDA_SUCCESS);
    assert_eq!((known(), ask(first).is_none()), (2, true), "the other one's record says more");
    ask(second).expect("its own").end(CUresult::CUDA_SUCCESS);
    assert_eq!(known(), 4, "of both lanes");
    // The lock is taken for it while this one asks.
    launched(second);
    recorded(second, CUresult::CUDA_SUCCESS);
    let asked = ask(second).expect("its own");
    elsewhere(1);
    asked.end(CUresult::CUDA_SUCCESS);
    assert_eq!((known(), ask(second).is_none()), (4, true));
    elsewhere(0);
    // Both say something: nobody knows which was the last.
    let late = super::bank(first).and_then(|bank| bank.find(event)).expect("it had a slot").take(event);
    let asked = ask(second).expect("its own");
    late.end(Behind::Nothing);
    asked.end(CUresult::CUDA_SUCCESS);
    assert_eq!(known(), 4);
    progress::made_event(event);
    assert!(ask(first).is_none() && ask(second).is_none());
    progress::finished_context(CONTEXT);
    progress::made_stream(stream);
}

/// Threads that record events and threads that ask for them, through the way of a call, with a driver that knows which
/// record of an event was the last. What a success of the driver's completes must have been shown.
#[test]
fn an_event_never_completes_work_that_its_last_record_was_not_behind() {
    const EVENTS: usize = 3;
    const RECORDERS: usize = BANKS;
    const CONTEXT: usize = 0x7f00;
    const ROUNDS: u64 = 10_000;
    const LIMIT: Duration = Duration::from_mins(2);
    /// Of each event: who has recorded it last, and how much work it had given by then.
    static DRIVER: [AtomicU64; EVENTS] = [const { AtomicU64::new(0) }; EVENTS];
    /// How much of each one's work a success has shown to be done.
    static SHOWN: [AtomicU64; RECORDERS] = [const { AtomicU64::new(0) }; RECORDERS];
    /// Questions so far, and those of threads for what they have recorded themselves.
    static ASKED: AtomicU64 = AtomicU64::new(0);
    static ASKED_OWN: AtomicU64 = AtomicU64::new(0);
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let _held = alone();
    let event = |at: usize| EVENT + 0x8000 + at * 0x40;
    let stream = |at: usize| 0x9_0000 + at * 0x10;
    let run = |effect: Effect, subject: Subject, seat: u32, in_driver: &dyn Fn()| match begin_quickly(
        effect, false, &subject, CONTEXT, seat,
    )
    .ok_or(effect)
    {
        Ok(call) => {
            in_driver();
            call.end(CUresult::CUDA_SUCCESS);
            if seat != 0 && effect == Effect::FinishesEvent {
                ASKED_OWN.fetch_add(1, Ordering::Relaxed);
            }
        }
        Err(effect) => {
            let call = begin_healthy(effect, false, &subject, CONTEXT, seat);
            in_driver();
            call.end(CUresult::CUDA_SUCCESS);
        }
    };
    // What a success shows.
    let show = |at: usize| {
        let last = DRIVER[at].load(Ordering::SeqCst);
        let (who, number) = ((last >> 32) as usize, last & u64::from(u32::MAX));
        SHOWN[who].fetch_max(number, Ordering::SeqCst);
    };
    let begun = Instant::now();
    // Each has a place.
    let places: Vec<usize> = (0..RECORDERS).map(|at| places::take(stream(at), || CONTEXT)).collect();
    thread::scope(|scope| {
        let recorders: Vec<_> = (0..RECORDERS)
            .map(|me| {
                scope.spawn(move || {
                    let own = Subject { stream: Some(stream(me)), ..Subject::default() };
                    let mut number = 0;
                    while number < ROUNDS || ASKED.load(Ordering::Relaxed) < ROUNDS {
                        assert!(begun.elapsed() < LIMIT, "the other threads do not ask");
                        number += 1;
                        run(Effect::Launches, own, SEATS[me], &|| {});
                        let at = usize::try_from(number).unwrap_or_default() * (me + 1) % EVENTS;
                        let subject = Subject { event: event(at), ..own };
                        let last = (me as u64) << 32 | number;
                        match number % 64 {
                            // As a thread that is about to end: without a seat.
                            1 => run(Effect::RecordsEvent, subject, 0, &|| DRIVER[at].store(last, Ordering::SeqCst)),
                            _ => run(Effect::RecordsEvent, subject, SEATS[me], &|| {
                                DRIVER[at].store(last, Ordering::SeqCst);
                            }),
                        }
                        if number % 3 == 0 {
                            run(Effect::FinishesEvent, subject, SEATS[me], &|| show(at));
                        }
                    }
                })
            })
            .collect();
        for asker in 0..2 {
            let places = &places;
            scope.spawn(move || {
                let mut at = asker;
                while !IS_OVER.load(Ordering::Acquire) {
                    at = (at + 1) % EVENTS;
                    let subject = Subject { event: event(at), ..Subject::default() };
                    run(Effect::FinishesEvent, subject, 0, &|| show(at));
                    ASKED.fetch_add(1, Ordering::Relaxed);
                    for (who, place) in places.iter().enumerate() {
                        let completed = places::at(*place).counts().known();
                        let shown = SHOWN[who].load(Ordering::SeqCst);
                        assert!(completed <= shown, "{who}: {completed} of {shown}");
                    }
                }
            });
        }
        recorders.into_iter().for_each(|recorder| recorder.join().expect("it ends"));
        IS_OVER.store(true, Ordering::Release);
    });
    assert!(places.iter().any(|place| places::at(*place).counts().known() > 0), "something was completed");
    assert!(ASKED_OWN.load(Ordering::Relaxed) > 0, "nobody asked for its own");
    (0..EVENTS).for_each(|at| progress::made_event(event(at)));
    progress::finished_context(CONTEXT);
    (0..RECORDERS).for_each(|at| progress::made_stream(stream(at)));
}
