//! The link to the daemon as the program's threads know it: they leave a word and go on, or wait with a deadline.
//!
//! ```text
//!  memory comes or goes ──wake()──► worker (a thread) ══ socket `shim` ══► daemon
//!  a question           ──ask()──►     ◄── answers; news, to whoever listens
//! ```
//! It begins with the first who needs it, and takes none of the program's signals. A forked child has none of its
//! parent's: the fork page does not know of it there, its copy of the socket is closed by the handler for forks, and the
//! daemon would not take it for its parent. It may begin one of its own.
#![expect(unsafe_code, reason = "what is shared with the worker is never freed")]

use std::{
    collections::VecDeque,
    ptr,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use remps_proto::shim::{Ask, Capabilities, Failure, Region};

use super::{
    connection::{PATIENCE, Told},
    door,
    ledger::Serial,
    worker::Worker,
};
use crate::{
    cuda::piece::Piece,
    process::{fork, glibc, panics::unpanicked, settings::succession},
};

/// The word of the fork page that belongs to the process.
const PROCESS: usize = 0;
/// The link has been started in this process.
const LINKED: u32 = 1 << 16;

static LINK: AtomicPtr<Link> = AtomicPtr::new(ptr::null_mut());
static SOURCE: OnceLock<Source> = OnceLock::new();

/// What the program has changed so far; the worker has dealt with it when [`Progress::settled`] is as large.
pub(crate) static CHANGES: AtomicU64 = AtomicU64::new(1);

/// Tells what there is: all pieces, with copies of the descriptors of so many at most that are wanted, so that none of
/// them is another file by the time it is sent. `None` where nothing is kept any more.
pub(crate) type Source = fn(is_wanted: &dyn Fn(Serial) -> bool, most: usize) -> Option<Vec<Piece>>;

/// From now on what `source` has is given into the vault, once there is a link. The first one stays.
pub(crate) fn give(source: Source) {
    let _the_same = SOURCE.set(source);
}

pub(super) fn source() -> Option<Source> {
    SOURCE.get().copied()
}

/// The link of this process, started if need be; `None` if there can't be one.
pub(crate) fn linked() -> Option<&'static Link> {
    if fork::remember(PROCESS, LINKED) & LINKED == 0 {
        if fork::recall(PROCESS) & LINKED == 0 {
            // A process that can't tell itself from its children has no link.
            return None;
        }
        start();
    }
    started()
}

/// The link of this process, if it has one.
pub(crate) fn started() -> Option<&'static Link> {
    if fork::recall(PROCESS) & LINKED == 0 {
        return None;
    }
    // SAFETY: it is either null or a box that was leaked.
    unsafe { LINK.load(Ordering::Acquire).as_ref() }
}

fn start() {
    let Some(link) = Link::new() else { return };
    let link: &'static Link = Box::leak(Box::new(link));
    if glibc::detached_thread(Box::new(move || {
        // Without it the program is as without a daemon.
        let _ended = unpanicked(|| Worker::new(link, door).work());
    })) {
        LINK.store(ptr::from_ref(link).cast_mut(), Ordering::Release);
    }
}

/// What is known of the link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) settled: u64,
    pub(crate) is_connected: bool,
    /// Whether the daemon knows commits.
    pub(crate) has_state: bool,
    pub(crate) connections: u64,
    pub(crate) kept: u64,
    pub(crate) bytes: u64,
    pub(crate) refused: u64,
    pub(crate) why: Option<Failure>,
    pub(crate) escrows: u64,
}

/// What a thread of the program's wants done.
#[derive(Debug)]
pub(super) enum Wish {
    /// A question, and what the daemon must be able to. One that needs something is for the daemon that is there now, and
    /// comes before everything else; another one waits for a daemon.
    Ask(Ask, Option<Capabilities>),
    /// The daemon has what this process has of the UVM driver, if it wants that.
    Follow,
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) wish: Wish,
    /// How long an answer may take.
    pub(super) limit: Duration,
    /// Nobody waits any longer.
    pub(super) until: Instant,
    slot: Arc<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    answers: Mutex<Option<Vec<Told>>>,
    filled: Condvar,
}

impl Job {
    /// No answers are the word for none.
    pub(super) fn answer(self, answers: Vec<Told>) {
        *locked(&self.slot.answers) = Some(answers);
        self.slot.filled.notify_all();
    }

    pub(super) fn is_urgent(&self) -> bool {
        !matches!(self.wish, Wish::Ask(_, None))
    }
}

/// What the program's threads and the worker have in common. It is never freed.
#[derive(Debug)]
pub(crate) struct Link {
    pub(super) wake: EventFd,
    pub(super) jobs: Mutex<VecDeque<Job>>,
    /// Memory that has come from the vault, and whether it is noted as kept yet.
    pub(super) adopted: Mutex<Vec<(Serial, Region, bool)>>,
    pub(super) progress: Mutex<Progress>,
    pub(super) moved: Condvar,
    /// Whether what the program has may be given to the vault: a standby's only when it is activated.
    pub(crate) may_escrow: AtomicBool,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            wake: EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).ok()?,
            jobs: Mutex::default(),
            adopted: Mutex::default(),
            progress: Mutex::default(),
            moved: Condvar::new(),
            may_escrow: AtomicBool::new(!succession::is_standby()),
        })
    }

    /// Has the worker look again.
    pub(crate) fn wake(&self) {
        // A counter that is full wakes as well.
        let _full = self.wake.write(1);
    }

    pub(crate) fn progress(&self) -> Progress {
        locked(&self.progress).clone()
    }

    /// Memory that has come from the vault is about to be noted as kept under this number.
    pub(crate) fn adopt(&self, serial: Serial, region: Region) {
        locked(&self.adopted).push((serial, region, false));
    }

    /// It is noted.
    pub(crate) fn arrived(&self, serial: Serial) {
        for (known, _, is_noted) in locked(&self.adopted).iter_mut() {
            *is_noted |= *known == serial;
        }
        self.wake();
    }

    /// Waits until the vault has what there is now; whether it has, and what is known then.
    pub(crate) fn settle(&self, limit: Duration) -> (bool, Progress) {
        let (goal, deadline) = (CHANGES.load(Ordering::Acquire), Instant::now() + limit);
        self.wake();
        let mut progress = locked(&self.progress);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let is_settled = progress.settled >= goal && progress.is_connected;
            if is_settled || left.is_zero() {
                return (is_settled, progress.clone());
            }
            progress = self.moved.wait_timeout(progress, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Asks the daemon; `None` when there was none in time, or none that answered. `limit` is what it may take itself.
    pub(crate) fn ask(&self, ask: Ask, limit: Duration) -> Option<Vec<Told>> {
        self.wish(Wish::Ask(ask, None), limit + PATIENCE)
    }

    /// Asks the daemon that is there now, before all else; `None` when there is none, or none that can do this.
    pub(crate) fn ask_now(&self, ask: Ask, needs: Capabilities, limit: Duration) -> Option<Vec<Told>> {
        self.wish(Wish::Ask(ask, Some(needs)), limit)
    }

    /// Tells the daemon that is there now, before all else, and waits for nothing.
    pub(super) fn tell(&self, ask: Ask, needs: Capabilities, limit: Duration) {
        let _unheard = self.begin(ask, needs, limit);
    }

    /// Asks like [`ask_now`](Self::ask_now), and has the answer waited for later.
    pub(super) fn begin(&self, ask: Ask, needs: Capabilities, limit: Duration) -> Asked {
        self.wanted(Wish::Ask(ask, Some(needs)), limit)
    }

    /// Gives the daemon that is there now what it wants to follow this process by.
    pub(super) fn follow(&self, limit: Duration) {
        let _is_told_of = self.wish(Wish::Follow, limit);
    }

    /// Answers the oldest question, as a daemon would.
    #[cfg(test)]
    pub(crate) fn answers(&self, answer: remps_proto::shim::Answer) {
        let job = locked(&self.jobs).pop_front().expect("something was asked");
        job.answer(vec![(answer, None)]);
    }

    fn wish(&self, wish: Wish, limit: Duration) -> Option<Vec<Told>> {
        self.wanted(wish, limit).within(limit).flatten()
    }

    fn wanted(&self, wish: Wish, limit: Duration) -> Asked {
        let (slot, until) = (Arc::<Slot>::default(), Instant::now() + limit);
        locked(&self.jobs).push_back(Job { wish, limit, until, slot: Arc::clone(&slot) });
        self.wake();
        Asked { slot, until }
    }
}

/// A question that is on its way.
#[derive(Debug)]
pub(super) struct Asked {
    slot: Arc<Slot>,
    until: Instant,
}

impl Asked {
    /// Waits so long at most, and never longer than an answer may take. Outside `None` if there may still be one, inside if
    /// there is none: no daemon was there in time, or none that answered.
    pub(super) fn within(&self, limit: Duration) -> Option<Option<Vec<Told>>> {
        let now = Instant::now();
        let until = self.until.min(now + limit);
        let left = until.saturating_duration_since(now);
        let waited = self.slot.filled.wait_timeout_while(locked(&self.slot.answers), left, |answers| answers.is_none());
        let answers = waited.unwrap_or_else(PoisonError::into_inner).0.take();
        match answers {
            Some(answers) => Some(Some(answers).filter(|answers| !answers.is_empty())),
            None => (Instant::now() >= self.until).then_some(None),
        }
    }
}
