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
//! | [`following`] | what it has of the program's, and the difference |
//! | [`switch`] | the program goes on with it |
//!
//! The program never waits for the spare: its thread looks every [`EVERY`] at what is kept, and at once when it is woken. What
//! has a graph, a setting or a variable's contents is put there when the program goes on with the copy, since only then
//! they are what they will be.
//!
//! The copy's stacks are small while it stands by, and set again at the switch, which takes a part of its time;
//! `MPS_SHIM_SPARE_STACK=full` gives it the program's from the start, for twice the memory.
//!
//! Not there: a switch within a millisecond (most of its time is in the step "objects", whatever the stacks are);
//! which kernels need the limit at all (those with recursion or calls by address) is not looked for, so that a
//! switch sets it always; freed memory is let go at the next look and not at once; a thousand switches of one process were
//! not tried.
//!
//! Without a ready one the recovery is as without the setting, and says so. When memory is short the spare is given up
//! first. A forked child has nothing of it.
#![expect(unsafe_code, reason = "asks what to do at the end of the process")]

mod following;
mod making;
mod switch;

use std::{
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use super::{is_armed, memory::Memory, objects::Objects, refusal::Refusal, steps};
use crate::{
    cuda::{belongings, library, second::Chosen},
    daemon::spare::{self, Grant},
    kept,
    process::{glibc, log, panics::unpanicked, settings},
};
use making::Spare;
pub(super) use switch::Switched;

/// Between two looks at what is kept.
const EVERY: Duration = Duration::from_millis(20);
/// After a failure, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long whoever recovers waits for the spare's thread to come out of what it does.
const PATIENCE: Duration = Duration::from_secs(15);
/// The same for one whose memory is short, and at the end of the process.
const LESS_PATIENCE: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_micros(50);

/// The spare copy, if one stands. Whoever works on it has this.
static WORK: Mutex<Work> = Mutex::new(Work { spare: None, next: None, pause: FIRST_PAUSE, told: String::new() });
/// How many want the thread to leave the copy alone.
static STOPPED: AtomicU64 = AtomicU64::new(0);
static THREAD: OnceLock<Thread> = OnceLock::new();
/// Of the grant whose copy lives and of which the daemon was not told yet, 0 for none.
static LIVES: AtomicU64 = AtomicU64::new(0);
/// The same of one that was of no use.
static GONE: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
struct Work {
    spare: Option<Spare>,
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

/// For a recovery. `None` where nobody asks for a spare.
pub(super) fn hold() -> Result<Option<Held>, Refusal> {
    if !settings::is_with_spare() {
        return Ok(None);
    }
    held(PATIENCE).map(Some).ok_or(Refusal::SpareBusy)
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
        GONE.store(spare.grant.token, Ordering::Release);
        spare.discard();
    }
}

/// Has a spare made as soon as the program has a context.
pub(super) fn begin() {
    if !settings::is_with_spare() {
        return;
    }
    // After the driver's own, so before them.
    // SAFETY: the handler is a function of ours in a library that is never unloaded.
    let _comes_out = unsafe { libc::atexit(at_exit) };
    let has_begun = glibc::detached_thread(Box::new(|| {
        let _ended = unpanicked(stand_by);
    }));
    if !has_begun {
        log::complain(format_args!("no spare copy of the driver: no thread"));
    }
}

extern "C" fn at_exit() {
    // A forked child has no such thread.
    if is_armed() {
        std::mem::forget(held(LESS_PATIENCE));
    }
}

fn stand_by() {
    let _as_long_as_it_takes = belongings::Ours::begin();
    let _mine = THREAD.set(thread::current());
    let mut seen = (0, 0);
    loop {
        thread::park_timeout(EVERY);
        let lives = LIVES.swap(0, Ordering::AcqRel);
        if lives != 0 {
            tell(spare::lives, Grant { token: lives });
        }
        let lost = GONE.swap(0, Ordering::AcqRel);
        if lost != 0 {
            gone(Grant { token: lost });
        }
        if is_armed() && !is_stopped() {
            turn(&mut seen);
        }
    }
}

/// Says something to the daemon, if the grant is one of it.
fn tell(say: impl FnOnce(Grant), grant: Grant) {
    if !is_for_a_test() {
        say(grant);
    }
}

fn gone(grant: Grant) {
    tell(spare::gone, grant);
}

/// Whether a test says where the copy stands, with a daemon that knows no spares.
fn is_for_a_test() -> bool {
    cfg!(debug_assertions) && settings::variable(c"MPS_SHIM_TEST_SPARE").is_some()
}

fn work() -> MutexGuard<'static, Work> {
    WORK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a spare, or has the one that stands follow the program. `seen` are the changes of recipes, and in which copy, that
/// it has followed.
fn turn(seen: &mut (u64, u64)) {
    let stands = work().spare.is_some();
    if stands { follow(seen) } else { make(seen) }
}

fn has_context() -> bool {
    kept::objects(|objects| objects.contexts.retained().any(|(_, of)| of.count > 0)).unwrap_or(false)
}

fn make(seen: &mut (u64, u64)) {
    let (_, may_recover) = steps::settled();
    if work().next.is_some_and(|next| Instant::now() < next) || !may_recover || !has_context() {
        return;
    }
    let grant = if is_for_a_test() { Some(Grant { token: 1 }) } else { spare::ask() };
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
            *seen = (0, 0);
            drop(work);
            if settings::lines_wanted() {
                log::complain(format_args!("a spare copy of the driver stands"));
            }
            tell(|grant| spare::stands(grant, true, 0), grant);
        }
        Err(making::NotMade::Stopped) => {
            drop(work);
            gone(grant);
        }
        Err(why) => {
            work.failed(&why.to_string());
            drop(work);
            gone(grant);
        }
    }
}

fn follow(seen: &mut (u64, u64)) {
    let mut work = work();
    let Some(spare) = &mut work.spare else { return };
    let grant = spare.grant;
    let changes = (kept::recipes(|recipes| recipes.changes()).unwrap_or(0), library::generation() + 1);
    let done = if spare::is_void(grant) {
        Err("its server is of no use any more".to_owned())
    } else if spare.generation != library::generation() {
        Err("it stands beside a copy that is dead".to_owned())
    } else if let (Some(memory), _) = Memory::survey() {
        let _chosen = Chosen::begin();
        let objects = (*seen != changes).then(Objects::of_recipes);
        let done = spare.follow(&memory, objects.as_ref());
        done.map_err(|failed| format!("{} answers {}", failed.call, failed.answer.0))
    } else {
        Ok(0)
    };
    match done {
        Ok(_) => *seen = changes,
        Err(why) => {
            let spare = work.spare.take();
            // The next one may be made at once: what has changed is no failure of the making.
            work.pause = FIRST_PAUSE;
            if let Some(spare) = spare {
                spare.discard();
            }
            work.failed(&why);
            drop(work);
            gone(grant);
        }
    }
}
