//! Sessions of the command line: how many of whom there may be, and what is under way in each.

pub(super) mod conversation;
mod rights;

use super::Driver;
use super::connections::ACCEPTING;
use super::events::Events;
use crate::core::{Peer, Rights, SessionId, Uid};
use crate::io::seqpacket::SeqPacket;
use conversation::ToSession;
use remps_proto::admin::{Command, CommandName, Personality};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Sessions of the command line at one time: of all users, and of each user who is neither root nor the owner.
const MAX_SESSIONS: usize = 512;
const MAX_SESSIONS_PER_USER: usize = 64;
/// Sessions of root and the owner that wait until another one has ended.
const MAX_QUEUED_SESSIONS: usize = 4096;

/// Who opens a session, and what he may do.
pub(super) struct Visitor {
    pub(super) session: SessionId,
    pub(super) peer: Peer,
    pub(super) rights: Rights,
    pub(super) is_owner: bool,
    pub(super) socket: Arc<SeqPacket>,
}

/// What has become of a visitor.
enum Opened {
    Now,
    /// When another one has ended, or never, since the daemon ends.
    NotNow,
    Refused,
}

/// What the log has of a session. One in which nothing is asked but looks has no lines of the vendor's: whoever watches the
/// daemon looks every few seconds, for weeks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Logged {
    /// Nothing has been asked yet.
    NotYet,
    /// Nothing but looks.
    Looks,
    /// The vendor's lines.
    Lines,
}

#[derive(Debug)]
struct Session {
    peer: Peer,
    rights: Rights,
    /// driver --answers--> session
    answers_tx: mpsc::UnboundedSender<ToSession>,
    /// Whether a command is under way.
    busy: bool,
    /// The command under way and since when, for the metrics.
    under_way: Option<(Option<CommandName>, Instant)>,
    /// What the log has of it.
    logged: Logged,
    task: AbortHandle,
}

/// All sessions.
pub(super) struct Sessions {
    open: BTreeMap<SessionId, Session>,
    queued: VecDeque<Visitor>,
    events: Events,
    personality: Personality,
}

impl Sessions {
    pub(super) fn new(events: Events, personality: Personality) -> Self {
        Self { open: BTreeMap::new(), queued: VecDeque::new(), events, personality }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn open(&mut self, visitor: Visitor, is_quitting: bool) -> Opened {
        let (uid, privileged) = (visitor.peer.uid, visitor.rights.privileged);
        let within = visitor.rights.within;
        // Root of a claim is nobody's root elsewhere.
        let is_alike = |other: &&Session| {
            other.peer.uid == uid && other.rights.privileged == privileged && other.rights.within == within
        };
        let of_user = self.open.values().filter(is_alike).count();
        // All the others together can't keep the owner out, and the owner's own wait for each other.
        if visitor.is_owner && of_user >= MAX_SESSIONS && self.queued.len() < MAX_QUEUED_SESSIONS {
            self.queued.push_back(visitor);
            return Opened::NotNow;
        }
        let full = if visitor.is_owner {
            of_user >= MAX_SESSIONS
        } else {
            of_user >= MAX_SESSIONS_PER_USER || self.open.len() >= MAX_SESSIONS
        };
        if full {
            visitor.socket.refuse_the_rest();
            return Opened::Refused;
        }
        if is_quitting {
            return Opened::NotNow;
        }
        // driver --answers--> session
        let (answers_tx, answers_rx) = mpsc::unbounded_channel();
        let Visitor { session, peer, rights, socket, .. } = visitor;
        let task = tokio::spawn(conversation::serve(session, socket, self.events.clone(), answers_rx)).abort_handle();
        self.open.insert(
            session,
            Session { peer, rights, answers_tx, busy: false, under_way: None, logged: Logged::NotYet, task },
        );
        Opened::Now
    }

    /// A session has sent a command: what it has, and what was told of it before and is now.
    fn command(&mut self, session: SessionId, line: &[u8]) -> Option<(&Session, Logged)> {
        let known = self.open.get_mut(&session)?;
        let command = Command::parse(line, self.personality);
        known.busy = true;
        known.under_way = Some((command.name(), Instant::now()));
        let before = known.logged;
        let is_look = command.is_look() && before != Logged::Lines;
        known.logged = if is_look { Logged::Looks } else { Logged::Lines };
        Some((known, before))
    }

    /// The command that a session has under way, whose it is and what it took, told once.
    pub(super) fn take_under_way(&mut self, session: SessionId) -> Option<(Option<CommandName>, Uid, Duration)> {
        let known = self.open.get_mut(&session)?;
        let (name, since) = known.under_way.take()?;
        Some((name, known.peer.uid, since.elapsed()))
    }

    pub(super) fn rights(&self, session: SessionId) -> Option<&Rights> {
        self.open.get(&session).map(|known| &known.rights)
    }

    /// Answers a session's command. A session that has ended needs no answer.
    pub(super) fn answer(&mut self, session: SessionId, answer: ToSession) -> bool {
        let Some(known) = self.open.get_mut(&session) else { return false };
        // One that follows is at it until it sends another command.
        known.busy = matches!(answer, ToSession::Follow(..));
        let _ = known.answers_tx.send(answer);
        true
    }

    /// What was told of a session that is over, if there was such a one.
    fn ended(&mut self, session: SessionId) -> Option<Logged> {
        self.open.remove(&session).map(|known| known.logged)
    }

    /// Forgets a session that is over.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.open.remove(&session);
    }

    /// Ends those that have no command under way.
    pub(super) fn end_idle(&mut self) {
        for (_, idle) in self.open.extract_if(.., |_, session| !session.busy) {
            idle.task.abort();
        }
    }

    /// Ends all, those that wait for the daemon's end with its status.
    pub(super) fn end(&mut self, status: u32) {
        self.end_idle();
        for session in self.open.values() {
            let _ = session.answers_tx.send(ToSession::End(status));
        }
    }
}

impl Driver {
    /// Opens a session, or has it wait for another one's end.
    pub(super) fn open_session(&mut self, visitor: Visitor) {
        let uid = visitor.peer.uid;
        match self.sessions.open(visitor, self.core.is_quitting()) {
            Opened::Now | Opened::NotNow => {}
            Opened::Refused => {
                self.logs.chatter(ACCEPTING);
                self.logs.chatter(&format!("User {uid} has too many sessions, one is refused"));
            }
        }
    }

    /// A session has sent a command: who it is, and what he may do.
    pub(super) fn command_of(&mut self, session: SessionId, line: &[u8]) -> Option<(Peer, Rights)> {
        let (known, before) = self.sessions.command(session, line)?;
        let (peer, told) = (known.peer, known.logged);
        let of = (peer, known.rights.clone());
        if told == Logged::Looks {
            let command = String::from_utf8_lossy(line);
            let command = command.trim_matches(|c: char| c.is_whitespace() || c == '\0');
            tracing::debug!(pid = peer.pid, uid = peer.uid, %command, "somebody looks");
        } else if before != Logged::Lines {
            self.tell_of_session();
        }
        Some(of)
    }

    fn tell_of_session(&self) {
        self.logs.chatter(ACCEPTING);
        self.logs.chatter("NEW UI");
    }

    pub(super) fn session_ended(&mut self, session: SessionId) {
        self.resting.forget(session);
        self.usage.forget(session);
        match self.sessions.ended(session) {
            Some(Logged::NotYet) => {
                self.tell_of_session();
                self.logs.chatter("UI closed");
            }
            Some(Logged::Lines) => self.logs.chatter("UI closed"),
            Some(Logged::Looks) | None => {}
        }
        if let Some(visitor) = self.sessions.queued.pop_front() {
            self.open_session(visitor);
        }
    }
}
