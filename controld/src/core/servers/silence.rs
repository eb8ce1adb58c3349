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
//!   it is tainted by an incident, and has `victims_timeout` to answer, or a second where the kernel itself
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

use super::health::Silence;
use super::questions::{Asked, Purpose};
use super::server::{Server, ServerState};
use super::{Clientele, Servers};
use crate::core::effect::Turn;
use crate::core::ids::ServerEpoch;
use crate::core::{DomainId, Effect};
use core::time::Duration;
use remps_proto::mps::server::Request;

/// How much longer a server may do nothing while clients do their handshake with it.
const IN_HANDSHAKES: u32 = 2;
/// For how long a sign of a fault counts when its server falls silent.
const SIGN_REACH: Duration = Duration::from_secs(5);
/// How long the replacement of a silent server may take to start. Alone it takes 0.4 s on a cold driver.
const BLOCKED: Duration = Duration::from_secs(2);

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
        let waits_for_client = |purpose: &Purpose| {
            matches!(
                purpose,
                Purpose::Command(Asked::Terminate(_) | Asked::TerminateHidden(..))
                    | Purpose::EndClient(_)
                    | Purpose::EndGuest(_)
            )
        };
        server.with_clients > 0
            || self
                .questions
                .values()
                .any(|question| question.server == server.epoch && waits_for_client(&question.purpose))
    }

    pub(in crate::core) fn has_sign(&self, server: &Server) -> bool {
        server.ill_at.is_some_and(|at| at + SIGN_REACH >= server.progress_at)
    }

    /// A server says that it is in no fault: one that was ended for its silence alone is left to its clients.
    pub(in crate::core) fn is_in_no_fault(&mut self, turn: &mut Turn, epoch: ServerEpoch) {
        if let Some(server) = self.all.get_mut(&epoch)
            && server.tainted().is_some_and(|taint| taint.silence != Silence::Never)
            && let ServerState::Draining(drain) = &mut server.state
            && drain.force_at.take().is_some()
        {
            let pid = server.pid.unwrap_or_default();
            turn.log(format!("Server {pid} is in no fault after all: its clients may stay"));
        }
    }

    /// When a server has been silent for too long if it goes on like this.
    fn silent_at(&self, turn: &Turn, clients: &impl Clientele, server: &Server) -> Option<Duration> {
        if !server.is_connected() || server.silent().is_some() || !self.owes(server) || self.is_held_up(server) {
            return None;
        }
        let constants = &turn.policy.constants;
        let patience = if self.has_sign(server) { constants.suspected_silence } else { constants.silence };
        let are_in_handshakes = server.handshakes > 0 && clients.are_in_handshakes(server.epoch);
        let factor = if are_in_handshakes { IN_HANDSHAKES } else { 1 };
        Some(server.progress_at + patience * factor)
    }

    /// When to find out whether it is: not again while that is being found out, however late it is.
    fn asks_at(&self, turn: &Turn, clients: &impl Clientele, server: &Server) -> Option<Duration> {
        self.silent_at(turn, clients, server).filter(|_| server.catching_up.is_none())
    }

    /// The silent server of a domain that has waited longest, had a sign of a fault, and is not ending.
    pub(in crate::core) fn first_silent(&self, clients: &impl Clientele, domain: DomainId) -> Option<&Server> {
        // Without a sign of a fault it may as well be the machine that is slow, and its clients would die of that.
        let blocks =
            |server: &&Server| server.silent().is_some() && server.tainted().is_some_and(|taint| taint.incident != 0);
        let silent = self.all.values().filter(|server| server.domain == domain).filter(blocks);
        let silent = silent.filter(|server| !clients.has_spared(server.epoch));
        silent.filter(|server| !matches!(server.state, ServerState::Ending { .. })).min_by_key(|server| server.silent())
    }

    /// When the start of this server has taken so long that a silent one may be what blocks it.
    fn blocked_at(&self, clients: &impl Clientele, server: &Server) -> Option<Duration> {
        (server.is_starting() && self.first_silent(clients, server.domain).is_some())
            .then_some(server.started_at + BLOCKED)
    }

    pub(in crate::core) fn silence_deadline(&self, turn: &Turn, clients: &impl Clientele) -> Option<Duration> {
        if turn.quit.is_some() {
            return None;
        }
        self.all
            .values()
            .flat_map(|server| [self.asks_at(turn, clients, server), self.blocked_at(clients, server)])
            .flatten()
            .min()
    }

    /// Has the driver catch up on servers that seem to be silent; the domains in which one blocks its replacement.
    pub(in crate::core) fn advance_silence(&mut self, turn: &mut Turn, clients: &impl Clientele) -> Vec<DomainId> {
        let now = turn.now;
        let is_due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
        let quiet = self.all.values().filter(|server| is_due(self.asks_at(turn, clients, server)));
        let quiet: Vec<ServerEpoch> = quiet.map(|server| server.epoch).collect();
        for epoch in quiet {
            self.with(epoch, |server| server.catching_up = Some(server.progress_at));
            turn.push(Effect::CatchUp { server: epoch });
        }
        let blocked = self.all.values().filter(|server| is_due(self.blocked_at(clients, server)));
        blocked.map(|server| server.domain).collect()
    }

    /// Everything has been told that had come when a server seemed to be silent; whether it is.
    #[must_use]
    pub(in crate::core) fn caught_up(&mut self, turn: &Turn, clients: &impl Clientele, epoch: ServerEpoch) -> bool {
        let Some(asked_for) = self.all.get_mut(&epoch).and_then(|server| server.catching_up.take()) else {
            return false;
        };
        // What it has been asked, and has not done, since then is another silence, about which nothing is known.
        self.all.get(&epoch).is_some_and(|server| {
            server.progress_at == asked_for && self.silent_at(turn, clients, server).is_some_and(|at| at <= turn.now)
        })
    }

    /// Whether another server of its domain is silent.
    pub(in crate::core) fn is_another_silent(&self, domain: DomainId) -> bool {
        self.all.values().any(|other| other.domain == domain && other.silent().is_some())
    }

    /// A server that is silent has as long again.
    pub(in crate::core) fn has_time_again(&mut self, now: Duration, epoch: ServerEpoch) {
        self.with(epoch, |server| server.progress_at = now);
    }

    /// A server that is tainted says nothing from now on.
    pub(in crate::core) fn falls_silent(&mut self, now: Duration, epoch: ServerEpoch) {
        self.with(epoch, |server| server.set_silence(Silence::Since(now)));
    }
}
