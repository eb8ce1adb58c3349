//! The conversation with the attached daemon.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use remps_proto::holder::{
    ADDS_PATHS, ANSWERS_BARRIERS, AttachDone, Failure, FromHolder, Held, Kind, LOG_BACKLOG_KEY, MAX_REMEMBERED_PATHS,
    RESTORES_MODES, Refusal, Settings, ToHolder, VERSION,
};

use super::{DEFAULT_SUCCESSOR_WAIT, Holder, Named, PAUSE};
use crate::holder::backlog::DEFAULT_LIMIT_BYTES;
use crate::holder::trust::Peer;
use crate::io::packets::{Received, accept, receive, send};
use crate::sys::passed;

/// Packets read in one turn; more than fit into a socket, so all that a dead daemon left is read in one.
const PACKETS_A_TURN: usize = 4096;
/// How long a successor waits for the end of its predecessor: a child that a killed daemon was about to start has the
/// connection open until it runs.
const BUSY_WAIT: Duration = Duration::from_millis(500);
/// Longest wait for a successor: what the timer of `poll` can hold many times over.
const MAX_SUCCESSOR_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The attached daemon and how much it has been told.
#[derive(Debug)]
pub(super) struct Daemon {
    socket: OwnedFd,
    stage: Stage,
    /// An accepted connection that the daemon has not been told of. There is never more than one.
    untold: Option<u64>,
    /// Its socket is full.
    is_full: bool,
    /// When to try again what failed for want of something other than room in the socket.
    again_at: Option<Instant>,
    /// Failures that there was no room to tell.
    pub(super) failures: VecDeque<(u64, Failure)>,
}

/// What the daemon is to be told next.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// What is held, from this key upwards.
    Held(u64),
    /// The log, from this offset.
    Backlog(usize),
    /// That this was all.
    Done,
    /// Connections as they come.
    Attached,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Yes,
    Later,
    Never,
}

impl Daemon {
    pub(super) fn new(socket: OwnedFd) -> Self {
        let (stage, failures) = (Stage::Held(0), VecDeque::new());
        Self { socket, stage, untold: None, is_full: false, again_at: None, failures }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn interest(&self) -> PollFlags {
        if self.is_full { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN }
    }

    pub(super) fn takes_connections(&self) -> bool {
        matches!(self.stage, Stage::Attached) && self.untold.is_none() && !self.is_full
    }

    pub(super) fn again_at(&self) -> Option<Instant> {
        self.again_at
    }

    /// Whether a connection can be accepted for it now: it would be told of it at once.
    pub(super) fn has_room(&mut self) -> bool {
        // Without room the next wait is for that, and leaves the listeners alone.
        self.is_full = self.is_full || !shows(self.socket(), PollFlags::POLLOUT);
        self.takes_connections()
    }

    /// Notes an accepted connection that it is to be told of.
    pub(super) fn owe(&mut self, key: u64) {
        self.untold = Some(key);
    }

    /// Whether something is to be tried again now.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        self.again_at.take_if(|at| *at <= now).is_some()
    }

    pub(super) fn send(&mut self, message: FromHolder, fds: &[BorrowedFd<'_>]) -> Sent {
        // Only what was taken off the wire within the same limits is ever sent.
        let Ok(packet) = message.encode() else { return Sent::Never };
        match send(self.socket.as_fd(), &packet, fds) {
            Ok(()) => Sent::Yes,
            Err(Errno::EAGAIN) => {
                self.is_full = true;
                Sent::Later
            }
            // Gone: its end is seen by reading, after the requests that it left.
            Err(Errno::EPIPE | Errno::ECONNRESET) => Sent::Later,
            // Too many descriptors under way, or no memory.
            Err(_) => {
                self.again_at = Some(Instant::now() + PAUSE);
                Sent::Later
            }
        }
    }
}

impl Holder {
    /// Lets a daemon attach, or says why not.
    pub(super) fn meet(&mut self) {
        let Ok(socket) = accept(self.attach.as_fd()) else { return };
        let peer = Peer::of(&socket);
        // The end of the former daemon may have come after the wait ended.
        self.hear();
        if peer.is_some() {
            // It sends none before it has been answered. Earlier kernels have no such choice.
            let _ = passed::allow(&socket, true);
        }
        let mut newcomer = Daemon::new(socket);
        if peer.is_none() {
            newcomer.send(FromHolder::Refused(Refusal::NOT_PERMITTED), &[]);
        } else if self.daemon.is_none() {
            self.attach(newcomer);
        } else if self.successor.is_none() {
            self.successor = Some((newcomer, Instant::now() + BUSY_WAIT));
        } else {
            newcomer.send(FromHolder::Refused(Refusal::BUSY), &[]);
        }
    }

    /// Refuses a successor that has waited long enough for its predecessor's end.
    pub(super) fn refuse_successor(&mut self, now: Instant) {
        if let Some((mut successor, _)) = self.successor.take_if(|(_, until)| *until <= now) {
            successor.send(FromHolder::Refused(Refusal::BUSY), &[]);
        }
    }

    pub(super) fn attach(&mut self, daemon: Daemon) {
        self.daemon = Some(daemon);
        self.given_up = false;
        self.give_up_at = None;
        self.terminations = 0;
        self.tell();
    }

    fn detach(&mut self) {
        self.daemon = None;
        self.accept_again_at = None;
        match self.successor.take() {
            Some((successor, _)) => self.attach(successor),
            None => self.give_up_at = Some(Instant::now() + self.successor_wait),
        }
    }

    /// Reads and does what the daemon asks, to the end of its connection if it has one.
    pub(super) fn hear(&mut self) {
        for _ in 0..PACKETS_A_TURN {
            let Some(daemon) = &self.daemon else { return };
            match receive(daemon.socket(), &mut self.buffer) {
                Ok(got) if got.bytes == 0 && got.fds.is_empty() => {
                    if hung_up(daemon.socket()) {
                        return self.detach();
                    }
                    self.malformed += 1;
                }
                Ok(got) => self.obey(got),
                Err(Errno::EAGAIN) => return,
                // The peer closed without having read everything: told once, before what it had sent.
                Err(Errno::EINTR | Errno::ECONNRESET) => {}
                Err(_) => return self.detach(),
            }
            if self.leaving {
                return;
            }
        }
    }

    fn obey(&mut self, got: Received) {
        let request = ToHolder::decode(&self.buffer[..got.bytes]).ok().filter(|_| !got.truncated);
        let Some(request) = request else {
            self.malformed += 1;
            return self.failed(0, Failure::MALFORMED);
        };
        let (key, done) = match request {
            ToHolder::Hold { key, .. } if got.descriptors_lost => (key, Err(Failure::DESCRIPTORS)),
            ToHolder::Hold { key, kind, state } => (key, self.shelf.hold(key, kind, state, got.fds)),
            ToHolder::Update { key, state } => (key, self.shelf.update(key, state)),
            ToHolder::Release { key: LOG_BACKLOG_KEY } => return self.backlog.clear(),
            ToHolder::Release { key } => return self.shelf.release(key),
            ToHolder::Settings(settings) => return self.adopt(settings),
            ToHolder::Barrier { number } => return self.passed(number),
            ToHolder::Leave => {
                self.leaving = true;
                return;
            }
        };
        if let Err(reason) = done {
            self.failed(key, reason);
        }
    }

    fn adopt(&mut self, settings: Settings) {
        let paths = settings.unlink.iter().map(|path| Path::new(std::ffi::OsStr::from_bytes(path)));
        let paths = paths.filter(|path| path.is_absolute()).map(Named::now);
        if settings.adds {
            let room = MAX_REMEMBERED_PATHS.saturating_sub(self.unlink.len());
            return self.unlink.extend(paths.take(room));
        }
        self.unlink = paths.collect();
        let wait = Duration::from_millis(settings.successor_wait_ms);
        self.successor_wait = if wait.is_zero() { DEFAULT_SUCCESSOR_WAIT } else { wait.min(MAX_SUCCESSOR_WAIT) };
        let bytes = usize::try_from(settings.log_buffer_bytes).unwrap_or(usize::MAX);
        self.backlog.set_limit(if bytes == 0 { DEFAULT_LIMIT_BYTES } else { bytes });
    }

    /// Tells the daemon what it does not know yet, as far as there is room.
    pub(super) fn tell(&mut self) {
        let Some(daemon) = &mut self.daemon else { return };
        daemon.is_full = false;
        daemon.tell_failures();
        loop {
            let nothing = Held { key: 0, kind: Kind(0), state: Vec::new(), listener: Kind(0), dropped_bytes: 0 };
            let (message, fds, next) = match daemon.stage {
                Stage::Held(from) => {
                    let Some((key, entry)) = self.shelf.first_from(from) else {
                        daemon.stage = if self.backlog.is_empty() { Stage::Done } else { Stage::Backlog(0) };
                        continue;
                    };
                    let (kind, state, listener) = (entry.kind, entry.state.clone(), entry.listener);
                    let held = FromHolder::Held(Held { key, kind, state, listener, ..nothing });
                    (held, entry.fds.as_slice(), Stage::Held(key + 1))
                }
                Stage::Backlog(offset) => {
                    let dropped_bytes = if offset == 0 { self.backlog.dropped() } else { 0 };
                    let state = self.backlog.piece(offset);
                    let end = offset + state.len();
                    let (key, kind) = (LOG_BACKLOG_KEY, Kind::LOG_BACKLOG);
                    let held = FromHolder::Held(Held { key, kind, state, dropped_bytes, ..nothing });
                    (held, &[][..], if end < self.backlog.len() { Stage::Backlog(end) } else { Stage::Done })
                }
                Stage::Done => {
                    let (accept_pauses, malformed) = (self.accept_pauses, self.malformed);
                    let (pid, abilities) = (std::process::id(), RESTORES_MODES | ANSWERS_BARRIERS | ADDS_PATHS);
                    let done = AttachDone { version: VERSION, pid, accept_pauses, malformed, abilities };
                    (FromHolder::AttachDone(done), &[][..], Stage::Attached)
                }
                Stage::Attached => {
                    let Some(key) = daemon.untold else { return };
                    let Some(entry) = self.shelf.get(key) else {
                        daemon.untold = None;
                        continue;
                    };
                    (FromHolder::Accepted { key, listener: entry.listener }, entry.fds.as_slice(), Stage::Attached)
                }
            };
            let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            match daemon.send(message, &fds) {
                Sent::Later => return,
                Sent::Yes | Sent::Never => {
                    if matches!(daemon.stage, Stage::Attached) {
                        daemon.untold = None;
                    }
                    daemon.stage = next;
                }
            }
        }
    }
}

fn shows(socket: BorrowedFd<'_>, flags: PollFlags) -> bool {
    let mut polled = [PollFd::new(socket, flags)];
    poll(&mut polled, PollTimeout::ZERO).is_ok() && polled[0].revents().is_some_and(|seen| seen.intersects(flags))
}

fn hung_up(socket: BorrowedFd<'_>) -> bool {
    shows(socket, PollFlags::POLLHUP)
}
