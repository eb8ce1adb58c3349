//! Dead copies of the driver: each is cut off, where that was not done yet, and gives back what it had.
//!
//! A thread that ends does both, beside the program, and makes the file of the next copy. Giving back is whole
//! ([`resources`](super::resources)): a process recovers as often as it must. A copy with a thread that does not wait yet, as
//! on a slow machine, is tried again some more times in the background, and after each later one ([`line`]). It stays if that
//! never helps, or if the program has an address in it ([`copies::is_shown`]): a function that is not hooked, a private table.
//! One that has made something by private functions, with which the program goes on ([`Ask`]), is tried as often.
//! The first one stays in any case.
//!
//! Another recovery waits until the last dead copy is cut off, and comes before what is given back.
#![expect(unsafe_code, reason = "unloads a library and blocks a thread's signals")]

mod line;

use std::{
    fmt,
    mem::MaybeUninit,
    ptr,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use line::Line;

use super::{
    copies::{self, Copy},
    functions::lookup::cuInit,
    library,
    resources::Known,
};
use crate::process::{failpoint::fails, glibc, imports, log, settings, silent::Place};

/// The first copy stays loaded when it is closed, and does something at the end of the process that it has asked for
/// before it could be led (seen with 580.159.04): it stays as it is, cut off.
const LAST_TO_STAY: u64 = 1;

/// What the program knew by its address at the last recovery: what comes since is of the copy that lives, and what is no
/// more by then may be found again.
static KNOWN: Mutex<Known> = Mutex::new(Vec::new());
/// A dead copy is cut off or given back as long as somebody has it.
static GIVING_BACK: Mutex<()> = Mutex::new(());
/// How many wait for that: nothing is given back then that was not begun.
static WANTED: AtomicUsize = AtomicUsize::new(0);
/// How many dead copies are not cut off yet.
static UNCUT: Mutex<usize> = Mutex::new(0);
static CUT: Condvar = Condvar::new();
/// Dead copies with a thread that has not ended.
static NOT_ENDED: Mutex<Line<Dead>> = Mutex::new(Line::new());
static HAS_COME: Condvar = Condvar::new();
/// How long the threads of one are asked, at first and at most, where no recovery waits for that.
const ASKING: Duration = Duration::from_millis(500);
const LONGEST_ASKING: Duration = Duration::from_secs(4);
/// Between two looks whether a recovery still waits.
const GIVING_WAY: Duration = Duration::from_millis(5);
/// Somebody tries again in the background.
static IS_TRYING: AtomicBool = AtomicBool::new(false);

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As long as this lives a dead copy is still to be cut off.
#[derive(Debug)]
pub(crate) struct Uncut(());

impl Uncut {
    /// One has died.
    pub(crate) fn begin() -> Self {
        *locked(&UNCUT) += 1;
        Self(())
    }
}

impl Drop for Uncut {
    fn drop(&mut self) {
        *locked(&UNCUT) -= 1;
        CUT.notify_all();
    }
}

/// Waits until every dead copy is cut off; whether that was so in time.
pub(crate) fn are_cut_off(patience: Duration) -> bool {
    let waited = CUT.wait_timeout_while(locked(&UNCUT), patience, |uncut| *uncut > 0);
    *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
}

/// What cuts a dead copy off, and says which descriptors are there still.
type Amputate = Box<dyn FnOnce() -> Vec<Place> + Send>;

/// What is to be done with a dead copy.
struct Work {
    /// `None` for one that stays, and where there is none.
    dead: Option<Dead>,
    /// Of one that is not cut off yet.
    cut: Option<(Uncut, Amputate)>,
}

impl Work {
    /// Cuts it off. A recovery may hold the lock for one that is cut off already.
    fn cut(mut self) -> Option<Dead> {
        if let Some((uncut, amputate)) = self.cut.take() {
            let _others_wait = locked(&GIVING_BACK);
            let descriptors = amputate();
            drop(uncut);
            return self.dead.map(|dead| Dead { descriptors, ..dead });
        }
        self.dead
    }
}

/// Has a file for the next copy made, if there is none.
pub(crate) fn prepare() {
    begin(Work { dead: None, cut: None });
}

/// Has what a dead copy had given back, and a file for the next copy made.
pub(crate) fn give_back(dead: Option<Dead>) {
    begin(Work { dead, cut: None });
}

/// The same for one that is not cut off yet: `amputate` does so, and says which descriptors are there still. `dead` is
/// `None` for one that stays.
pub(crate) fn bury(dead: Option<Dead>, uncut: Uncut, amputate: impl FnOnce() -> Vec<Place> + Send + 'static) {
    begin(Work { dead, cut: Some((uncut, Box::new(amputate))) });
}

/// Does this, and makes a file for the next copy, by a thread that takes none of the program's signals. Where there can
/// be no thread the copy is cut off now, and given back by the next one.
fn begin(work: Work) {
    // A thread that cannot be made would take the work along.
    let shared = Arc::new(Mutex::new(Some(work)));
    let left = Arc::clone(&shared);
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // The program's signals are for the program's threads.
    // SAFETY: the set was filled, and there is room for the other.
    let is_blocked = unsafe { libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) } == 0;
    let work = move || {
        let work = locked(&shared).take();
        if let Some(dead) = work.and_then(Work::cut) {
            dead.give_back();
        }
        // Whatever kept a thread of another one from its end may be over by now.
        locked(&NOT_ENDED).all_are_due(Instant::now());
        try_again();
        copies::make_next();
        keep_trying();
    };
    let thread = thread::Builder::new().name("mps-shim-copy".into());
    let is_begun = !fails("dead-copys-thread") && thread.spawn(work).is_ok();
    if is_blocked {
        // SAFETY: what was there before.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
    if !is_begun {
        let work = locked(&left).take();
        let dead = work.and_then(Work::cut);
        if let Some(dead) = dead {
            locked(&NOT_ENDED).gives_way(dead, 0, Instant::now());
        }
    }
}

/// Waits until the last dead copy is cut off and none is being given back, and keeps any from it.
pub(crate) fn none_is_given_back() -> MutexGuard<'static, ()> {
    WANTED.fetch_add(1, Ordering::AcqRel);
    drop(CUT.wait_while(locked(&UNCUT), |uncut| *uncut > 0));
    let guard = locked(&GIVING_BACK);
    WANTED.fetch_sub(1, Ordering::AcqRel);
    guard
}

/// Whether a dead copy is being cut off or given back now.
pub(crate) fn is_one_given_back() -> bool {
    !are_cut_off(Duration::ZERO) || matches!(GIVING_BACK.try_lock(), Err(TryLockError::WouldBlock))
}

/// Whether a recovery waits until nothing is given back.
fn is_wanted() -> bool {
    WANTED.load(Ordering::Acquire) > 0
}

/// Gives back what could not be given back before and is due, each once; nothing while a recovery waits for that.
fn try_again() {
    let now = Instant::now();
    while !is_wanted() {
        let due = locked(&NOT_ENDED).due(now);
        let Some((dead, tries)) = due else { return };
        dead.try_to_give_back(tries);
    }
}

/// The same until nothing is left, or has been tried too often. One thread does so at a time.
fn keep_trying() {
    let is_left = || locked(&NOT_ENDED).next().is_some();
    while is_left() && !IS_TRYING.swap(true, Ordering::AcqRel) {
        loop {
            let line = locked(&NOT_ENDED);
            let Some(next) = line.next() else { break };
            let pause = next.saturating_duration_since(Instant::now());
            let pause = if is_wanted() { pause.max(GIVING_WAY) } else { pause };
            // One that comes meanwhile is due sooner.
            drop(HAS_COME.wait_timeout(line, pause));
            try_again();
        }
        // Whoever comes between this and the look has gone on without.
        IS_TRYING.store(false, Ordering::Release);
    }
}

/// What must be asked before a dead copy is unloaded: whether the program uses nothing of the one of this number, which it
/// cannot use any more then; what of its heap stays as it is, or what it is needed for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) generation: u64,
    pub(crate) lets_go: fn(u64) -> Result<Known, String>,
}

/// A dead copy and what is still its own.
#[derive(Debug)]
pub(crate) struct Dead {
    copy: Copy,
    is_shown: bool,
    /// `None` for one that the program never knew.
    ask: Option<Ask>,
    /// Descriptors that nothing comes from any more.
    descriptors: Vec<Place>,
}

impl Dead {
    /// The copy that has lived until now; `None` if it is the program's own, or nobody knows what it has. `descriptors`
    /// are those that were cut off already, `known` where nothing else may be found, of this copy and of all before.
    pub(crate) fn take(descriptors: Vec<Place>, known: Known, ask: Ask) -> Option<Self> {
        *locked(&KNOWN) = known;
        let (copy, is_shown) = copies::take_leave()?;
        copy.owner?.forget_exits();
        Some(Self { copy, is_shown, ask: Some(ask), descriptors })
    }

    /// A copy that is not needed: nobody has got anything from it. Its descriptors are cut off.
    pub(crate) fn discarded(copy: Copy, descriptors: Vec<Place>) -> Self {
        if let Some(owner) = copy.owner {
            owner.forget_exits();
        }
        Self { copy, is_shown: false, ask: None, descriptors }
    }

    /// Gives it back, or leaves it for later where a recovery waits.
    fn give_back(self) {
        if is_wanted() {
            self.joins_the_line(|line, dead, now| line.gives_way(dead, 0, now));
        } else {
            self.try_to_give_back(0);
        }
    }

    /// It is tried again.
    fn joins_the_line(self, leave: impl FnOnce(&mut Line<Self>, Self, Instant)) {
        leave(&mut locked(&NOT_ENDED), self, Instant::now());
        HAS_COME.notify_all();
    }

    /// Gives it back, which was tried so often before.
    fn try_to_give_back(self, tries: u32) {
        let _others_wait = locked(&GIVING_BACK);
        let is_to_go = !self.is_shown && self.copy.number > LAST_TO_STAY;
        let Some(owner) = self.copy.owner.filter(|_| is_to_go) else { return };
        let Some(code) = library::find(self.copy.handle, cuInit::FUNCTION.name) else { return };
        let staying = match self.ask.map_or(Ok(Known::new()), |ask| (ask.lets_go)(ask.generation)) {
            Ok(staying) => staying,
            Err(why) => {
                self.stays_for_now(tries, why);
                self.joins_the_line(|line, dead, now| line.was_tried(dead, tries + 1, now));
                return;
            }
        };
        // One that goes on may touch all that the copy had.
        let patience = (ASKING * (1 << tries.min(10))).min(LONGEST_ASKING);
        if owner.end_threads(code.as_ptr(), patience, is_wanted).is_err() {
            self.stays_for_now(tries, "a thread of its own goes on");
            self.joins_the_line(|line, dead, now| {
                if is_wanted() { line.gives_way(dead, tries, now) } else { line.was_tried(dead, tries + 1, now) }
            });
            return;
        }
        self.descriptors.into_iter().for_each(Place::close);
        owner.delete_keys();
        // SAFETY: the handle is open.
        if let Some(library) = unsafe { imports::Library::of(self.copy.handle) } {
            // SAFETY: a dead copy has nothing to do any more.
            unsafe { library.end_in_silence() };
        }
        // SAFETY: nobody is in it and nobody will be: its threads have ended, the program has no address in it.
        unsafe { glibc::dlclose(self.copy.handle) };
        if library::library_of(code).is_some() {
            // It is needed by somebody, and may be called at the process's end.
            return;
        }
        // SAFETY: as above.
        unsafe { owner.release(&locked(&KNOWN), &staying) };
    }

    /// Says once why it stays.
    fn stays_for_now(&self, tries: u32, why: impl fmt::Display) {
        if tries == 0 && !is_wanted() && settings::lines_wanted() {
            log::complain(format_args!("copy {} of the driver is not given back yet: {why}", self.copy.number));
        }
    }
}
