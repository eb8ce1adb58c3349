//! Servers that owe something and do nothing.
//!
//! On an H200 with 580, a `trap` with one stopped victim makes NVIDIA's server hang while it takes the culprit's contexts
//! down: it answers nothing, greets nobody, writes nothing, and the kernel has no Xid line, until the victim goes on or
//! dies. Other servers on the GPU work and start meanwhile, so another one in its place is the whole cure.
//!
//! What a server owes are answers to requests and the greeting of clients that it was told of. It works these off in
//! one thread, one after the other, and a client in its handshake can hold that thread up, as can one that is being
//! terminated. While that may be so nothing is concluded; the driver takes a handshake over from a client after some
//! seconds. Otherwise a server that has done nothing counts as silent
//!
//! - after half a second when there was a sign that one of its clients may have faulted, an end with an error included:
//!   it is tainted by an incident, and has `victims_timeout` to answer, or [`KERNELS_PATIENCE`] where the kernel itself
//!   has said that the server met an error;
//! - after a whole one without such a sign: it only gets no newcomers. Its clients stay, and nothing is ever done to it.
//!
//! The clock alone proves nothing, since what a server has said may lie unread in its socket or in a long queue of the
//! daemon's own. So when the time is over the driver is asked to catch up, and only when it has told all that had come
//! by then, and there was no progress in it, is the server silent. A successor of the daemon begins anew.
//!
//! With handshakes under way both times are [`IN_HANDSHAKES`] times as long, since a crowd's contexts are made one after
//! the other; those of clients that it was told of after a question do not count until that is answered. One that
//! answers after all and is in no fault is left to its clients. When the replacement can't start or is silent, too, a
//! first one with such a sign may block the GPU, and is ended.

use super::Servers;
use super::health::Silence;
use super::questions::{Asked, Purpose};
use super::server::{Server, ServerState};
use crate::core::clients::admission::{Client, Stage};
use crate::core::effect::Turn;
use crate::core::faults::incident::Statement;
use crate::core::faults::taint::Cause;
use crate::core::ids::ServerEpoch;
use crate::core::{Core, DomainId, Effect};
use core::time::Duration;
use remps_proto::mps::server::Request;

/// How much longer a server may do nothing while clients do their handshake with it.
const IN_HANDSHAKES: u32 = 2;
/// For how long a sign of a fault counts when its server falls silent.
const SIGN_REACH: Duration = Duration::from_secs(5);
/// How long the replacement of a silent server may take to start. Alone it takes 0.4 s on a cold driver.
const BLOCKED: Duration = Duration::from_secs(2);
/// How long a silent server of which the kernel itself says that it met an error may still take to drain.
const KERNELS_PATIENCE: Duration = Duration::from_secs(1);

impl Servers {
    /// A server has been asked something, or told of a client. Call it before that is counted.
    pub(in crate::core) fn will_owe(&mut self, now: Duration, epoch: ServerEpoch) {
        let owes = self.all.get(&epoch).is_some_and(|server| self.owes(server));
        if let Some(server) = self.all.get_mut(&epoch).filter(|_| !owes) {
            server.progress_at = now;
        }
    }

    /// A server has done something that it owed, or a client no longer holds it up.
    pub(in crate::core) fn progress(&mut self, turn: &mut Turn, epoch: ServerEpoch) {
        let now = turn.now;
        let Some(server) = self.all.get_mut(&epoch) else {
            return;
        };
        server.progress_at = now;
        if server.silent().is_some() {
            server.set_silence(Silence::Over);
            let pid = server.pid.unwrap_or_default();
            turn.log(format!("Server {pid} answers again"));
            self.ask(turn, epoch, Request::Status, Purpose::FaultCheck);
        }
    }

    fn owes(&self, server: &Server) -> bool {
        server.handshakes > server.with_clients
            || self.questions.values().any(|question| question.server == server.epoch)
    }

    /// Whether a client may be what the server waits for.
    fn is_held_up(&self, server: &Server) -> bool {
        let waits_for_client =
            |purpose: &Purpose| matches!(purpose, Purpose::Command(Asked::Terminate(_)) | Purpose::EndClient(_));
        server.with_clients > 0
            || self
                .questions
                .values()
                .any(|question| question.server == server.epoch && waits_for_client(&question.purpose))
    }

    fn has_sign(&self, server: &Server) -> bool {
        server.ill_at.is_some_and(|at| at + SIGN_REACH >= server.progress_at)
    }

    /// A server says that it is in no fault: one that was ended for its silence alone is left to its clients.
    pub(super) fn is_in_no_fault(&mut self, turn: &mut Turn, epoch: ServerEpoch) {
        if let Some(server) = self.all.get_mut(&epoch)
            && server.tainted().is_some_and(|taint| taint.silence != Silence::Never)
            && let ServerState::Draining(drain) = &mut server.state
            && drain.force_at.take().is_some()
        {
            let pid = server.pid.unwrap_or_default();
            turn.log(format!("Server {pid} is in no fault after all: its clients may stay"));
        }
    }
}

impl Core {
    /// When a server has been silent for too long if it goes on like this.
    fn silent_at(&self, server: &Server) -> Option<Duration> {
        if !server.is_connected()
            || server.silent().is_some()
            || !self.servers.owes(server)
            || self.servers.is_held_up(server)
        {
            return None;
        }
        let constants = &self.turn.policy.constants;
        let patience = if self.servers.has_sign(server) { constants.suspected_silence } else { constants.silence };
        let factor = if self.may_be_in_handshakes(server) { IN_HANDSHAKES } else { 1 };
        Some(server.progress_at + patience * factor)
    }

    /// Whether a server may be busy with handshakes: those of clients that it was told of after a question which it has not
    /// answered yet have not begun.
    fn may_be_in_handshakes(&self, server: &Server) -> bool {
        let begins = |client: &Client| match client.stage {
            Stage::Told { server: told, awaits: None, .. } | Stage::HasEnd { server: told } => told == server.epoch,
            Stage::Told { .. } | Stage::Waiting => false,
        };
        server.handshakes > 0 && self.clients.iter().any(begins)
    }

    /// When to find out whether it is: not again while that is being found out, however late it is.
    fn asks_at(&self, server: &Server) -> Option<Duration> {
        self.silent_at(server).filter(|_| server.catching_up.is_none())
    }

    /// The silent server of a domain that has waited longest, had a sign of a fault, and is not ending.
    fn first_silent(&self, domain: DomainId) -> Option<&Server> {
        // Without a sign of a fault it may as well be the machine that is slow, and its clients would die of that.
        let blocks =
            |server: &&Server| server.silent().is_some() && server.tainted().is_some_and(|taint| taint.incident != 0);
        let silent = self.servers.all.values().filter(|server| server.domain == domain).filter(blocks);
        let silent = silent.filter(|server| !self.clients.has_spared(server.epoch));
        silent.filter(|server| !matches!(server.state, ServerState::Ending { .. })).min_by_key(|server| server.silent())
    }

    /// When the start of this server has taken so long that a silent one may be what blocks it.
    fn blocked_at(&self, server: &Server) -> Option<Duration> {
        (server.is_starting() && self.first_silent(server.domain).is_some()).then_some(server.started_at + BLOCKED)
    }

    pub(in crate::core) fn silence_deadline(&self) -> Option<Duration> {
        if self.turn.quit.is_some() {
            return None;
        }
        self.servers.all.values().flat_map(|server| [self.asks_at(server), self.blocked_at(server)]).flatten().min()
    }

    /// Finds servers that seem to be silent, and those that block their replacement.
    pub(in crate::core) fn advance_silence(&mut self) {
        if self.turn.quit.is_some() {
            return;
        }
        let now = self.turn.now;
        let is_due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
        let quiet = self.servers.all.values().filter(|server| is_due(self.asks_at(server)));
        let quiet: Vec<ServerEpoch> = quiet.map(|server| server.epoch).collect();
        for epoch in quiet {
            if let Some(server) = self.servers.all.get_mut(&epoch) {
                server.catching_up = Some(server.progress_at);
                self.turn.push(Effect::CatchUp { server: epoch });
            }
        }
        let blocked = self.servers.all.values().filter(|server| is_due(self.blocked_at(server)));
        let blocked: Vec<DomainId> = blocked.map(|server| server.domain).collect();
        for domain in blocked {
            self.end_first_silent(domain, "its replacement does not get ready");
        }
    }

    /// Everything has been told that had come when a server seemed to be silent.
    pub(in crate::core) fn caught_up(&mut self, epoch: ServerEpoch) {
        let Some(asked_for) = self.servers.all.get_mut(&epoch).and_then(|server| server.catching_up.take()) else {
            return;
        };
        // What it has been asked, and has not done, since then is another silence, about which nothing is known.
        let is_silent = self.servers.all.get(&epoch).is_some_and(|server| {
            server.progress_at == asked_for && self.silent_at(server).is_some_and(|at| at <= self.turn.now)
        });
        if is_silent && self.turn.quit.is_none() {
            self.is_silent(epoch);
        }
    }

    fn end_first_silent(&mut self, domain: DomainId, why: &str) -> bool {
        let Some((epoch, pid)) = self.first_silent(domain).map(|server| (server.epoch, server.pid)) else {
            return false;
        };
        self.turn.log(format!("Server {} is silent and {why}: it is ended", pid.unwrap_or_default()));
        self.list_victims(epoch);
        self.servers.force(&mut self.turn, epoch);
        true
    }

    fn is_silent(&mut self, epoch: ServerEpoch) {
        let now = self.turn.now;
        let Some(server) = self.servers.all.get(&epoch) else {
            return;
        };
        let (domain, has_sign) = (server.domain, self.servers.has_sign(server));
        let is_first = !self.servers.all.values().any(|other| other.domain == domain && other.silent().is_some());
        if self.end_first_silent(domain, "so is the server in its place") || !is_first {
            // The first one may be what this one waits for, or the machine is slow: a third one would do no better.
            if let Some(server) = self.servers.all.get_mut(&epoch) {
                server.progress_at = now;
            }
            return;
        }
        let kernels_word = self.faults.has_kernels_word(epoch);
        let cause = if has_sign {
            let statement = Statement::new("server-status", None, "no answer".to_owned());
            Cause::Fault(self.testify(epoch, statement))
        } else {
            Cause::Silence
        };
        self.taint(epoch, cause);
        self.servers.with(epoch, |server| server.set_silence(Silence::Since(now)));
        if has_sign && kernels_word {
            self.servers.hurry(epoch, now + KERNELS_PATIENCE);
        }
    }
}
