//! When a server starts, drains, is forced, is given up and started again.

use super::domain::Domain;
use super::evidence::End;
use super::ids::{ConnectionId, DomainId, Pid, ServerEpoch};
use super::journal::{ExitReason, FuneralEnd, JournalEvent, StartReason};
use super::questions::Purpose;
use super::server::{Drain, Role, Server, ServerState};
use super::{Core, Effect, ExitCause, NoReply, Peer, ServerSignal, Sharing};
use core::time::Duration;
use remps_proto::mps::device::DeviceKey;
use remps_proto::mps::server::{Configuration, Reply, Request};

/// How soon a draining server is asked again when the process of one of its clients has ended: it needs a moment to
/// notice that itself.
const ASK_AFTER_EXIT: Duration = Duration::from_millis(20);

impl Server {
    /// A client's process has ended: a drain that waits for that asks again soon.
    pub(super) fn client_left(&mut self, now: Duration) {
        if let ServerState::Draining(drain) = &mut self.state
            && let Some(ask_at) = &mut drain.ask_at
        {
            *ask_at = (*ask_at).min(now + ASK_AFTER_EXIT);
            drain.pauses.reset();
        }
    }
}

impl Core {
    // ---- start -------------------------------------------------------------------------------------------------

    /// Asks for a server of a domain, as `start_server` does.
    pub(super) fn request_server(&mut self, domain: DomainId) {
        if let Some(domain) = self.domains.get_mut(domain) {
            domain.requested = true;
        }
    }

    /// Starts servers where clients wait, and makes room for them where only one may run.
    pub(super) fn advance_domains(&mut self, now: Duration) {
        let domains: Vec<DomainId> = self.domains.iter().map(|(id, _)| id).collect();
        for domain in domains {
            self.dispatch_waiting(domain);
            self.start_if_wanted(now, domain);
        }
        // A domain that nobody needs is forgotten, its failures with it once they are old.
        let servers = &self.servers;
        self.domains.retain(|id, domain| {
            domain.requested
                || !domain.waiting.is_empty()
                || domain.retry_at.is_some_and(|at| at > now)
                || servers.values().any(|server| server.domain == id)
        });
    }

    fn start_if_wanted(&mut self, now: Duration, id: DomainId) {
        if self.quit.is_some() {
            return;
        }
        if self.domains.get(id).is_some_and(|domain| self.wants_server(domain)) {
            self.promote(now, id);
            self.start_active(now, id);
        }
        // Never two starts of one domain at a time.
        let is_time = |domain: &Domain| domain.standby_retry_at.is_none_or(|at| at <= now);
        if self.wants_standby(id) && self.domains.get(id).is_some_and(is_time) {
            if let Some(domain) = self.domains.get_mut(id) {
                domain.standby_retry_at = None;
            }
            self.start_server(now, id, Role::Standby, StartReason::Standby);
        }
    }

    fn start_active(&mut self, now: Duration, id: DomainId) {
        if let Some(server) = self.server_for_newcomers(id) {
            let is_active = server.is_active();
            if let Some(domain) = self.domains.get_mut(id) {
                domain.requested &= !is_active;
                // Set by an earlier server's end, when this one was on its way already.
                domain.retry_at = None;
            }
            return;
        }
        let Some(domain) = self.domains.get_mut(id) else {
            return;
        };
        if domain.retry_at.is_some_and(|at| at > now) {
            return;
        }
        domain.retry_at = None;
        // A server that a fault has spoilt serves nobody, and its own domain need not wait for its end.
        let is_other = |server: &Server| server.tainted.is_none() || server.domain != id;
        if self.policy.sharing == Sharing::Single && self.servers.values().any(is_other) {
            self.queue_behind_others(now);
            return;
        }
        let reason = self.start_reason(id);
        self.start_server(now, id, Role::Active, reason);
        if let Some(domain) = self.domains.get_mut(id) {
            domain.requested = false;
        }
    }

    fn start_server(&mut self, now: Duration, id: DomainId, role: Role, reason: StartReason) {
        let Some(domain) = self.domains.get(id) else {
            return;
        };
        let (uid, gid) = (domain.key.uid, domain.gid);
        let epoch = ServerEpoch(self.next_epoch);
        self.next_epoch += 1;
        let state = ServerState::Starting { deadline: now + self.policy.start_timeout };
        let server = Server { role, reason, ..Server::new(epoch, id, uid, now, state) };
        self.servers.insert(epoch, server);
        let gid = if uid == self.policy.owner { self.policy.owner_gid } else { gid };
        let multi_user = self.policy.sharing == Sharing::MultiUser;
        self.effects.push(Effect::SpawnServer { server: epoch, uid, gid, multi_user });
    }

    /// The vendor's rule: the other user's server is asked to go as soon as its clients have left.
    fn queue_behind_others(&mut self, now: Duration) {
        let others: Vec<ServerEpoch> = self
            .servers
            .values()
            .filter(|server| matches!(server.state, ServerState::Serving))
            .map(|server| server.epoch)
            .collect();
        for epoch in others {
            self.drain(now, epoch, None, false);
            if let Some(server) = self.servers.get_mut(&epoch) {
                server.makes_room = true;
            }
        }
    }

    pub(super) fn server_spawned(&mut self, epoch: ServerEpoch, pid: Pid) {
        let Some(server) = self.servers.get_mut(&epoch) else {
            return;
        };
        server.pid = Some(pid);
        let (uid, domain, reason) = (server.uid, server.domain, server.reason);
        self.log(format!("Starting new server {pid} for user {uid}"));
        let domain = self.domain_name(domain);
        self.record(JournalEvent::ServerStarted { epoch, server: pid, uid, domain, reason });
        self.effects.push(Effect::Save);
    }

    pub(super) fn spawn_failed(&mut self, now: Duration, epoch: ServerEpoch, reason: &str) {
        if let Some(server) = self.servers.remove(&epoch)
            && !server.end_wanted
        {
            let (uid, domain) = (server.uid, self.domain_name(server.domain));
            let text = reason.to_owned();
            self.record(JournalEvent::ServerStartFailed { epoch, uid, domain, text });
            self.start_failed(now, &server, reason);
        }
    }

    /// Waits before the next try, and says once a try what is wrong and what happens next.
    fn start_failed(&mut self, now: Duration, server: &Server, reason: &str) {
        let (id, largest) = (server.domain, self.policy.largest_retry);
        let Some(domain) = self.domains.get_mut(id) else {
            return;
        };
        let uid = domain.key.uid;
        if server.role == Role::Standby {
            domain.standby_retry_at = Some(now + largest);
            self.log(format!("The server that was to stand by for user {uid} failed: {reason}"));
            return;
        }
        let breaker = &domain.policy.breaker;
        let since = now.saturating_sub(breaker.window);
        domain.failures.retain(|at| *at >= since);
        domain.failures.push_back(now);
        let is_broken = breaker.failures > 0 && domain.failures.len() >= breaker.failures as usize;
        let backoff = domain.starts.next_delay();
        let delay = if is_broken { backoff.max(breaker.pause) } else { backoff };
        while domain.failures.len() > breaker.failures as usize {
            domain.failures.pop_front();
        }
        domain.retry_at = Some(now + delay);
        let opened = is_broken && !domain.breaker_open;
        domain.breaker_open |= is_broken;
        let (tries, waiting) = (domain.starts.tries(), domain.waiting.len());
        self.log(format!(
            "Server for user {uid} failed to start: {reason}. Try {} in {} ms, {waiting} clients wait",
            tries + 1,
            delay.as_millis(),
        ));
        if opened {
            let domain = self.domain_name(id);
            self.record(JournalEvent::BreakerOpened { uid, domain, failures: tries, retry: delay });
        }
        self.make_room_for_replacement(now, id);
        // Servers whose clients only they know may have none any longer: they are asked again with every try.
        for server in self.servers.values_mut().filter(|server| server.domain != id) {
            if matches!(server.state, ServerState::Serving)
                && !self.processes.values().any(|process| process.server == server.epoch)
            {
                server.idle_since.get_or_insert(now);
            }
        }
    }

    pub(super) fn server_hello(&mut self, now: Duration, connection: ConnectionId, peer: Peer) {
        let found = self
            .servers
            .values_mut()
            .find(|server| server.pid == Some(peer.pid) && matches!(server.state, ServerState::Starting { .. }));
        let Some(server) = found else {
            self.log(format!("Process {} of user {} is no server of this daemon", peer.pid, peer.uid));
            self.effects.push(Effect::Close { connection });
            return;
        };
        server.state = ServerState::Serving;
        server.ready_at = Some(now);
        server.healthy_at = Some(now);
        server.idle_since = Some(now);
        let (epoch, uid, id, role) = (server.epoch, server.uid, server.domain, server.role);
        let start = now.saturating_sub(server.started_at);
        let pinned_limits = self
            .defaults
            .limits()
            .iter()
            .filter_map(|(device, limit)| Some((DeviceKey::new(&device.to_string())?, limit.0)))
            .collect();
        let configuration = Configuration {
            thread_percentage: self.defaults.percentage().get(),
            pinned_limits,
            priority: self.defaults.priority().get(),
        };
        self.effects.push(Effect::AdoptLink { server: epoch, connection, configuration });
        self.log(format!("NEW SERVER {}: Ready", peer.pid));
        let (server, domain) = (peer.pid, self.domain_name(id));
        match role {
            Role::Active => {
                self.record(JournalEvent::ServerReady { epoch, server, uid, domain, start });
                self.swapped(now, epoch, false);
            }
            Role::Standby => {
                // What it costs is told with its being ready.
                self.effects.push(Effect::MeasureServer { server: epoch, pid: server });
                self.promote(now, id);
            }
        }
        self.effects.push(Effect::Save);
        if self.quit.is_some() {
            self.drain(now, epoch, self.quit_deadline(), false);
        }
    }

    /// What a server that stands by costs on the GPU is known, or can't be.
    pub(super) fn server_measured(&mut self, epoch: ServerEpoch, memory_bytes: Option<u64>) {
        let Some(server) = self.servers.get_mut(&epoch) else {
            return;
        };
        server.memory_bytes = memory_bytes;
        let (pid, uid, id) = (server.pid.unwrap_or_default(), server.uid, server.domain);
        let start = server.ready_at.unwrap_or_default().saturating_sub(server.started_at);
        let domain = self.domain_name(id);
        self.record(JournalEvent::StandbyReady { epoch, server: pid, uid, domain, start, memory_bytes });
    }

    // ---- end ---------------------------------------------------------------------------------------------------

    /// Asks a server to end when it has no clients, again and again; by `force_at` it is forced.
    pub(super) fn drain(&mut self, now: Duration, epoch: ServerEpoch, force_at: Option<Duration>, because_idle: bool) {
        let Some(server) = self.servers.get_mut(&epoch) else {
            return;
        };
        server.end_wanted = true;
        match &mut server.state {
            ServerState::Starting { .. } => self.force(now, epoch),
            ServerState::Serving => {
                server.state = ServerState::Draining(Drain::starting(now, force_at, because_idle));
                self.effects.push(Effect::Save);
            }
            ServerState::Draining(drain) => {
                if drain.because_idle && !because_idle {
                    drain.because_idle = false;
                    self.effects.push(Effect::Save);
                }
                drain.force_at = [drain.force_at, force_at].into_iter().flatten().min();
                if let Some(ask_at) = &mut drain.ask_at {
                    *ask_at = now;
                }
            }
            ServerState::Ending { .. } => {}
        }
    }

    /// Ends a server whatever its clients do: SIGINT now, as the vendor, and SIGKILL when that did not help.
    pub(super) fn force(&mut self, now: Duration, epoch: ServerEpoch) {
        let Some(server) = self.servers.get_mut(&epoch) else {
            return;
        };
        server.end_wanted = true;
        if matches!(server.state, ServerState::Ending { kill_at: None }) {
            return;
        }
        server.forced = true;
        server.state = ServerState::Ending { kill_at: Some(now + self.policy.kill_timeout) };
        if let Some(pid) = server.pid {
            self.log(format!("Force shutting down server {pid}"));
        }
        self.effects.push(Effect::Save);
        self.effects.push(Effect::Signal { server: epoch, signal: ServerSignal::Interrupt });
    }

    /// The answer to a request to end when idle.
    pub(super) fn shutdown_answered(&mut self, now: Duration, epoch: ServerEpoch, reply: Result<Reply, NoReply>) {
        let kill_at = now + self.policy.kill_timeout;
        let Some(server) = self.servers.get_mut(&epoch) else {
            return;
        };
        let ServerState::Draining(drain) = &mut server.state else {
            return;
        };
        let pid = server.pid.unwrap_or_default();
        let workers = match reply {
            Ok(Reply::ActiveWorkers(0)) => {
                server.was_idle = drain.because_idle;
                server.state = ServerState::Ending { kill_at: Some(kill_at) };
                self.effects.push(Effect::Save);
                return;
            }
            Ok(Reply::ActiveWorkers(workers)) => Ok(workers),
            Ok(_) | Err(NoReply::TimedOut | NoReply::Unsupported) => Err(NoReply::TimedOut),
            // Its link is gone: the process is about to follow, and a deadline is set when the loss is handled.
            Err(NoReply::Lost) => return,
        };
        if drain.because_idle {
            server.state = ServerState::Serving;
            server.end_wanted = false;
            server.idle_since = None;
            return;
        }
        let pause = drain.pauses.next_delay();
        drain.ask_at = Some(now + pause);
        match workers {
            Ok(workers) => {
                self.log(format!("Server {pid} has {workers} active worker threads. Server will not shutdown."));
            }
            Err(reason) => self.log(format!("Server {pid} can't be asked to shut down: {reason}")),
        }
        self.log(format!("Control will try shutting down server {pid} again in at most {}ms", pause.as_millis()));
    }

    pub(super) fn server_link_lost(&mut self, now: Duration, epoch: ServerEpoch, reason: &str) {
        let Some(server) = self.servers.get(&epoch) else {
            return;
        };
        if matches!(server.state, ServerState::Ending { .. }) {
            return;
        }
        let (pid, wanted) = (server.pid.unwrap_or_default(), server.end_wanted);
        if !wanted {
            self.log(format!("Server {pid} can't be controlled any longer: {reason}"));
        }
        self.force(now, epoch);
        if let Some(server) = self.servers.get_mut(&epoch) {
            server.end_wanted = wanted;
        }
    }

    pub(super) fn server_exited(&mut self, now: Duration, epoch: ServerEpoch, cause: ExitCause) {
        self.close_incident(now, epoch);
        let Some(server) = self.servers.remove(&epoch) else {
            return;
        };
        let reason = if self.has_clients(epoch) { FuneralEnd::ServerEnded } else { FuneralEnd::NobodyLeft };
        self.end_funerals_of(now, epoch, reason);
        self.forget_remains_of(epoch);
        for (pid, process) in self.processes_of(epoch) {
            self.former_homes.note(pid, &process);
            // The process lives on, or its end comes later; its copies are of use no more, and a new context of it
            // brings new ones.
            if process.copies > 0 {
                self.effects.push(Effect::ReleaseCopies { process: process.key(pid) });
            }
        }
        self.processes.retain(|_, process| process.server != epoch);
        let pid = server.pid.unwrap_or_default();
        let (status, words, end) = match cause {
            ExitCause::Exited(status) => (status, String::new(), End::Exited(status)),
            ExitCause::Signaled(signal) => (0, format!(" (ended by signal {signal})"), End::Signaled(signal)),
            ExitCause::Unknown => (0, " (its status is not known to this daemon)".to_owned(), End::Unknown),
        };
        if !server.end_wanted && server.ready_at.is_some() {
            self.log("Server encountered a fatal exception. Shutting down");
        }
        self.log(format!("Server {pid} exited with status {status}{words}"));
        let (uid, domain, reason) = (server.uid, self.domain_name(server.domain), self.exit_reason(&server));
        self.record(JournalEvent::ServerExited { epoch, server: server.pid, uid, domain, end, reason });
        if let Some(quit) = &mut self.quit {
            let status = u8::try_from(status & 0xff).unwrap_or(u8::MAX);
            quit.status = quit.status.max(status);
        }
        self.effects.push(Effect::Save);
        // It may have been in the way of those that could not start.
        let held_up = |(id, _): &(DomainId, &mut Domain)| *id != server.domain || server.tainted.is_some();
        for (_, domain) in self.domains.iter_mut().filter(held_up).filter(|(_, domain)| !domain.breaker_open) {
            domain.retry_at = domain.retry_at.map(|at| at.min(now));
        }
        // A fault is its clients' doing, and the replacement has its own tries.
        if server.tainted.is_some() {
            return;
        }
        let stable = server.ready_at.is_some_and(|at| now.saturating_sub(at) >= self.policy.stable_after);
        if server.end_wanted || stable {
            self.domain_is_sound(server.domain);
        } else {
            let reason = match cause {
                ExitCause::Exited(status) => format!("it exited with status {status}"),
                ExitCause::Signaled(signal) => format!("signal {signal} ended it"),
                ExitCause::Unknown => "it ended".to_owned(),
            };
            self.start_failed(now, &server, &reason);
        }
    }

    /// Why a server has ended that is gone now.
    fn exit_reason(&self, server: &Server) -> ExitReason {
        if server.tainted.is_some() {
            return ExitReason::Fault;
        }
        if !server.end_wanted {
            return if server.ready_at.is_none() { ExitReason::ExecFailed } else { ExitReason::Crash };
        }
        if server.was_idle {
            ExitReason::Idle
        } else if server.forced {
            ExitReason::Forced
        } else if server.makes_room {
            ExitReason::UidSwitch
        } else {
            ExitReason::Asked
        }
    }

    /// A domain's server has lived for long enough, or was asked to end: earlier failures don't count any longer.
    fn domain_is_sound(&mut self, id: DomainId) {
        let Some(domain) = self.domains.get_mut(id) else {
            return;
        };
        domain.starts.reset();
        domain.retry_at = None;
        domain.failures.clear();
        if core::mem::take(&mut domain.breaker_open) {
            let (uid, domain) = (domain.key.uid, domain.key.to_string());
            self.record(JournalEvent::BreakerClosed { uid, domain });
        }
    }

    /// Acts on the deadlines of servers.
    pub(super) fn advance_servers(&mut self, now: Duration) {
        let epochs: Vec<ServerEpoch> = self.servers.keys().copied().collect();
        for epoch in epochs {
            let Some(server) = self.servers.get_mut(&epoch) else {
                continue;
            };
            let pid = server.pid.unwrap_or_default();
            match &mut server.state {
                ServerState::Starting { deadline } if *deadline <= now => {
                    self.log(format!("Server {pid} did not become ready in {:?}", self.policy.start_timeout));
                    self.force(now, epoch);
                    if let Some(server) = self.servers.get_mut(&epoch) {
                        server.end_wanted = false;
                    }
                }
                ServerState::Draining(drain) if drain.force_at.is_some_and(|at| at <= now) => {
                    self.list_victims(now, epoch);
                    self.force(now, epoch);
                }
                ServerState::Draining(drain) if drain.ask_at.is_some_and(|at| at <= now) => {
                    drain.ask_at = None;
                    let quiet = drain.because_idle;
                    let backoff = if drain.pauses.tries() == 0 { "disabled" } else { "enabled" };
                    if !quiet {
                        self.log(format!("Try shutting down server {pid}, backoff is {backoff}"));
                    }
                    self.ask(epoch, Request::Shutdown, Purpose::Shutdown);
                }
                ServerState::Ending { kill_at } if kill_at.is_some_and(|at| at <= now) => {
                    *kill_at = None;
                    self.log(format!("Server {pid} did not end, killing it"));
                    self.effects.push(Effect::Signal { server: epoch, signal: ServerSignal::Kill });
                }
                ServerState::Starting { .. }
                | ServerState::Serving
                | ServerState::Draining(_)
                | ServerState::Ending { .. } => {}
            }
        }
    }
}
