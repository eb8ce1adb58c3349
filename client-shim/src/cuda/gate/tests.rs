//! The gate at work: one that stays inside, and many that pass while it is closed and opened.

use std::{
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use super::{FENCED, Passer, STATE, arm, changed, close, disarm, enter, healthy};

const LONG: Duration = Duration::from_secs(120);
/// How often each of many threads passes.
const PASSAGES: usize = 2000;

/// A thread that has a seat.
fn seated() -> Passer {
    let passer = Passer::new();
    passer.sit();
    passer
}

/// One test, since there is one gate.
#[test]
fn whoever_closes_it_finds_nobody_inside_and_is_not_kept_by_one_who_stays() {
    assert!(healthy(&seated(), false).is_none(), "recovery is not on");
    arm();
    let [without_a_seat, outside] = [Passer::new(), seated()];
    assert!(healthy(&without_a_seat, false).is_none());
    let pass = healthy(&outside, false);
    assert!((pass.is_some() || STATE.load(Ordering::SeqCst) & FENCED != 0) && healthy(&outside, false).is_none());
    assert_eq!(outside.is_inside(), pass.is_some());
    drop(pass);
    assert!(!outside.is_inside());
    outside.stand_up();

    // A thread stays inside, with a seat, without one, or beside the ordinary way.
    let ways: [fn() -> (Passer, bool); 3] = [|| (seated(), true), || (Passer::new(), false), || (seated(), false)];
    for way in ways {
        let (leave, asked) = mpsc::channel::<()>();
        let (told, is_in) = mpsc::channel();
        let stuck = thread::spawn(move || {
            let (passer, is_ordinary) = way();
            let ordinary = if is_ordinary { healthy(&passer, false) } else { None };
            let pass = if ordinary.is_none() { enter(&passer, LONG) } else { None };
            assert!(passer.is_inside());
            told.send(()).unwrap();
            asked.recv().unwrap();
            drop((pass, ordinary));
            assert!(!passer.is_inside());
            passer.stand_up();
        });
        is_in.recv().unwrap();
        let closed = close();
        assert_eq!(closed.wait(Duration::from_millis(10)), 1);
        let mut late = closed.late();
        assert_eq!((late.inside(), late.have_come_out()), (1, false));
        assert!(!closed.are_all_compiling(1) && !closed.are_all_compiling(0));
        for refused in [Passer::new(), seated()] {
            assert!(healthy(&refused, false).is_none());
            assert!(enter(&refused, Duration::from_millis(10)).is_none(), "it stays closed");
            assert!(!refused.is_inside());
            refused.stand_up();
        }
        leave.send(()).unwrap();
        assert_eq!(closed.wait(LONG), 0);
        assert!(late.have_come_out() && closed.late().have_come_out());
        stuck.join().unwrap();
        drop(closed);
    }

    // Many threads pass while it is closed and opened again, and find what it is closed for never half done.
    static EXCHANGED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    let look = || {
        let [first, second] = [0, 1].map(|at| EXCHANGED[at].load(Ordering::Relaxed));
        assert_eq!(first, second);
    };
    let passers: Vec<_> = (0..4)
        .map(|number| {
            thread::spawn(move || {
                let passer = if number == 0 { Passer::new() } else { seated() };
                for _ in 0..PASSAGES {
                    match healthy(&passer, false) {
                        Some(_pass) => look(),
                        None => {
                            let _pass = enter(&passer, LONG).expect("it opens again");
                            look();
                        }
                    }
                }
                passer.stand_up();
            })
        })
        .collect();
    while !passers.iter().all(|passer| passer.is_finished()) {
        let closed = close();
        assert_eq!(closed.wait(LONG), 0);
        for at in [0, 1] {
            EXCHANGED[at].fetch_add(1, Ordering::Relaxed);
            thread::yield_now();
        }
        drop(closed);
        thread::yield_now();
    }
    passers.into_iter().for_each(|passer| passer.join().unwrap());

    changed();
    assert!(healthy(&seated(), false).is_none(), "there is something to be translated");
    disarm();
}
