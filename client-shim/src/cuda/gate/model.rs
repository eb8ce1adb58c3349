//! The gate's protocol in all orders: what [`healthy`](super::healthy), its end, [`withdraw`](super::Healthy::withdraw) and
//! [`enter`](super::enter) after it, [`close`](super::close) and [`wait`](super::closed::Closed::wait) do, step by step, on
//! processors whose stores are seen later than they are made.
//!
//! That is what x86 does (total store order): a store waits in its thread's buffer, first in, first out; the thread
//! itself reads it from there, and all others when it has left the buffer. A barrier, or an instruction that is locked,
//! empties the buffer. Nothing else is reordered. Each state is gone on from by every step that is possible in it.

use std::collections::{BTreeSet, HashSet, VecDeque};

/// Threads that pass.
const PASSERS: usize = 2;
/// How often each passes: one often, and two that may meet.
const PASSAGES: [[u8; PASSERS]; 2] = [[3, 0], [1, 1]];

/// What of the protocol is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// The barrier in other threads, when the gate is closed.
    Barrier,
    /// The look when somebody goes out.
    SecondLook,
    /// The look when somebody goes in.
    FirstLook,
    /// The second way in of whoever has withdrawn.
    Entering,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Passing {
    /// About to say that it is inside.
    Outside,
    Said,
    Inside,
    /// It has found the gate closed, and said without a look that it is outside.
    Withdrawn,
    /// It goes in by the longer way, with a barrier, and has said so.
    Entering,
    /// About to say that it is outside.
    Leaving,
    Left,
    /// About to take the lock and wake whoever waits.
    Waking,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Closing {
    Open,
    Closed,
    /// All have had a barrier. It has the lock and has looked at so many flags, of which any was set or not.
    Looking(usize, bool),
    /// It sleeps, without the lock, until somebody wakes it.
    Asleep,
    /// Nobody is inside: what nobody may be inside for is done.
    Exchanging,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// In memory: the flags of those inside.
    inside: [bool; PASSERS],
    is_closed: bool,
    /// Stores of its own flag that a passer has made and nobody else sees yet.
    buffers: [VecDeque<bool>; PASSERS],
    passing: [Passing; PASSERS],
    left: [u8; PASSERS],
    closing: Closing,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wrong {
    /// Somebody was inside while the driver was exchanged.
    Met,
    /// Whoever closes sleeps, though everybody is out.
    NeverWoken,
}

impl State {
    fn first(left: [u8; PASSERS]) -> Self {
        Self {
            inside: [false; PASSERS],
            is_closed: false,
            buffers: Default::default(),
            passing: [Passing::Outside; PASSERS],
            left,
            closing: Closing::Open,
        }
    }

    fn wrong(&self) -> Option<Wrong> {
        (self.closing == Closing::Exchanging && self.passing.contains(&Passing::Inside)).then_some(Wrong::Met)
    }

    /// A step of a passer; `None` if it has none now.
    fn pass(&self, at: usize, without: Without) -> Option<Self> {
        let mut next = self.clone();
        next.passing[at] = match self.passing[at] {
            Passing::Outside if self.left[at] == 0 => Passing::Done,
            Passing::Outside => {
                next.buffers[at].push_back(true);
                Passing::Said
            }
            Passing::Said if self.is_closed && without != Without::FirstLook => {
                next.buffers[at].push_back(false);
                Passing::Withdrawn
            }
            Passing::Said => Passing::Inside,
            Passing::Withdrawn if without == Without::Entering => {
                next.left[at] -= 1;
                Passing::Outside
            }
            Passing::Withdrawn => {
                next.buffers[at].push_back(true);
                next.see(at);
                Passing::Entering
            }
            // It would wait until the gate is open, and is not followed any further.
            Passing::Entering if self.is_closed => {
                next.left[at] -= 1;
                Passing::Leaving
            }
            Passing::Entering => Passing::Inside,
            Passing::Inside => {
                next.left[at] -= 1;
                Passing::Leaving
            }
            Passing::Leaving => {
                next.buffers[at].push_back(false);
                Passing::Left
            }
            Passing::Left if self.is_closed && without != Without::SecondLook => Passing::Waking,
            Passing::Left => Passing::Outside,
            Passing::Waking => {
                if matches!(self.closing, Closing::Looking(..)) {
                    return None;
                }
                // A lock is taken by a locked instruction.
                next.see(at);
                if self.closing == Closing::Asleep {
                    next.closing = Closing::Looking(0, false);
                }
                Passing::Outside
            }
            Passing::Done => return None,
        };
        Some(next)
    }

    /// All that a passer has stored is seen.
    fn see(&mut self, at: usize) {
        if let Some(last) = self.buffers[at].drain(..).next_back() {
            self.inside[at] = last;
        }
    }

    /// The oldest store of a passer is seen.
    fn see_one(&self, at: usize) -> Option<Self> {
        let mut next = self.clone();
        next.inside[at] = next.buffers[at].pop_front()?;
        Some(next)
    }

    /// A step of whoever closes.
    fn close(&self, without: Without) -> Option<Self> {
        let mut next = self.clone();
        next.closing = match self.closing {
            Closing::Open => {
                next.is_closed = true;
                Closing::Closed
            }
            Closing::Closed => {
                if without != Without::Barrier {
                    (0..PASSERS).for_each(|at| next.see(at));
                }
                Closing::Looking(0, false)
            }
            Closing::Looking(PASSERS, true) => Closing::Asleep,
            Closing::Looking(PASSERS, false) => Closing::Exchanging,
            Closing::Looking(at, is_any) => Closing::Looking(at + 1, is_any || self.inside[at]),
            Closing::Exchanging => {
                next.is_closed = false;
                Closing::Done
            }
            Closing::Asleep | Closing::Done => return None,
        };
        Some(next)
    }
}

/// All that can go wrong, and how many states there are.
fn explored(without: Without) -> (BTreeSet<Wrong>, usize) {
    let (mut known, mut open, mut wrong) = (HashSet::new(), PASSAGES.map(State::first).to_vec(), BTreeSet::new());
    while let Some(state) = open.pop() {
        if !known.insert(state.clone()) {
            continue;
        }
        wrong.extend(state.wrong());
        let passed = (0..PASSERS).flat_map(|at| [state.pass(at, without), state.see_one(at)]);
        let next: Vec<State> = passed.chain([state.close(without)]).flatten().collect();
        if next.is_empty() && state.closing != Closing::Done {
            wrong.insert(Wrong::NeverWoken);
        }
        open.extend(next);
    }
    (wrong, known.len())
}

#[test]
fn in_every_order_nobody_is_inside_a_closed_gate_and_whoever_waits_is_woken() {
    let (wrong, states) = explored(Without::Nothing);
    assert_eq!(wrong, BTreeSet::new());
    assert!(states > 1000, "all of {states} orders were looked at");
}

#[test]
fn each_step_of_the_gate_is_needed() {
    assert!(explored(Without::Barrier).0.contains(&Wrong::Met));
    assert!(explored(Without::FirstLook).0.contains(&Wrong::Met));
    for without in [Without::SecondLook, Without::Entering] {
        assert_eq!(explored(without).0, BTreeSet::from([Wrong::NeverWoken]), "{without:?}");
    }
}
