//! Variables of modules, read while nothing runs, so that whoever is idle goes on without noticing a neighbour's fault.
//!
//! [`still`](crate::kept::objects::still) says why that is enough. They are read by [`look`]:
//!
//! - by a thread of ours, when no stream has been given any work for a while ([`watch`]);
//! - when the program says itself that it is at rest, by `mps_shim_rest`.
//!
//! A look is an ordinary call: it passes the gate and waits for nobody. It uses a stream of its own, which waits for no
//! other, and breaks nobody's capture. Modules, libraries and contexts that the program ends meanwhile wait for it
//! ([`reading`]). If any work was given meanwhile it has seen nothing. What the program has not
//! waited for may be done all the same: streams are asked, with the gate closed, since a question to a stream whose
//! capture has just begun would break it.
#![expect(unsafe_code, reason = "calls the driver, and a C function that is exported")]

mod copies;

pub(super) use copies::find;

use std::{
    ffi::c_int,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use copies::Read;

use super::{is_armed, steps};
use crate::{
    cuda::{
        arguments::Subject,
        belongings,
        functions::Effect,
        gate, library, names, threads,
        types::{CUcontext, CUstream},
    },
    kept::{
        self,
        code::{reading, still::Wanted},
        work::progress,
    },
    process::{glibc, log, panics::unpanicked, settings},
};

/// How long no stream must have been given work before variables are read.
const QUIET: Duration = Duration::from_millis(100);
/// Between two looks at how much work there has been, and the longest time between two tries.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);
/// How many times as long as a look takes nobody looks again, and the longest time for that.
const SHARE: u32 = 10;
const LONGEST_SHARE: Duration = Duration::from_millis(500);
/// How long a look waits for an exchange of the driver, and how long one for threads to come out of it.
const PATIENCE: Duration = Duration::from_secs(5);
const MOMENT: Duration = Duration::from_millis(1);
/// How long the process's end waits for a look.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: u32 = 2;

/// Held by whoever looks. Whether nobody may any more, since the process ends.
static LOOKING: Mutex<bool> = Mutex::new(false);
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

fn looking() -> MutexGuard<'static, bool> {
    LOOKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why variables were not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hindrance {
    /// The thread is in a call of the driver's.
    Inside,
    /// An exchange of the driver is under way.
    Exchange,
    /// Work is under way, was given meanwhile, or is being captured.
    Work,
    /// A module, a library or a context ends, or was made or ended meanwhile.
    Ending,
    /// The driver has refused a call.
    Driver,
    /// The process ends, or cannot be recovered.
    End,
}

impl fmt::Display for Hindrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inside => "the thread is in a call of the driver's",
            Self::Exchange => "the driver is being exchanged",
            Self::Work => "the program has work that is not known to be done",
            Self::Ending => "modules or contexts change",
            Self::Driver => "the driver has refused",
            Self::End => "the process ends",
        })
    }
}

/// Reads variables, if nothing runs and nothing begins meanwhile. Whether a neighbour's fault would go unnoticed from now
/// on, until the next piece of work.
fn look() -> Result<bool, Hindrance> {
    let begun = Instant::now();
    threads::here(|here| {
        if here.passer.is_inside() {
            return Err(Hindrance::Inside);
        }
        let _pass = gate::enter(&here.passer, PATIENCE).ok_or(Hindrance::Exchange)?;
        here.arrive(library::generation());
        let given = progress::given();
        let is_at_rest =
            || progress::busy() == 0 && progress::given() == given && !kept::is_capturing().unwrap_or(true);
        let survey = || {
            let contexts = kept::objects(|objects| {
                objects.contexts.retained().filter(|(_, of)| of.count > 0).map(|(_, of)| of.context).collect::<Vec<_>>()
            });
            let found = kept::recipes(|recipes| {
                let known = recipes.still(given).filter(|_| !recipes.is_changed()).map(|still| still.is_whole());
                (known, if known.is_some() { Vec::new() } else { recipes.in_order() }, recipes.changes())
            });
            Some((contexts.ok()?, found.ok()?))
        };
        if !is_at_rest() {
            return Err(Hindrance::Work);
        }
        // What is found from here on is there until it is read.
        let _all_stays = reading::nothing_ends().ok_or(Hindrance::Ending)?;
        let (contexts, (known, recipes, changes)) = survey().ok_or(Hindrance::Inside)?;
        // Nothing was given, made or ended since the last look.
        if let Some(is_whole) = known {
            return Ok(is_whole);
        }
        let wanted = Wanted::of(&recipes, &contexts);
        drop(recipes);
        let mut mode = RELAXED;
        let _not_of_this_release = driver!(stream::cuThreadExchangeStreamCaptureMode(&raw mut mode));
        let read = copies::read(&wanted);
        let _not_of_this_release = driver!(stream::cuThreadExchangeStreamCaptureMode(&raw mut mode));
        let Read { variables, missing } = read.ok_or(Hindrance::Driver)?;
        if !is_at_rest() {
            return Err(Hindrance::Work);
        }
        let bytes: usize = variables.iter().map(|(_, bytes)| bytes.len()).sum();
        let count = variables.len();
        let still = wanted.read(given, variables, missing);
        let missing = still.missing().len();
        let is_whole = still.is_whole();
        if !kept::recipes(|recipes| recipes.is_still(still, changes)).unwrap_or(false) {
            return Err(Hindrance::Ending);
        }
        if settings::lines_wanted() {
            let taken = begun.elapsed().as_millis();
            log::complain(format_args!(
                "at rest: {count} variables of {bytes} bytes were read in {taken} ms, {missing} modules not"
            ));
        }
        Ok(is_whole)
    })
}

/// Asks streams with work that nobody has waited for whether it is done.
fn ask_streams() {
    if progress::busy() > 0 {
        steps::while_closed(MOMENT, ask_busy_streams);
    }
}

/// The same while the gate is closed and nobody is inside.
pub(super) fn ask_busy_streams() {
    if kept::is_capturing().unwrap_or(true) {
        return;
    }
    for (stream, context) in progress::busy_streams() {
        let current = CUcontext(names::current_of(context));
        if !driver!(context::cuCtxPushCurrent_v2(current)).is_success() {
            return;
        }
        let subject = Subject { stream: Some(stream), ..Subject::default() };
        let call = progress::begin(Effect::FinishesStream, &subject, false, context, 0);
        call.end(driver!(stream::cuStreamQuery(CUstream(names::current_of(stream)))), false);
        let mut popped = CUcontext(0);
        let _nothing_to_do = driver!(context::cuCtxPopCurrent_v2(&raw mut popped));
    }
}

/// The same, where streams have been asked before.
fn rest() -> Result<bool, Hindrance> {
    let is_over = looking();
    if *is_over || !is_armed() {
        return Err(Hindrance::End);
    }
    ask_streams();
    look()
}

/// From now on variables are read whenever the program has given no work for a while.
pub(super) fn watch() {
    if IS_WATCHED.swap(true, Ordering::SeqCst) {
        return;
    }
    // After the driver's own, so before them.
    // SAFETY: the handler is a function of ours in a library that is never unloaded.
    let _read_to_the_end = unsafe { libc::atexit(at_exit) };
    // Without the thread the program is told more often.
    let _is_watched = glibc::detached_thread(Box::new(|| {
        let _ended = unpanicked(look_again_and_again);
    }));
}

extern "C" fn at_exit() {
    // A forked child has no such thread.
    if !is_armed() {
        return;
    }
    let deadline = Instant::now() + LAST_PATIENCE;
    while Instant::now() < deadline {
        match LOOKING.try_lock() {
            Ok(mut is_over) => {
                *is_over = true;
                return;
            }
            Err(TryLockError::Poisoned(_)) => return,
            Err(TryLockError::WouldBlock) => thread::park_timeout(MOMENT),
        }
    }
}

fn look_again_and_again() {
    let _as_long_as_it_takes = belongings::Ours::begin();
    let seen = || (progress::given(), library::generation());
    let (mut last, mut since) = (seen(), Instant::now());
    let (mut pause, mut looked_at) = (BETWEEN_LOOKS, None);
    while is_armed() && !*looking() {
        thread::park_timeout(pause);
        let now = seen();
        let changes = kept::recipes(|recipes| recipes.changes()).unwrap_or(0);
        if now != last {
            // Whoever has just been recovered may have a call to make again.
            (last, since, pause) = (now, Instant::now(), BETWEEN_LOOKS);
        } else if looked_at != Some((now, changes)) && since.elapsed() >= QUIET {
            let begun = Instant::now();
            let found = rest();
            let is_done = found == Ok(true);
            if let Err(why) = found
                && settings::lines_wanted()
            {
                log::complain(format_args!("variables not read: {why} ({} ms)", begun.elapsed().as_millis()));
            }
            // One that has done nothing is tried again, ever later.
            looked_at = is_done.then_some((now, changes));
            let longest = if is_done { BETWEEN_LOOKS } else { (pause * 2).min(LONGEST) };
            pause = longest.max(begun.elapsed().saturating_mul(SHARE).min(LONGEST_SHARE));
        }
    }
    // What the driver has of this thread must not be ended beside the process's own end.
    loop {
        thread::park();
    }
}

/// Takes note of all that a neighbour's fault would take from this program. Returns 1 if such a fault would go unnoticed
/// until the next piece of work, 0 if it would be told.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, expect(dead_code, reason = "called from outside"))]
extern "C" fn mps_shim_rest() -> c_int {
    c_int::from(is_armed() && unpanicked(rest) == Some(Ok(true)))
}
