//! When a server drains, is forced, and is given up, and what its end means.

use super::domain::Domain;
use super::questions::Purpose;
use super::server::{Drain, Leaving, Server, ServerState};
use super::{Clientele, Servers};
use crate::core::effect::Turn;
use crate::core::events::{EarlyEnd, ExitReason, JournalEvent};
use crate::core::evidence::End;
use crate::core::ids::{DomainId, ServerEpoch};
use crate::core::{Effect, ExitCause, NoReply, ServerSignal};
use core::time::Duration;
use remps_proto::mps::server::{Reply, Request};

impl Servers {
    /// Asks a server to end when it has no clients, again and again; by `force_at` it is forced.
    pub(in crate::core) fn drain(
        &mut self,
        turn: &mut Turn,
        epoch: ServerEpoch,
        force_at: Option<Duration>,
        because_idle: bool,
    ) {
        self.begin_drain(turn, epoch, force_at, because_idle);
        if let Some(ServerState::Draining(drain)) = self.all.get_mut(&epoch).map(|server| &mut server.state) {
            drain.is_ordered |= !because_idle;
            drain.ordered_force_at = [drain.ordered_force_at, force_at].into_iter().flatten().min();
        }
    }

    /// The same for want of a sound server, which is called off when that is so for some of its clients only.
    pub(in crate::core) fn drain_after_fault(
        &mut self,
        turn: &mut Turn,
        epoch: ServerEpoch,
        force_at: Option<Duration>,
    ) {
        self.begin_drain(turn, epoch, force_at, false);
    }

    fn begin_drain(&mut self, turn: &mut Turn, epoch: ServerEpoch, force_at: Option<Duration>, because_idle: bool) {
        let now = turn.now;
        let Some(server) = self.all.get_mut(&epoch) else {
            return;
        };
        match &mut server.state {
            ServerState::Starting { .. } => self.force(turn, epoch),
            ServerState::Serving => {
                server.state = ServerState::Draining(Drain::starting(now, force_at, because_idle));
                turn.save();
            }
            ServerState::Draining(drain) => {
                if drain.because_idle && !because_idle {
                    drain.because_idle = false;
                    turn.save();
                }
                drain.force_at = [drain.force_at, force_at].into_iter().flatten().min();
                if let Some(ask_at) = &mut drain.ask_at {
                    *ask_at = now;
                }
            }
            ServerState::Ending { leaving, .. } => {
                if *leaving == Leaving::Lost {
                    *leaving = Leaving::Forced;
                }
            }
        }
    }

    /// Ends a server whatever its clients do: SIGINT now, as the vendor, and SIGKILL when that did not help.
    pub(in crate::core) fn force(&mut self, turn: &mut Turn, epoch: ServerEpoch) {
        self.end(turn, epoch, Leaving::Forced);
    }

    /// Ends a server that a fault has spoilt, without asking it: with SIGKILL, so that its channels are gone as soon as can
    /// be.
    pub(in crate::core) fn kill_spoilt(&mut self, turn: &mut Turn, epoch: ServerEpoch, reason: EarlyEnd) {
        if let Some(server) = self.all.get_mut(&epoch) {
            server.state = ServerState::Ending { kill_at: None, leaving: Leaving::Spoilt(reason) };
            turn.save();
            turn.push(Effect::Signal { server: epoch, signal: ServerSignal::Kill });
        }
    }

    fn end(&mut self, turn: &mut Turn, epoch: ServerEpoch, leaving: Leaving) {
        let now = turn.now;
        let Some(server) = self.all.get_mut(&epoch) else {
            return;
        };
        if let ServerState::Ending { kill_at, leaving: why } = &mut server.state {
            // Who had been idle goes for that, however long it takes.
            if *why != Leaving::Idle && (kill_at.is_some() || *why == Leaving::Lost) {
                *why = leaving;
            }
            if kill_at.is_none() {
                return;
            }
            *kill_at = Some(now + turn.policy.kill_timeout);
        } else {
            server.state = ServerState::Ending { kill_at: Some(now + turn.policy.kill_timeout), leaving };
        }
        if let Some(pid) = server.pid {
            turn.log(format!("Force shutting down server {pid}"));
        }
        turn.save();
        turn.push(Effect::Signal { server: epoch, signal: ServerSignal::Interrupt });
    }

    /// The answer to a request to end when idle.
    pub(in crate::core) fn shutdown_answered(
        &mut self,
        turn: &mut Turn,
        epoch: ServerEpoch,
        reply: Result<Reply, NoReply>,
    ) {
        let now = turn.now;
        let kill_at = now + turn.policy.kill_timeout;
        let Some(server) = self.all.get_mut(&epoch) else {
            return;
        };
        let ServerState::Draining(drain) = &mut server.state else {
            return;
        };
        let pid = server.pid.unwrap_or_default();
        let workers = match reply {
            Ok(Reply::ActiveWorkers(0)) => {
                let leaving = match drain {
                    Drain { because_idle: true, .. } => Leaving::Idle,
                    Drain { makes_room: true, .. } => Leaving::MakingRoom,
                    Drain { .. } => Leaving::Drained,
                };
                server.state = ServerState::Ending { kill_at: Some(kill_at), leaving };
                turn.save();
                return;
            }
            Ok(Reply::ActiveWorkers(workers)) => Ok(workers),
            Ok(_) | Err(NoReply::TimedOut | NoReply::Unsupported) => Err(NoReply::TimedOut),
            // Its link is gone: the process is about to follow, and a deadline is set when the loss is handled.
            Err(NoReply::Lost) => return,
        };
        if drain.because_idle {
            server.state = ServerState::Serving;
            server.idle_since = None;
            return;
        }
        let pause = drain.pauses.next_delay();
        drain.ask_at = Some(now + pause);
        match workers {
            Ok(workers) => {
                turn.log(format!("Server {pid} has {workers} active worker threads. Server will not shutdown."));
            }
            Err(reason) => turn.log(format!("Server {pid} can't be asked to shut down: {reason}")),
        }
        turn.log(format!("Control will try shutting down server {pid} again in at most {}ms", pause.as_millis()));
    }

    pub(in crate::core) fn server_link_lost(&mut self, turn: &mut Turn, epoch: ServerEpoch, reason: &str) {
        let Some(server) = self.all.get(&epoch) else {
            return;
        };
        if matches!(server.state, ServerState::Ending { .. }) {
            return;
        }
        let leaving = if server.is_told_to_end() { Leaving::Forced } else { Leaving::Lost };
        if leaving == Leaving::Lost {
            let pid = server.pid.unwrap_or_default();
            turn.log(format!("Server {pid} can't be controlled any longer: {reason}"));
        }
        self.end(turn, epoch, leaving);
    }

    /// Why a server has ended that is gone now.
    fn exit_reason(&self, server: &Server) -> ExitReason {
        if server.tainted().is_some() {
            return ExitReason::Fault;
        }
        let by_itself = if server.ready_at.is_none() { ExitReason::ExecFailed } else { ExitReason::Crash };
        match &server.state {
            ServerState::Starting { .. } | ServerState::Serving => by_itself,
            ServerState::Draining(Drain { makes_room: true, .. }) => ExitReason::UidSwitch,
            ServerState::Draining(_) => ExitReason::Asked,
            ServerState::Ending { leaving, .. } => match leaving {
                Leaving::Lost => by_itself,
                Leaving::Idle => ExitReason::Idle,
                Leaving::Forced | Leaving::Spoilt(_) => ExitReason::Forced,
                Leaving::MakingRoom => ExitReason::UidSwitch,
                Leaving::Drained => ExitReason::Asked,
            },
        }
    }

    /// A domain's server has served or lived for long enough, or was asked to end: earlier failures don't count any longer.
    fn domain_is_sound(&mut self, turn: &mut Turn, id: DomainId) {
        let Some(domain) = self.domains.get_mut(id) else {
            return;
        };
        domain.starts.reset();
        domain.retry_at = None;
        domain.failures.clear();
        if core::mem::take(&mut domain.breaker_open) {
            let (uid, domain) = (domain.key.uid, domain.name());
            turn.record(JournalEvent::BreakerClosed { uid, domain });
        }
    }

    /// A server is no more; its process may be.
    pub(in crate::core) fn take(&mut self, epoch: ServerEpoch) -> Option<Server> {
        let server = self.all.remove(&epoch)?;
        self.awaited_ends.remove(&epoch);
        self.reaped.note(&server);
        Some(server)
    }

    /// The process of a server that is no more has ended; whether that was a start that failed.
    #[must_use]
    pub(in crate::core) fn has_exited(
        &mut self,
        turn: &mut Turn,
        clients: &impl Clientele,
        server: &Server,
        cause: ExitCause,
    ) -> bool {
        let (now, epoch) = (turn.now, server.epoch);
        let pid = server.pid.unwrap_or_default();
        let (status, words, end) = match cause {
            ExitCause::Exited(status) => (status, String::new(), End::Exited(status)),
            ExitCause::Signaled(signal) => (0, format!(" (ended by signal {signal})"), End::Signaled(signal)),
            ExitCause::Unknown => (0, " (its status is not known to this daemon)".to_owned(), End::Unknown),
        };
        if !server.is_told_to_end() && server.ready_at.is_some() {
            turn.log("Server encountered a fatal exception. Shutting down");
        }
        turn.log(format!("Server {pid} exited with status {status}{words}"));
        let (uid, domain, reason) = (server.uid, self.domain_name(server.domain), self.exit_reason(server));
        turn.record(JournalEvent::ServerExited { epoch, server: server.pid, uid, domain, end, reason });
        if let Some(quit) = &mut turn.quit {
            let status = u8::try_from(status & 0xff).unwrap_or(u8::MAX);
            quit.status = quit.status.max(status);
        }
        turn.save();
        // It may have been in the way of those that could not start: one that was up also of those that have failed so
        // often that they are left alone. One that has never been up is not, or two that fail would start each other.
        let held_up = |(id, _): &(DomainId, &mut Domain)| *id != server.domain || server.tainted().is_some();
        let was_up = server.ready_at.is_some();
        for (_, domain) in self.domains.iter_mut().filter(held_up).filter(|(_, domain)| was_up || !domain.breaker_open)
        {
            domain.retry_at = domain.retry_at.map(|at| at.min(now));
        }
        // A fault is its clients' doing, and the replacement has its own tries.
        if server.tainted().is_some() {
            return false;
        }
        let stable = server.ready_at.is_some_and(|at| now.saturating_sub(at) >= turn.policy.constants.stable_after);
        // One that has served can be started, and whoever its clients have brought down with them must not keep the next
        // ones waiting: some faults end it before it says so.
        if server.is_told_to_end() || server.has_served || stable {
            self.domain_is_sound(turn, server.domain);
            false
        } else {
            let reason = match cause {
                ExitCause::Exited(status) => format!("it exited with status {status}"),
                ExitCause::Signaled(signal) => format!("signal {signal} ended it"),
                ExitCause::Unknown => "it ended".to_owned(),
            };
            self.start_failed(turn, clients, server, &reason);
            true
        }
    }

    /// Whether a server that drains has had its time.
    pub(in crate::core) fn is_overdue(&self, now: Duration, epoch: ServerEpoch) -> bool {
        self.get(epoch).and_then(Server::forced_at).is_some_and(|at| at <= now)
    }

    /// Acts on the deadlines of a server that goes on.
    pub(in crate::core) fn advance(&mut self, turn: &mut Turn, epoch: ServerEpoch) {
        let now = turn.now;
        let Some(server) = self.all.get_mut(&epoch) else {
            return;
        };
        let pid = server.pid.unwrap_or_default();
        let is_to_be_asked = server.is_to_be_asked(now);
        match &mut server.state {
            ServerState::Starting { deadline } if *deadline <= now => {
                turn.log(format!("Server {pid} did not become ready in {:?}", turn.policy.start_timeout));
                self.end(turn, epoch, Leaving::Lost);
            }
            ServerState::Draining(drain) if is_to_be_asked => {
                drain.ask_at = None;
                let quiet = drain.because_idle;
                let backoff = if drain.pauses.tries() == 0 { "disabled" } else { "enabled" };
                if !quiet {
                    turn.log(format!("Try shutting down server {pid}, backoff is {backoff}"));
                }
                self.ask(turn, epoch, Request::Shutdown, Purpose::Shutdown);
            }
            ServerState::Ending { kill_at, .. } if kill_at.is_some_and(|at| at <= now) => {
                *kill_at = None;
                turn.log(format!("Server {pid} did not end, killing it"));
                turn.push(Effect::Signal { server: epoch, signal: ServerSignal::Kill });
            }
            ServerState::Starting { .. }
            | ServerState::Serving
            | ServerState::Draining(_)
            | ServerState::Ending { .. } => {}
        }
    }

    /// When the daemon's own end forces servers.
    pub(in crate::core) fn quit_deadline(&self, turn: &Turn) -> Option<Duration> {
        // Once forced, the servers' own deadlines count.
        let quit = turn.quit.as_ref()?;
        quit.force_at.filter(|_| self.iter().any(|s| !matches!(s.state, ServerState::Ending { .. })))
    }
}
