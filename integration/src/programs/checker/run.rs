//! Both runs of a program: its threads, one operation after the other, first undisturbed and then with its faults.
//!
//! The threads take turns in the order of the list, so that the same calls are made in the same order in both runs; what
//! is concurrent is what the program has given to its streams. They are new in each run: all but one begin with it, and
//! some come to the driver only after a recovery; one is begun in the middle, by another one of them as a program's would
//! be, and may end there.

use super::base::Base;
use super::fate::{Fate, Neighbours};
use super::machine::{Machine, Used};
use super::plan::Plan;
use super::program::{LATE, Program, THREADS, What};
use super::steps;
use super::wrong::{Differing, Wrong};
use crate::programs::crash;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

/// Steps that have been done: who looks sees whether the process stands still.
pub(super) static HEARTBEAT: AtomicU64 = AtomicU64::new(0);

/// What came of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Outcome {
    /// Operations of the disturbed run.
    pub(super) operations: usize,
    /// Values that were compared.
    pub(super) values: usize,
    pub(super) recoveries: usize,
    /// Of these, those that lost nothing.
    pub(super) clean: usize,
    /// Of these, those by a spare copy of the driver.
    pub(super) by_spare: usize,
    /// Errors that its threads were told.
    pub(super) errors: u32,
}

impl Outcome {
    /// And what came of another one.
    pub(super) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.values += other.values;
        self.recoveries += other.recoveries;
        self.clean += other.clean;
        self.by_spare += other.by_spare;
        self.errors += other.errors;
    }
}

/// A mistake, and at which operation it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) at: usize,
    pub(super) wrong: Wrong,
    /// All that it has read otherwise than the undisturbed run.
    pub(super) differing: Vec<Differing>,
}

/// Runs a program twice. Its server may be others' too, whose neighbours are its own then.
pub(super) fn check(
    base: &Base,
    program: &Program,
    (neighbours, is_shared): (&Neighbours, bool),
) -> Result<Outcome, Found> {
    let plan = Plan::new(program, base.devices());
    let before = |at| move |failed| Found { at, wrong: Wrong::Undisturbed(failed), differing: Vec::new() };
    base.settle().map_err(before(0))?;
    base.begin();
    let reference = run(Machine::new(base, program, &plan, None, None, (false, is_shared)))?;
    base.settle().map_err(before(program.ops.len()))?;
    base.begin();
    let mut fate = Fate::new(neighbours.clone());
    let hurt = program
        .ops
        .iter()
        .filter_map(|op| if let What::Neighbour { device, .. } = op.what { Some(device) } else { None });
    let hurt: Vec<u8> = hurt.filter(|device| *device < base.devices()).collect();
    (0..base.devices()).filter(|device| hurt.contains(device)).for_each(|device| fate.prepare(base, device));
    let is_sudden = matches!(neighbours, Neighbours::Program(_));
    if program.ops.iter().any(|op| op.what.is_fault()) {
        steps::wait().map_err(before(program.ops.len()))?;
    }
    let machine = Machine::new(base, program, &plan, Some(&reference.used), Some(&mut fate), (is_sudden, is_shared));
    let disturbed = run(machine)?;
    if disturbed.outcome.recoveries > 0 {
        base.settle_for_good().map_err(before(program.ops.len()))?;
    }
    Ok(disturbed.outcome)
}

/// One run's results.
struct Ran {
    used: Vec<Used>,
    outcome: Outcome,
}

/// Operations in pieces of one thread each.
fn turns(program: &Program) -> Vec<(u8, Range<usize>)> {
    let mut turns: Vec<(u8, Range<usize>)> = Vec::new();
    for (at, op) in program.ops.iter().enumerate().take(Program::MOST).filter(|(_, op)| op.thread < THREADS) {
        match turns.last_mut().filter(|(thread, range)| *thread == op.thread && range.end == at) {
            Some((_, range)) => range.end = at + 1,
            None => turns.push((op.thread, at..at + 1)),
        }
    }
    turns
}

/// What a thread does next.
enum Turn {
    /// These operations.
    Operations(Range<usize>),
    /// It begins the late thread, which has these turns.
    Begin(Receiver<Turn>),
}

/// What all threads of a run work on: the machine, and a mistake that was seen.
type Shared<'a> = Mutex<(Machine<'a>, Option<Found>)>;

/// The kernel's number of the late thread, once it has begun.
static LATE_NUMBER: AtomicI32 = AtomicI32::new(0);

#[expect(unsafe_code, reason = "gettid has no safe wrapper")]
fn own_number() -> i32 {
    // SAFETY: asks for this thread's number.
    unsafe { libc::gettid() }
}

/// How long a thread may take to its end, and the time between two looks.
const LATEST_END: Duration = Duration::from_secs(30);
const BETWEEN_LOOKS: Duration = Duration::from_micros(200);

/// Waits until the kernel has no such thread any more: all is done by then that is done at its end.
fn await_end(number: i32) {
    let place = PathBuf::from(format!("/proc/self/task/{number}"));
    let deadline = Instant::now() + LATEST_END;
    while place.exists() && Instant::now() < deadline {
        thread::park_timeout(BETWEEN_LOOKS);
    }
}

/// A thread of a run: takes its turns, and says after each whether the run is over.
fn take_turns<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared<'_>,
    (turns_of, turns): (u8, Receiver<Turn>),
    finished: &Sender<bool>,
) {
    for turn in turns {
        let is_over = match turn {
            Turn::Begin(turns) => {
                let finished = finished.clone();
                scope.spawn(move || take_turns(scope, shared, (LATE, turns), &finished));
                false
            }
            Turn::Operations(range) => {
                if turns_of == LATE {
                    LATE_NUMBER.store(own_number(), Ordering::SeqCst);
                }
                let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let (machine, found) = &mut *shared;
                for at in range {
                    HEARTBEAT.fetch_add(1, Ordering::Relaxed);
                    crash::operation(at);
                    let wrong = machine.step(at).err();
                    *found = wrong.map(|wrong| Found { at, wrong, differing: std::mem::take(&mut machine.differing) });
                    if found.is_some() {
                        break;
                    }
                }
                found.is_some()
            }
        };
        if finished.send(is_over).is_err() {
            return;
        }
    }
}

fn run(machine: Machine<'_>) -> Result<Ran, Found> {
    crash::part(if machine.expected.is_some() { crash::Part::Disturbed } else { crash::Part::Undisturbed });
    let turns = turns(machine.program);
    let parent = machine.program.birth().map(|(_, parent)| parent);
    let leaving = machine.program.ops.iter().position(|op| op.thread == LATE && op.what == What::Leave);
    let shared = Mutex::new((machine, None::<Found>));
    thread::scope(|scope| {
        let mut threads: [Option<Sender<Turn>>; THREADS as usize] = [const { None }; THREADS as usize];
        let (finished, is_finished) = channel();
        // A thread that has ended has panicked, and the scope passes that on.
        let has_taken = |thread: &Sender<Turn>, turn| thread.send(turn).is_ok() && is_finished.recv() == Ok(false);
        let leaves = |range: &Range<usize>| range.clone().any(|at| leaving == Some(at));
        let early = (0..LATE).map(|thread| (thread, 0..0));
        for (thread, range) in early.chain(turns) {
            if threads[usize::from(thread)].is_none() {
                let (give, take) = channel();
                threads[usize::from(thread)] = Some(give);
                match parent.filter(|_| thread == LATE).and_then(|parent| threads[usize::from(parent)].as_ref()) {
                    Some(parent) => drop(has_taken(parent, Turn::Begin(take))),
                    None => {
                        let (finished, shared) = (finished.clone(), &shared);
                        scope.spawn(move || take_turns(scope, shared, (thread, take), &finished));
                    }
                }
            }
            let (is_leaving, place) = (leaves(&range), usize::from(thread));
            if !threads[place].as_ref().is_some_and(|thread| has_taken(thread, Turn::Operations(range))) {
                break;
            }
            if is_leaving {
                threads[place] = None;
                await_end(LATE_NUMBER.load(Ordering::SeqCst));
            }
        }
    });
    let (mut machine, found) = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    crash::part(crash::Part::Tidying);
    machine.tidy_up();
    if let Some(found) = found {
        return Err(found);
    }
    let recoveries = &machine.judge.recoveries;
    let outcome = Outcome {
        operations: machine.done,
        values: machine.used.len(),
        recoveries: recoveries.len(),
        clean: recoveries.iter().filter(|recovered| !recovered.is_lossy()).count(),
        by_spare: machine.judge.by_spare,
        errors: machine.judge.errors,
    };
    Ok(Ran { used: machine.used, outcome })
}
