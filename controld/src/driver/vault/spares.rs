//! Spare copies of the driver, as programs ask about them: a place is asked for and waited for, and a program is told when
//! it is no more.
//!
//! The core decides ([`SparePlace`]). What it is told of a request is answered only when that is done and noted with the
//! holder, so that whoever has an answer finds the same with a successor. One request for each process waits at a time.
//!
//! That a place is no more is said on every connection on which the program has asked for it or has told of it. A program
//! that has lost its connection asks on the next one how things are, by telling how far its copy is.

use super::keeper::Keeper;
use super::names::MOST_WAIT;
use super::new_number;
use crate::core::{Input, ProcessKey, SparePlace, Standing};
use crate::door::ReplyTo;
use crate::door::client::Client;
use crate::door::line::{Line, Said};
use crate::driver::turn::Turn;
use crate::patience::patient;
use remps_proto::shim::{Answer, Failure};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a program may leave such news unread, and how often it is tried meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// A program that waits for a place.
#[derive(Debug)]
struct Waiting {
    client: Arc<Client>,
    until: Duration,
    reply: ReplyTo,
}

/// A word that there was no room for.
#[derive(Debug)]
struct Stuck {
    token: u64,
    line: Weak<Line>,
    since: Duration,
    again: Duration,
}

/// Programs that wait, and those that are to be told.
#[derive(Debug, Default)]
pub(super) struct Spares {
    waiting: Vec<Waiting>,
    /// What is answered as soon as everything that was asked for before is done.
    settled: Vec<(ReplyTo, Result<usize, Failure>)>,
    lines: Vec<(ProcessKey, Weak<Line>)>,
    stuck: Vec<Stuck>,
}

impl Spares {
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let again = self.stuck.iter().map(|stuck| stuck.again);
        self.waiting.iter().map(|waiting| waiting.until).chain(again).min()
    }

    pub(super) fn has(&self, process: ProcessKey) -> bool {
        self.waiting.iter().any(|waiting| waiting.client.caller.process == process)
    }

    /// A process has ended and asks for nothing any more.
    pub(super) fn forget(&mut self, process: ProcessKey) {
        self.waiting.retain(|waiting| waiting.client.caller.process != process);
        self.lines.retain(|(other, _)| *other != process);
    }

    /// A program is told on this connection from now on.
    fn listens(&mut self, process: ProcessKey, line: &Weak<Line>) {
        self.lines.retain(|(_, other)| other.strong_count() > 0 && !other.ptr_eq(line));
        self.lines.push((process, Weak::clone(line)));
    }

    fn say(&mut self, now: Duration, token: u64, line: &Weak<Line>, since: Duration) {
        let Some(open) = line.upgrade() else { return };
        if open.say(Answer::SpareVoid { token }) != Said::NoRoom {
            return;
        }
        if now.saturating_sub(since) >= patient(PATIENCE) {
            open.hang_up();
            return;
        }
        self.stuck.push(Stuck { token, line: Weak::clone(line), since, again: now + TRY_AGAIN });
    }
}

impl Keeper {
    /// A program asks for a place for a spare copy.
    pub(super) fn wants_spare(
        &mut self,
        turn: &mut Turn<'_>,
        client: Arc<Client>,
        wait_ms: u64,
        line: &Weak<Line>,
        reply: ReplyTo,
    ) {
        let (process, patience) = (client.caller.process, Duration::from_millis(wait_ms).min(MOST_WAIT));
        self.spares.listens(process, line);
        // Who asks again has given up its first request, or lost the connection that it was made on.
        let before = self.spares.waiting.extract_if(.., |waiting| waiting.client.caller.process == process);
        before.for_each(|waiting| waiting.reply.done(Err(Failure::NOT_YET)));
        if turn.core.spare_of(process) == SparePlace::None {
            let Some(token) = new_number() else {
                return reply.done(Err(Failure::NO_SPARE_SERVER));
            };
            turn.feed(Input::SpareWanted { process, token, patience });
        }
        // Its end must be noticed while it waits.
        self.watch_caller(&client);
        self.spares.waiting.push(Waiting { client, until: turn.now.saturating_add(patience), reply });
    }

    /// A program tells how far its spare copy is.
    pub(super) fn spare_stands(
        &mut self,
        turn: &mut Turn<'_>,
        of: (ProcessKey, u64),
        standing: Standing,
        line: &Weak<Line>,
        reply: ReplyTo,
    ) {
        let (process, token) = of;
        self.spares.listens(process, line);
        self.tells_of_spare(turn, of, Input::SpareStands { process, token, standing }, reply);
    }

    /// A program goes on with its spare copy. It may say so again, or when that is known already.
    pub(super) fn spare_lives(&mut self, turn: &mut Turn<'_>, of: (ProcessKey, u64), reply: ReplyTo) {
        let (process, token) = of;
        if turn.core.spare_has_lived(process, token) {
            reply.done(Ok(0));
        } else {
            self.tells_of_spare(turn, of, Input::SpareLives { process, token }, reply);
        }
    }

    /// A program has given its spare copy up.
    pub(super) fn spare_gone(&mut self, turn: &mut Turn<'_>, of: (ProcessKey, u64), reply: ReplyTo) {
        let (process, token) = of;
        self.tells_of_spare(turn, of, Input::SpareGone { process, token }, reply);
    }

    fn tells_of_spare(&mut self, turn: &mut Turn<'_>, of: (ProcessKey, u64), input: Input, reply: ReplyTo) {
        let (process, token) = of;
        let is_granted =
            matches!(turn.core.spare_of(process), SparePlace::Granted { token: known, .. } if known == token);
        if is_granted {
            turn.feed(input);
            self.spares.settled.push((reply, Ok(0)));
        } else {
            reply.done(Err(Failure::NOT_FOUND));
        }
    }

    /// Answers those whose place has been decided on. Called after everything that happens.
    pub(in crate::driver) fn answer_about_spares(&mut self, turn: &Turn<'_>) {
        for (reply, result) in self.spares.settled.drain(..) {
            reply.done(result);
        }
        let is_decided = |waiting: &mut Waiting| {
            waiting.until <= turn.now || turn.core.spare_of(waiting.client.caller.process) != SparePlace::Wanted
        };
        let decided: Vec<Waiting> = self.spares.waiting.extract_if(.., is_decided).collect();
        for Waiting { client, until, reply } in decided {
            let process = client.caller.process;
            match turn.core.spare_of(process) {
                SparePlace::Granted { token, server } => {
                    reply.answer(vec![(Answer::Spare { token, server: server.0 }, None)]);
                }
                SparePlace::None if until > turn.now => reply.done(Err(Failure::NO_SPARE_SERVER)),
                SparePlace::None | SparePlace::Wanted => reply.done(Err(Failure::NOT_YET)),
            }
            self.forget(process);
        }
        let due: Vec<Stuck> = self.spares.stuck.extract_if(.., |stuck| stuck.again <= turn.now).collect();
        for Stuck { token, line, since, .. } in due {
            self.spares.say(turn.now, token, &line, since);
        }
    }

    /// A program's spare copy has no place any more.
    pub(in crate::driver) fn spare_is_void(&mut self, turn: &Turn<'_>, process: ProcessKey, token: u64) {
        let lines = self.spares.lines.iter().filter(|(other, _)| *other == process);
        let lines: Vec<Weak<Line>> = lines.map(|(_, line)| Weak::clone(line)).collect();
        for line in lines {
            self.spares.say(turn.now, token, &line, turn.now);
        }
    }
}
