//! `MPS_SHIM_REPLAY=spare`: a second copy of the driver stands by in the process, on a server of its own, with the same
//! memory at the same addresses, so that a program whose copy has died goes on with it at once.
//!
//! ```text
//!  program ─────────────► the copy that lives ═════ its server
//!     what is kept                                                     the switch: what is missing is made,
//!        │ looked at                                                   the two change places, the gate opens,
//!        ▼                                                             the dead one is cut off and given back
//!  the spare's thread ──► the spare copy     ═════ the standby server
//! ```
//! | file | |
//! |---|---|
//! | [`making`] | the copy, from its file to its objects |
//! | [`looks`] | when it follows the program |
//! | [`following`] | what it has of the program's, and the difference |
//! | [`settled`] | what was set on that, and graphs |
//! | [`contents`] | what variables contain |
//! | [`switch`] | the program goes on with it |
//! | [`told`] | what the daemon is told of it, and the report |
//!
//! The program never waits for the spare: its thread looks every [`EVERY`] at what is kept, and at once when it is woken.
//! Settings, graphs and what variables contain follow when they have been the same at two looks. So with a copy that is
//! level a switch makes a number of calls that does not depend on how much the program has.
//!
//! Calls are made for it while work of the program's is seen to be done, and else seldom: where the GPU stands
//! still behind somebody's illegal access, the program changes nothing any more, and a call that began then would be waited
//! for by the switch.
//!
//! The copy's stacks are as large as the program's kernels need ([`stacks`](crate::kept::code::stacks)), which is half of
//! what the copy would take; `MPS_SHIM_SPARE_STACK=full` gives it the program's from the start.
//!
//! Not there: freed memory is let go at the next look and not at once.
//!
//! Without a ready one the recovery is as without the setting, and says so. When memory is short the spare is given up
//! first. A forked child has nothing of it.
#![expect(unsafe_code, reason = "asks what to do at the end of the process")]

mod contents;
mod following;
mod looks;
mod making;
mod settled;
mod switch;
mod told;

use std::{
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use super::{is_armed, refusal::Refusal, steps};
use crate::{
    cuda::{belongings, library, resources},
    daemon::{
        news::SpareServer,
        spare::{self, Grant},
    },
    kept,
    process::{failpoint::reached, glibc, log, panics::unpanicked, settings},
};
use looks::{Followed, follow};
use making::Spare;
pub(crate) use told::report;

/// Between two looks at what is kept.
const EVERY: Duration = Duration::from_millis(20);
/// After a failure, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long whoever recovers waits for the spare's thread to come out of what it does.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// The same for one whose memory is short, and at the end of the process.
const LESS_PATIENCE: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_micros(50);

/// The spare copy, if one stands. Whoever works on it has this.
static WORK: Mutex<Work> =
    Mutex::new(Work { spare: None, left: None, next: None, pause: FIRST_PAUSE, told: String::new() });
/// How many want the thread to leave the copy alone.
static STOPPED: AtomicU64 = AtomicU64::new(0);
static THREAD: OnceLock<Thread> = OnceLock::new();

#[derive(Debug)]
struct Work {
    spare: Option<Spare>,
    /// What was known of one that the program has gone on with. It is forgotten when the gate is open: that takes some 0.2 us
    /// for each of a program's variables, of which a Llama of Transformers has ten thousands (an H200's host).
    left: Option<Spare>,
    /// Not before.
    next: Option<Instant>,
    pause: Duration,
    /// What was said last of why there is none.
    told: String,
}

impl Work {
    /// There is none, and will be none for a while.
    fn failed(&mut self, why: &str) {
        if self.told != why {
            log::complain(format_args!("no spare copy of the driver: {why}"));
            why.clone_into(&mut self.told);
        }
        self.next = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether somebody needs the thread to come out.
fn is_stopped() -> bool {
    STOPPED.load(Ordering::Acquire) > 0
}

/// As long as this lasts nothing is begun for a spare.
#[derive(Debug)]
struct Stop;

impl Stop {
    fn begin() -> Self {
        STOPPED.fetch_add(1, Ordering::AcqRel);
        Self
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        STOPPED.fetch_sub(1, Ordering::AcqRel);
        wake();
    }
}

fn wake() {
    if let Some(thread) = THREAD.get() {
        thread.unpark();
    }
}

/// Whoever recovers has the spare to himself.
#[derive(Debug)]
pub(super) struct Held {
    work: MutexGuard<'static, Work>,
    _stop: Stop,
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.work.left.take());
    }
}

/// The spare to oneself within a time; `None` if its thread does not come out.
fn held(patience: Duration) -> Option<Held> {
    let stop = Stop::begin();
    let deadline = Instant::now() + patience;
    loop {
        match WORK.try_lock() {
            Ok(work) => return Some(Held { work, _stop: stop }),
            Err(TryLockError::Poisoned(poisoned)) => return Some(Held { work: poisoned.into_inner(), _stop: stop }),
            Err(TryLockError::WouldBlock) if Instant::now() > deadline => return None,
            Err(TryLockError::WouldBlock) => thread::park_timeout(MOMENT),
        }
    }
}

/// For a recovery, within this time. `None` where nobody asks for a spare.
pub(super) fn hold(patience: Duration) -> Result<Option<Held>, Refusal> {
    if !settings::is_with_spare() {
        return Ok(None);
    }
    held(patience).map(Some).ok_or(Refusal::SpareBusy)
}

/// Whether one stands that the program could go on with, and nobody is at work on it.
pub(super) fn is_ready() -> bool {
    let Ok(work) = WORK.try_lock() else { return false };
    work.spare.as_ref().is_some_and(|spare| spare.generation == library::generation() && !spare::is_void(spare.grant))
}

/// The spare is given up, since memory is short, and none is begun for a while.
pub(crate) fn give_way() {
    if !settings::is_with_spare() || !is_armed() {
        return;
    }
    let Some(mut held) = held(LESS_PATIENCE) else { return };
    held.work.pause = LONGEST_PAUSE;
    held.work.failed("memory is short");
    if let Some(spare) = held.work.spare.take() {
        told::goes(spare.grant.token);
        spare.discard();
    }
}

/// Has a spare made as soon as the program has a context.
pub(super) fn begin() {
    if !settings::is_with_spare() {
        return;
    }
    // Of copies' own ends some come before and some behind that.
    // SAFETY: the handler is a function of ours in a library that is never unloaded.
    let _comes_out = unsafe { libc::atexit(at_exit) };
    resources::before_the_end(comes_out);
    let has_begun = glibc::detached_thread(Box::new(|| {
        let _ended = unpanicked(stand_by);
    }));
    if !has_begun {
        log::complain(format_args!("no spare copy of the driver: no thread"));
    }
}

extern "C" fn at_exit() {
    let _ends_with_it_inside = comes_out();
}

/// Keeps the spare's thread out of the driver for good; whether it came out in time.
fn comes_out() -> bool {
    static IS_OUT: OnceLock<bool> = OnceLock::new();
    // A forked child has no such thread.
    *IS_OUT.get_or_init(|| !is_armed() || held(LESS_PATIENCE).map(std::mem::forget).is_some())
}

fn stand_by() {
    let _as_long_as_it_takes = belongings::Ours::begin();
    let _mine = THREAD.set(thread::current());
    let mut followed = Followed::default();
    loop {
        thread::park_timeout(EVERY);
        told::what_is_left();
        if is_armed() && !is_stopped() {
            turn(&mut followed);
        }
    }
}

/// Whether a test says where the copy stands, with a daemon that knows no spares.
fn is_for_a_test() -> bool {
    cfg!(debug_assertions) && settings::variable(c"MPS_SHIM_TEST_SPARE").is_some()
}

fn work() -> MutexGuard<'static, Work> {
    WORK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a spare, or has the one that stands follow the program.
fn turn(followed: &mut Followed) {
    let stands = work().spare.is_some();
    if stands { follow(followed) } else { make(followed) }
}

fn has_context() -> bool {
    kept::objects(|objects| objects.contexts.retained().any(|(_, of)| of.count > 0)).unwrap_or(false)
}

fn make(followed: &mut Followed) {
    let (_, may_recover) = steps::settled();
    if work().next.is_some_and(|next| Instant::now() < next) || !may_recover || !has_context() {
        return;
    }
    let grant =
        if is_for_a_test() { Some(Grant { token: 1, server: SpareServer::AnotherDaemons }) } else { spare::ask() };
    let mut work = work();
    let Some(grant) = grant else {
        work.failed("the daemon gives no server for it");
        return;
    };
    let made = if is_stopped() { Err(making::NotMade::Stopped) } else { Spare::make(grant) };
    match made {
        Ok(spare) => {
            work.pause = FIRST_PAUSE;
            work.told.clear();
            work.spare = Some(spare);
            reached("spare-stands");
            *followed = Followed::default();
            drop(work);
            if settings::lines_wanted() {
                log::complain(format_args!("a spare copy of the driver stands"));
            }
            told::stands(grant.token);
        }
        Err(making::NotMade::Stopped) => {
            drop(work);
            told::gone(grant.token);
        }
        Err(why) => {
            work.failed(&why.to_string());
            drop(work);
            told::gone(grant.token);
        }
    }
}
