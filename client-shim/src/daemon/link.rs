//! The thread that gives the vault what the program keeps: everything that has to do with the socket happens here.
//!
//! It compares what there is with what the daemon has said that it keeps, asks for the difference in batches, and does
//! the same anew with the next daemon. The program's threads leave it a word and go on; those that want an answer
//! ([`Shared::ask`]) wait with a deadline. No lock is held while it waits for the daemon.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::c_int,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        eventfd::{EfdFlags, EventFd},
        socket::{MsgFlags, recv},
    },
};
use remps_proto::shim::{Answer, Ask, Capabilities, Failure, Region, ServerState};

use super::{
    connection::{Connection, Lost, PATIENCE, Told},
    door,
    ledger::{Ledger, Serial},
};
use crate::{
    cuda::{gpu_name, piece::Piece},
    process::{descriptors::Held, failpoint::reached, log, settings::succession},
};

/// Escrows and releases that are under way at a time: fewer than the descriptors that one user may have in flight.
const BATCH: usize = 16;
/// First and longest pause between two tries to find a daemon. One that was there a moment ago is mostly being replaced.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What the program has changed so far; the link has dealt with it when [`Progress::settled`] is as large.
pub(crate) static CHANGES: AtomicU64 = AtomicU64::new(1);

/// Tells what there is: all pieces, with copies of the descriptors of so many at most that are wanted, so that none of
/// them is another file by the time it is sent. `None` where nothing is kept any more.
pub(crate) type Source = fn(is_wanted: &dyn Fn(Serial) -> bool, most: usize) -> Option<Vec<Piece>>;

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
    /// The server that this process has, as the daemon says, and how it is.
    pub(crate) server: u64,
    pub(crate) state: u32,
}

/// A question of one of the program's threads.
#[derive(Debug)]
struct Job {
    ask: Ask,
    limit: Duration,
    until: Instant,
    slot: Arc<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    answers: Mutex<Option<Vec<Told>>>,
    filled: Condvar,
}

/// What the program's threads and the link have in common. It is never freed.
#[derive(Debug)]
pub(crate) struct Shared {
    wake: EventFd,
    jobs: Mutex<VecDeque<Job>>,
    /// Memory that has come from the vault, and whether it is noted as kept yet.
    adopted: Mutex<Vec<(Serial, Region, bool)>>,
    progress: Mutex<Progress>,
    moved: Condvar,
    /// Whether what the program has may be given to the vault: a standby's only when it is activated.
    pub(crate) may_escrow: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
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

    /// Has the link look again.
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
        let slot = Arc::new(Slot::default());
        let until = Instant::now() + limit + PATIENCE;
        locked(&self.jobs).push_back(Job { ask, limit, until, slot: Arc::clone(&slot) });
        self.wake();
        let mut answers = locked(&slot.answers);
        loop {
            if let Some(answers) = answers.take() {
                return Some(answers).filter(|answers| !answers.is_empty());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            answers = slot.filled.wait_timeout(answers, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Job {
    /// No answers are the word for none.
    fn answer(self, answers: Vec<Told>) {
        *locked(&self.slot.answers) = Some(answers);
        self.slot.filled.notify_all();
    }
}

/// The link's own.
pub(crate) struct Link {
    shared: &'static Shared,
    source: Source,
    name: String,
    ledger: Ledger,
    connection: Option<Connection>,
    gpus: BTreeMap<c_int, String>,
    pause: Duration,
    try_at: Instant,
    has_complained: bool,
}

impl Link {
    /// One that gives what `source` has, under this name; `salt` differs from process to process.
    pub(crate) fn new(shared: &'static Shared, source: Source, name: String, salt: u64) -> Self {
        let (ledger, connection, gpus) = (Ledger::new(salt), None, BTreeMap::new());
        let (pause, try_at, has_complained) = (FIRST_PAUSE, Instant::now(), false);
        Self { shared, source, name, ledger, connection, gpus, pause, try_at, has_complained }
    }

    /// Works until the process ends.
    pub(crate) fn work(mut self) {
        loop {
            let _empty = self.shared.wake.read();
            let target = CHANGES.load(Ordering::Acquire);
            for (serial, region, _) in locked(&self.shared.adopted).extract_if(.., |(_, _, is_noted)| *is_noted) {
                self.ledger.adopted(serial, region);
            }
            self.connect();
            let done = self.give_all();
            self.note(done.as_ref().is_ok_and(|all| *all).then_some(target));
            if let Err(lost) = done {
                self.lose(&lost);
                continue;
            }
            self.answer_one();
            self.wait();
        }
    }

    fn connect(&mut self) {
        if self.connection.is_some() || Instant::now() < self.try_at {
            return;
        }
        match Connection::open(&door()) {
            Ok(connection) => {
                self.ledger.connected();
                locked(&self.shared.progress).connections += 1;
                (self.connection, self.pause) = (Some(connection), FIRST_PAUSE);
            }
            Err(lost) => self.lose(&lost),
        }
    }

    /// There is no daemon for now. Only one that refuses this process is worth a line; one that is not there is not.
    fn lose(&mut self, lost: &Lost) {
        self.connection = None;
        self.try_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        if let Lost::Refused(failure) = lost
            && !self.has_complained
        {
            self.has_complained = true;
            log::complain(format_args!("the vault refuses this process: {failure}"));
        }
    }

    /// Releases and escrows what is to be; whether everything there is was dealt with.
    fn give_all(&mut self) -> Result<bool, Lost> {
        if self.connection.is_none() {
            return Ok(false);
        }
        let now = Instant::now();
        loop {
            let ledger = &self.ledger;
            let is_coming = |serial| locked(&self.shared.adopted).iter().any(|(known, ..)| *known == serial);
            let due = |serial| {
                self.shared.may_escrow.load(Ordering::Acquire) && ledger.is_due(serial, now) && !is_coming(serial)
            };
            let Some(there) = (self.source)(&due, BATCH) else { return Ok(true) };
            self.ledger.there_are(&there.iter().map(|memory| memory.serial).collect::<BTreeSet<_>>());
            let released = self.release_some()?;
            let given = self.escrow_some(there, now)?;
            if released + given == 0 {
                return Ok(true);
            }
            self.ask_where()?;
        }
    }

    fn connection(&mut self) -> Result<&mut Connection, Lost> {
        self.connection.as_mut().ok_or(Lost::Closed)
    }

    fn release_some(&mut self) -> Result<usize, Lost> {
        let releases: Vec<(Serial, u64)> = self.ledger.releases().into_iter().take(BATCH).collect();
        let mut sent = Vec::new();
        for (serial, key) in releases {
            sent.push((serial, self.connection()?.send(Ask::Release { key }, None)?));
            reached("release-sent");
        }
        let count = sent.len();
        for (serial, request) in sent {
            self.connection()?.answers(request)?;
            reached("release-answered");
            self.ledger.released(serial);
        }
        Ok(count)
    }

    fn escrow_some(&mut self, there: Vec<Piece>, now: Instant) -> Result<usize, Lost> {
        let mut sent = Vec::new();
        for Piece { serial, device, size, address, copy } in there {
            let Some(number) = copy.as_ref().and_then(Held::number) else { continue };
            let region = match self.ledger.region(serial) {
                Some(region) => region.clone(),
                None => Region {
                    key: self.ledger.key(serial),
                    name: self.name.clone(),
                    gpu: self.gpus.entry(device).or_insert_with(|| gpu_name::name(device)).clone(),
                    bytes: size,
                    address,
                    handle_type: 1,
                    ..Region::default()
                },
            };
            let request = self.connection()?.send(Ask::Escrow(region.clone()), Some(number))?;
            sent.push((serial, region, request));
            reached("escrow-sent");
        }
        let count = sent.len();
        for (serial, region, request) in sent {
            let answer = match self.connection()?.answers(request)?.pop() {
                Some((Answer::Done { .. }, _)) => Ok(()),
                Some((Answer::Failed(failure), _)) => Err(failure),
                _ => return Err(Lost::Stranger),
            };
            reached("escrow-answered");
            self.ledger.answered(serial, region, answer, now);
        }
        Ok(count)
    }

    fn ask_where(&mut self) -> Result<(), Lost> {
        if !self.connection()?.welcome.capabilities.has(Capabilities::EPOCHS) {
            return Ok(());
        }
        if let Some((Answer::Epoch { server, state: ServerState(state), .. }, _)) =
            self.connection()?.ask(Ask::Where, None)?.pop()
        {
            let mut progress = locked(&self.shared.progress);
            (progress.server, progress.state) = (server, state);
        }
        Ok(())
    }

    fn note(&mut self, settled: Option<u64>) {
        let mut progress = locked(&self.shared.progress);
        let (kept, bytes, refused, why) = self.ledger.totals();
        let welcome = self.connection.as_ref().map(|connection| connection.welcome);
        progress.is_connected = welcome.is_some();
        progress.has_state = welcome.is_some_and(|welcome| welcome.capabilities.has(Capabilities::STATE));
        (progress.kept, progress.bytes, progress.refused, progress.why) = (kept, bytes, refused, why);
        progress.escrows = self.ledger.escrows;
        progress.settled = settled.unwrap_or(0);
        self.shared.moved.notify_all();
    }

    /// Carries out one question, which comes after all that was to be given before it.
    fn answer_one(&mut self) {
        let overdue = |jobs: &mut VecDeque<Job>| jobs.pop_front_if(|job| job.until <= Instant::now());
        while let Some(job) = overdue(&mut locked(&self.shared.jobs)) {
            job.answer(Vec::new());
        }
        let Some(connection) = &mut self.connection else { return };
        let Some(job) = locked(&self.shared.jobs).pop_front() else { return };
        // Who has a name, or what a name has, is another matter afterwards.
        let moves_names = matches!(job.ask, Ask::Discard { .. } | Ask::Succeed { .. });
        match connection.ask_within(job.ask.clone(), None, job.limit + PATIENCE) {
            Ok(answers) => job.answer(answers),
            // Each request may be made again with the next daemon.
            Err(lost) => {
                locked(&self.shared.jobs).push_front(job);
                self.lose(&lost);
            }
        }
        if moves_names {
            self.ledger.ask_again();
        }
    }

    /// Waits for a word of the program, for the daemon's end, or until it is time to ask again.
    fn wait(&mut self) {
        let jobs = locked(&self.shared.jobs).front().map(|job| job.until);
        if self.connection.is_some() && jobs.is_some() {
            return;
        }
        let retry = self.connection.is_none().then_some(self.try_at);
        let until = retry.into_iter().chain(jobs).chain(self.ledger.next()).min();
        let timeout = until.map_or(PollTimeout::NONE, |at| {
            let left = at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let number = self.connection.as_ref().and_then(|connection| connection.number().ok());
        let mut polled = vec![PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN)];
        let socket = number.map(borrowed);
        polled.extend(socket.iter().map(|socket| PollFd::new(*socket, PollFlags::POLLIN)));
        // An interrupted wait is one turn more.
        let _woken = poll(&mut polled, timeout);
        let has_news = polled.get(1).and_then(PollFd::revents).is_some_and(|flags| !flags.is_empty());
        if let (true, Some(number)) = (has_news, number) {
            // Nothing was asked, so it is the end, or a word that this version does not know.
            let mut byte = [0];
            match recv(number, &mut byte, MsgFlags::MSG_DONTWAIT) {
                Ok(1..) => {}
                Ok(0) | Err(_) => {
                    self.connection = None;
                    // Most likely its successor is coming up.
                    self.try_at = Instant::now();
                    self.pause = FIRST_PAUSE;
                }
            }
        }
        if self.connection.is_some() != locked(&self.shared.progress).is_connected {
            self.note(None);
        }
    }
}

#[expect(unsafe_code, reason = "a socket of ours is waited for by number")]
fn borrowed<'a>(number: c_int) -> BorrowedFd<'a> {
    // SAFETY: it was looked at just before; one that the program has closed meanwhile makes the wait end at once.
    unsafe { BorrowedFd::borrow_raw(number) }
}
