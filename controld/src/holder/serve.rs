//! The holder's loop: waits for whoever has something, and decides when there is nothing left to hold.
//!
//! ```text
//!                                      no successor in time, or SIGTERM
//!  started by a daemon ──▶ attached ◀──────▶ alone ───────────────────────────▶ given up ──▶ end
//!                             │  its connection ends                            (servers only)
//!                             └── Leave ──▶ end
//! ```
//! Attached: it accepts, and leaves the log and the servers' output to the daemon. Alone: it accepts nothing, drains
//! the log and the output so that no server blocks, drops connections whose peer hung up, and closes the copies of dead
//! clients' descriptors when their time is over. When it gives up it also gives the GPUs back the compute modes that the
//! daemon has changed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use remps_proto::holder::{FIRST_HOLDER_KEY, Kind, MAX_MESSAGE_BYTES};

use super::backlog::Backlog;
use super::place::Named;
use super::restoring::Restoring;
use super::shelf::Shelf;
use crate::io::folder::cleaning::Uncleaned;
use crate::sys::clock::since_boot;

mod accept;
mod answers;
mod attached;

use attached::Daemon;

/// How long a successor may take unless the daemon says otherwise.
const DEFAULT_SUCCESSOR_WAIT: Duration = Duration::from_secs(600);
/// How long accepting pauses when descriptors have run out.
const PAUSE: Duration = Duration::from_millis(100);
/// SIGTERMs without a daemon that end the holder whatever it holds.
const TERMINATIONS_TO_END: u32 = 2;

/// The holder's whole state.
#[derive(Debug)]
pub(super) struct Holder {
    attach: OwnedFd,
    signals: SignalFd,
    own_path: Named,
    _uncleaned: Option<Uncleaned>,
    shelf: Shelf,
    backlog: Backlog,
    daemon: Option<Daemon>,
    /// Who wants to be the next, and until when it may wait for that.
    successor: Option<(Daemon, Instant)>,
    successor_wait: Duration,
    unlink: Vec<Named>,
    /// When it gives up; only while it is alone and has not yet.
    give_up_at: Option<Instant>,
    given_up: bool,
    /// Compute modes that are being given back.
    restoring: Option<Restoring>,
    terminations: u32,
    leaving: bool,
    next_key: u64,
    accept_again_at: Option<Instant>,
    accept_pauses: u64,
    malformed: u64,
    buffer: Box<[u8]>,
}

/// Who can have something.
#[derive(Debug, Clone, Copy)]
enum Source {
    Daemon,
    Attach,
    Signals,
    Listener(u64),
    Output(u64),
    Connection(u64),
    Client(u64),
}

impl Holder {
    /// The holder of the daemon at the other end of `daemon`; successors come through `attach`.
    pub(super) fn new(
        attach: OwnedFd,
        daemon: OwnedFd,
        signals: SignalFd,
        own_path: Named,
        uncleaned: Option<Uncleaned>,
    ) -> Self {
        let mut holder = Self {
            attach,
            signals,
            own_path,
            _uncleaned: uncleaned,
            shelf: Shelf::default(),
            backlog: Backlog::new(),
            daemon: None,
            successor: None,
            successor_wait: DEFAULT_SUCCESSOR_WAIT,
            unlink: Vec::new(),
            give_up_at: None,
            given_up: false,
            restoring: None,
            terminations: 0,
            leaving: false,
            next_key: FIRST_HOLDER_KEY,
            accept_again_at: None,
            accept_pauses: 0,
            malformed: 0,
            buffer: vec![0; MAX_MESSAGE_BYTES].into_boxed_slice(),
        };
        holder.attach(Daemon::new(daemon));
        holder
    }

    /// Serves until there is nothing left to hold.
    pub(super) fn serve(&mut self) {
        while !self.is_over() {
            for (source, flags) in self.wait() {
                self.react(source, flags);
            }
            self.expire(Instant::now());
        }
        self.own_path.unlink();
    }

    fn is_over(&self) -> bool {
        if self.leaving || self.daemon.is_some() || self.restoring.is_some() {
            return self.leaving;
        }
        let nothing_left = if self.given_up { !self.has_server() } else { self.shelf.is_empty() };
        nothing_left || self.terminations >= TERMINATIONS_TO_END
    }

    fn has_server(&self) -> bool {
        self.shelf.iter().any(|(_, entry)| entry.kind == Kind::SERVER_CONNECTION)
    }

    /// Waits for the first who has something, in the order in which they are to be served.
    fn wait(&self) -> Vec<(Source, PollFlags)> {
        let mut sources = Vec::new();
        let mut polled = Vec::new();
        let mut add = |source, fd, flags| {
            sources.push(source);
            polled.push(PollFd::new(fd, flags));
        };
        // The daemon before the attach socket: its end must be seen before its successor.
        if let Some(daemon) = &self.daemon {
            add(Source::Daemon, daemon.socket(), daemon.interest());
        }
        add(Source::Attach, self.attach.as_fd(), PollFlags::POLLIN);
        add(Source::Signals, self.signals.as_fd(), PollFlags::POLLIN);
        if self.daemon.is_some() {
            for (key, listener) in self.open_listeners() {
                add(Source::Listener(key), listener, PollFlags::POLLIN);
            }
        } else {
            for (key, pidfd) in self.shelf.living_clients() {
                add(Source::Client(key), pidfd, PollFlags::POLLIN);
            }
            for (key, entry) in self.shelf.iter() {
                match (entry.kind, entry.fds.as_slice()) {
                    (Kind::LOG_FIFO | Kind::SERVER_STDERR, [fd]) => {
                        add(Source::Output(key), fd.as_fd(), PollFlags::POLLIN);
                    }
                    // Without interest in anything, a hang-up is still told.
                    (Kind::CONNECTION | Kind::SERVER_CONNECTION, [fd]) => {
                        add(Source::Connection(key), fd.as_fd(), PollFlags::empty());
                    }
                    _ => {}
                }
            }
        }
        // An interrupted or failed wait shows nobody ready and is done again.
        let _ = poll(&mut polled, self.timeout());
        let flags = polled.iter().map(|fd| fd.revents().unwrap_or(PollFlags::POLLERR));
        sources.into_iter().zip(flags).filter(|(_, flags)| !flags.is_empty()).collect()
    }

    /// The listeners to accept from now: none while the daemon is not ready for more or descriptors have run out.
    fn open_listeners(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        let open = self.accept_again_at.is_none() && self.daemon.as_ref().is_some_and(Daemon::takes_connections);
        let keys = if open { self.shelf.listeners() } else { &[] };
        keys.iter().filter_map(|key| Some((*key, self.shelf.get(*key)?.fds.first()?.as_fd())))
    }

    /// Until the next timer, rounded up to a millisecond; with no timer running, for ever.
    fn timeout(&self) -> PollTimeout {
        let told = self.daemon.as_ref().and_then(Daemon::again_at);
        let busy = self.successor.as_ref().map(|(_, until)| *until);
        let copies = self.shelf.copies_end().filter(|_| self.daemon.is_none());
        let copies = copies.map(|end| Instant::now() + end.saturating_sub(since_boot()));
        let restoring = self.restoring.as_ref().map(Restoring::until);
        let timers = [self.give_up_at, self.accept_again_at, told, busy, copies, restoring];
        let Some(next) = timers.into_iter().flatten().min() else {
            return PollTimeout::NONE;
        };
        let left = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        // What is longer than a timeout can be is waited for in parts.
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    }

    fn react(&mut self, source: Source, flags: PollFlags) {
        match source {
            Source::Daemon => {
                self.hear();
                self.tell();
            }
            Source::Attach => self.meet(),
            Source::Signals => self.take_signals(),
            Source::Listener(key) => self.accept(key),
            Source::Output(key) => self.drain(key, flags),
            Source::Client(key) => {
                if self.daemon.is_none() {
                    self.shelf.client_ended(key, since_boot());
                }
            }
            Source::Connection(key) => {
                if self.daemon.is_none() {
                    self.shelf.release(key);
                }
            }
        }
    }

    /// Fires the timers that are due.
    fn expire(&mut self, now: Instant) {
        if self.give_up_at.is_some_and(|at| at <= now) {
            self.give_up();
        }
        if self.accept_again_at.is_some_and(|at| at <= now) {
            self.accept_again_at = None;
        }
        if self.daemon.as_mut().is_some_and(|daemon| daemon.is_due(now)) {
            self.tell();
        }
        if self.daemon.is_none() {
            self.shelf.expire_copies(since_boot());
        }
        self.refuse_successor(now);
        self.restoring.take_if(|restoring| restoring.is_over(now));
    }

    /// Nobody came back: newcomers are no longer kept waiting, and only running servers are still held.
    fn give_up(&mut self) {
        self.give_up_at = None;
        self.given_up = true;
        for path in self.unlink.drain(..) {
            path.unlink();
        }
        let records = self.shelf.take_mode_records();
        if let Some(note) = self.shelf.take_modes() {
            self.restoring = Restoring::begin(&note, records);
        }
        self.shelf.retain(|entry| match entry.kind {
            // Servers go on to write, and must not block.
            Kind::SERVER_CONNECTION | Kind::SERVER_STDERR | Kind::LOG_FIFO => true,
            // Words for a late successor cost nothing; descriptors may keep GPU memory.
            Kind::STATE | Kind::STATE_PIECE => entry.fds.is_empty(),
            _ => false,
        });
    }

    /// SIGTERM counts only without a daemon: a stop meant for both ends the daemon, which then takes leave.
    fn take_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
            if self.daemon.is_none() && number == Signal::SIGTERM as i32 {
                self.terminations += 1;
                self.give_up();
            }
        }
    }

    /// Reads once what a server wrote; only the log is remembered.
    fn drain(&mut self, key: u64, flags: PollFlags) {
        let Some(entry) = self.shelf.get(key).filter(|_| self.daemon.is_none()) else { return };
        let Some(fd) = entry.fds.first() else { return };
        let is_log = entry.kind == Kind::LOG_FIFO;
        if !flags.contains(PollFlags::POLLIN) {
            // All writers are gone; the log, opened for writing too, never comes here.
            return self.shelf.release(key);
        }
        match nix::unistd::read(fd, &mut self.buffer) {
            Ok(0) => self.shelf.release(key),
            Ok(bytes) if is_log => self.backlog.push(&self.buffer[..bytes]),
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_) => self.shelf.release(key),
        }
    }
}
