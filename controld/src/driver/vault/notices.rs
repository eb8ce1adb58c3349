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

use super::keeper::Keeper;
use super::names::MOST_WAIT;
use super::part_of;
use crate::core::{Core, ProcessKey, ServerEpoch};
use crate::door::ReplyTo;
use crate::door::client::Client;
use crate::door::line::{Line, Said};
use crate::driver::turn::Turn;
use crate::failpoint::reached;
use crate::patience::patient;
use remps_proto::shim::{Answer, ServerState};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a program may leave its news unread, and how often it is tried meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// A program that wants to know when its server is another one, or otherwise, than it was.
#[derive(Debug)]
struct Watcher {
    client: Arc<Client>,
    known: (u64, ServerState),
    until: Duration,
    reply: ReplyTo,
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

    /// Tells it what there is to tell; whether its connection goes on.
    fn is_still_told(&mut self, core: &Core, now: Duration) -> bool {
        // An end, and what is now.
        for _ in 0..2 {
            let word = word_for(core, self.process, self.known);
            let Answer::Epoch { server, state, .. } = word else { return true };
            if self.is_told && (server, state) == self.known {
                break;
            }
            match self.line.upgrade().map_or(Said::Over, |line| line.say(word)) {
                Said::Yes => (self.known, self.is_told) = ((server, state), true),
                Said::NoRoom => return self.is_waited_for(now),
                Said::Over => return false,
            }
        }
        self.stuck = None;
        true
    }
}

impl Watcher {
    fn answer(self, core: &Core) {
        let word = word_for(core, self.client.caller.process, self.known);
        self.reply.answer(vec![(word, None)]);
    }
}

/// What a process is told of its server that was told of this one last.
fn word_for(core: &Core, process: ProcessKey, (known, state): (u64, ServerState)) -> Answer {
    let is_reaped = known != 0 && core.fate_of_server(ServerEpoch(known)).is_none();
    let (server, state) = match core.fate_of(process) {
        // What it waits for most, and before it is told of another one.
        _ if is_reaped && state != ServerState::GONE => (known, ServerState::GONE),
        None => {
            // Who asks for the first time may have lost its server before.
            let is_first = known == 0 && state != ServerState::NONE;
            let former = core.former_server_of(process).filter(|server| core.fate_of_server(*server).is_none());
            former.filter(|_| is_first).map_or((0, ServerState::NONE), |server| (server.0, ServerState::GONE))
        }
        Some((server, _)) if core.has_lost(process) => (server.0, ServerState::TAINTED),
        Some((server, _)) => (server.0, ServerState::HEALTHY),
    };
    Answer::Epoch { server, state, part: part_of(core, process, ServerEpoch(server)) }
}

impl Keeper {
    /// A program asks to be told when its server is no longer as it `known`s it.
    pub(super) fn asks_for_news(
        &mut self,
        turn: &Turn<'_>,
        client: Arc<Client>,
        known: (u64, ServerState),
        wait_ms: u64,
        reply: ReplyTo,
    ) {
        reached("news-asked");
        let process = client.caller.process;
        // Who asks again has given up its first request, or lost the connection that it was made on.
        let before = self.watchers.asking.extract_if(.., |watcher| watcher.client.caller.process == process);
        before.for_each(|watcher| watcher.answer(turn.core));
        let until = turn.now.saturating_add(Duration::from_millis(wait_ms).min(MOST_WAIT));
        // Its end must be noticed while it waits.
        self.watch_caller(&client);
        self.watchers.asking.push(Watcher { client, known, until, reply });
    }

    /// A program wants to be told unasked from now on.
    pub(super) fn subscribe(&mut self, process: ProcessKey, server: u64, line: Weak<Line>, reply: ReplyTo) {
        reached("news-asked");
        let subscribed = &mut self.watchers.subscribed;
        // It may ask for everything anew; and connections that are over are as many at most as there have been at a time.
        subscribed.retain(|other| other.line.strong_count() > 0 && !other.line.ptr_eq(&line));
        let known = (server, ServerState::HEALTHY);
        subscribed.push(Subscriber { process, line, known, is_told: false, stuck: None });
        reply.done(Ok(0));
    }

    /// Tells those whose server is no longer as they were told. Called after everything that happens.
    pub(in crate::driver) fn tell_watchers(&mut self, turn: &Turn<'_>) {
        let is_due = |watcher: &mut Watcher| {
            let word = word_for(turn.core, watcher.client.caller.process, watcher.known);
            watcher.until <= turn.now
                || !matches!(word, Answer::Epoch { server, state, .. } if (server, state) == watcher.known)
        };
        let due: Vec<Watcher> = self.watchers.asking.extract_if(.., is_due).collect();
        for watcher in due {
            let process = watcher.client.caller.process;
            watcher.answer(turn.core);
            self.forget(process);
        }
        self.watchers.subscribed.retain_mut(|subscriber| subscriber.is_still_told(turn.core, turn.now));
    }
}
