//! The daemon's word to programs that come back in place: that their server is spoilt or gone, whose fault it was, and
//! that what a dead copy of the driver had is no longer held.
//!
//! A program that waits for nothing would not know that it has lost its context until its next call, and it cannot see
//! whether the server is reaped, which is what proves that no channel of it is left. The daemon knows both: it is the
//! servers' parent. So a program subscribes ([`Ask::Subscribe`](remps_proto::shim::Ask::Subscribe)), and is told how its
//! server is at once and whenever that is no longer so. It is told by this task itself, on the session's connection, so
//! that nothing which the session waits for comes between. What there is no room for is not queued: who reads again is
//! told how things are then, and who does not read for [`PATIENCE`] loses his connection.
//!
//! A library of an earlier release asks with what it was told last, and is answered when that is no longer so
//! ([`Ask::Watch`](remps_proto::shim::Ask::Watch)).

use super::Driver;
use super::vault::{Keeper, done};
use crate::core::{Confidence, Part, ProcessKey, ServerEpoch};
use crate::door::client::Client;
use crate::door::line::{Line, Said};
use crate::door::{Reply, Request};
use crate::failpoint::reached;
use crate::patience::patient;
use remps_proto::shim::{self, Answer, Ask, Failure, ServerState};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::oneshot;

/// Longest wait for one answer; a program asks again. So a thread of the door is not held for long by a program that
/// has closed its end.
const MOST_WAIT: Duration = Duration::from_secs(20);
/// How long a program may leave its news unread, and how often it is tried meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// A program that wants to know when its server is another one, or otherwise, than it was.
#[derive(Debug)]
struct Watcher {
    client: Arc<Client>,
    known: (u64, ServerState),
    until: Duration,
    reply: oneshot::Sender<Vec<Reply>>,
}

/// A program that is told unasked. Nothing is kept of it but a number once its connection is over.
#[derive(Debug)]
struct Subscriber {
    process: ProcessKey,
    line: Weak<Line>,
    known: (u64, ServerState),
    /// Whether it was told anything yet.
    is_told: bool,
    /// Since when there is no room for its news, and when it is tried again.
    stuck: Option<(Duration, Duration)>,
}

/// All who want to know: one question for each process at most, and one subscription for each connection.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    asking: Vec<Watcher>,
    subscribed: Vec<Subscriber>,
}

impl Watchers {
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let again = self.subscribed.iter().filter_map(|subscriber| subscriber.stuck.map(|(_, again)| again));
        self.asking.iter().map(|watcher| watcher.until).chain(again).min()
    }

    pub(super) fn has(&self, process: ProcessKey) -> bool {
        self.asking.iter().any(|watcher| watcher.client.caller.process == process)
    }

    /// A process has ended and asks for nothing any more.
    pub(super) fn forget(&mut self, process: ProcessKey) {
        self.asking.retain(|watcher| watcher.client.caller.process != process);
    }
}

impl Subscriber {
    /// There is no room for its news; whether it is tried again.
    fn is_waited_for(&mut self, now: Duration) -> bool {
        let since = self.stuck.map_or(now, |(since, _)| since);
        self.stuck = Some((since, now + TRY_AGAIN));
        let is_waited_for = now.saturating_sub(since) < patient(PATIENCE);
        if !is_waited_for && let Some(line) = self.line.upgrade() {
            line.hang_up();
        }
        is_waited_for
    }
}

impl Keeper {
    fn watcher_of(&mut self, process: ProcessKey) -> Option<Watcher> {
        let at = self.watchers.asking.iter().position(|watcher| watcher.client.caller.process == process)?;
        Some(self.watchers.asking.remove(at))
    }
}

impl Driver {
    /// Answers what is about a program's server and what is held for it.
    pub(super) fn word_asked(&mut self, request: Request) {
        let Request { client, ask, line, reply, .. } = request;
        let process = client.caller.process;
        match ask {
            Ask::Watch { server, state, wait_ms } => {
                reached("news-asked");
                // Who asks again has given up its first request, or lost the connection that it was made on.
                if let Some(before) = self.vault.watcher_of(process) {
                    self.tell(before);
                }
                let until = self.now().saturating_add(Duration::from_millis(wait_ms).min(MOST_WAIT));
                // Its end must be noticed while it waits.
                self.watch_caller(&client);
                self.vault.watchers.asking.push(Watcher { client, known: (server, state), until, reply });
            }
            Ask::Subscribe { server } => {
                reached("news-asked");
                let subscribed = &mut self.vault.watchers.subscribed;
                // It may ask for everything anew; and connections that are over are as many at most as there have been
                // at a time.
                subscribed.retain(|other| other.line.strong_count() > 0 && !other.line.ptr_eq(&line));
                let known = (server, ServerState::HEALTHY);
                subscribed.push(Subscriber { process, line, known, is_told: false, stuck: None });
                // A program that has gone meanwhile needs no answer.
                let _ = reply.send(vec![done(0)]);
            }
            Ask::Hello { .. }
            | Ask::Escrow(_)
            | Ask::Release { .. }
            | Ask::List { .. }
            | Ask::HandBack
            | Ask::Adopt { .. }
            | Ask::Discard { .. }
            | Ask::Report { .. }
            | Ask::Follow { .. }
            | Ask::Where
            | Ask::Commit { .. }
            | Ask::Succeed { .. }
            | Ask::Renewed
            | Ask::Fate { .. } => {
                // A program that has gone meanwhile needs no answer.
                let _ = reply.send(vec![(Answer::Failed(Failure::UNKNOWN_REQUEST), None)]);
            }
        }
    }

    /// What a process is told of its server that was told of this one last.
    fn word_for(&self, process: ProcessKey, (known, state): (u64, ServerState)) -> Answer {
        let is_reaped = known != 0 && self.core.fate_of_server(ServerEpoch(known)).is_none();
        let (server, state) = match self.core.fate_of(process) {
            // What it waits for most, and before it is told of another one.
            _ if is_reaped && state != ServerState::GONE => (known, ServerState::GONE),
            None => (0, ServerState::NONE),
            Some((server, _)) if self.core.has_lost(process) => (server.0, ServerState::TAINTED),
            Some((server, _)) => (server.0, ServerState::HEALTHY),
        };
        Answer::Epoch { server, state, part: self.part_for(process, ServerEpoch(server)) }
    }

    /// What a process has to do with the faults of a server, as it is told.
    pub(super) fn part_for(&self, process: ProcessKey, server: ServerEpoch) -> shim::Part {
        match self.core.part_of(process, server) {
            Part::Unknown | Part::Culprit(Confidence::Unknown) => shim::Part::UNKNOWN,
            Part::Bystander => shim::Part::BYSTANDER,
            Part::Culprit(Confidence::Likely) => shim::Part::LIKELY_CULPRIT,
            Part::Culprit(Confidence::Certain) => shim::Part::CULPRIT,
        }
    }

    fn tell(&self, watcher: Watcher) {
        let word = self.word_for(watcher.client.caller.process, watcher.known);
        // A program that has gone meanwhile needs no answer.
        let _ = watcher.reply.send(vec![(word, None)]);
    }

    /// Tells those whose server is no longer as they were told. Called after everything that happens.
    pub(super) fn tell_watchers(&mut self) {
        let now = self.now();
        let is_due = |watcher: &Watcher| {
            let word = self.word_for(watcher.client.caller.process, watcher.known);
            watcher.until <= now
                || !matches!(word, Answer::Epoch { server, state, .. } if (server, state) == watcher.known)
        };
        let asking = &self.vault.watchers.asking;
        let due: Vec<usize> = (0..asking.len()).filter(|at| is_due(&asking[*at])).collect();
        for at in due.into_iter().rev() {
            let watcher = self.vault.watchers.asking.remove(at);
            self.tell(watcher);
        }
        let mut subscribed = std::mem::take(&mut self.vault.watchers.subscribed);
        subscribed.retain_mut(|subscriber| self.is_still_told(subscriber, now));
        self.vault.watchers.subscribed = subscribed;
    }

    /// Tells a subscriber what there is to tell; whether its connection goes on.
    fn is_still_told(&self, subscriber: &mut Subscriber, now: Duration) -> bool {
        // An end, and what is now.
        for _ in 0..2 {
            let word = self.word_for(subscriber.process, subscriber.known);
            let Answer::Epoch { server, state, .. } = word else { return true };
            if subscriber.is_told && (server, state) == subscriber.known {
                break;
            }
            match subscriber.line.upgrade().map_or(Said::Over, |line| line.say(word)) {
                Said::Yes => (subscriber.known, subscriber.is_told) = ((server, state), true),
                Said::NoRoom => return subscriber.is_waited_for(now),
                Said::Over => return false,
            }
        }
        subscriber.stuck = None;
        true
    }
}
