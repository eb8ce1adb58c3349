//! When a server is started for a domain, when it is ready, and what becomes of starts that fail.

use super::domain::Domain;
use super::server::{Role, Server, ServerState};
use super::{Clientele, Servers};
use crate::core::Policy;
use crate::core::effect::Turn;
use crate::core::events::{JournalEvent, StartReason};
use crate::core::ids::{ConnectionId, DomainId, Pid, ServerEpoch};
use crate::core::{Core, Effect, Peer, Sharing};
use core::time::Duration;
use std::collections::BTreeSet;

impl Servers {
    /// Asks for a server of a domain, as `start_server` does.
    pub(in crate::core) fn request_server(&mut self, domain: DomainId) {
        if let Some(domain) = self.domains.get_mut(domain) {
            domain.requested = true;
        }
    }

    /// Whether the user for whom a domain was made may have another server.
    pub(super) fn has_room(&self, policy: &Policy, id: DomainId, role: Role) -> bool {
        let founder = self.domains.get(id).and_then(|domain| domain.founder);
        let (Some(most), Some(founder)) = (policy.max_servers_per_user, founder) else {
            return true;
        };
        let is_own = |server: &&Server| {
            self.domains.get(server.domain).and_then(|domain| domain.founder).is_some_and(|other| other == founder)
        };
        let own = || self.all.values().filter(is_own);
        let sound = own().filter(|server| server.tainted().is_none());
        let counted = sound.filter(|server| role == Role::Standby || server.role == Role::Active).count();
        // A server that a fault has spoilt is replaced though it may stay for its clients for a while.
        counted < most && own().count() < most.saturating_mul(2)
    }

    fn waits_for_room(&mut self, turn: &mut Turn, id: DomainId) {
        if let Some(domain) = self.domains.get_mut(id).filter(|domain| !domain.is_held_up) {
            domain.is_held_up = true;
            let (name, most) = (domain.name(), turn.policy.max_servers_per_user.unwrap_or(usize::MAX));
            turn.log(format!(
                "No server is started for {name} until another one of its user's has ended: {most} are allowed"
            ));
        }
    }

    fn start_server(&mut self, turn: &mut Turn, id: DomainId, role: Role, reason: StartReason) {
        let now = turn.now;
        let Some(domain) = self.domains.get(id) else {
            return;
        };
        let (uid, gid, gpu) = (domain.key.uid, domain.gid, domain.key.gpu.clone());
        let epoch = ServerEpoch(self.next_epoch);
        self.next_epoch += 1;
        let state = ServerState::Starting { deadline: now + turn.policy.start_timeout };
        let server = Server { role, reason, ..Server::new(epoch, id, uid, now, state) };
        self.all.insert(epoch, server);
        let gid = if uid == turn.policy.owner { turn.policy.owner_gid } else { gid };
        let multi_user = turn.policy.sharing == Sharing::MultiUser;
        turn.push(Effect::SpawnServer { server: epoch, uid, gid, multi_user, gpu });
    }

    /// The vendor's rule: the other user's server is asked to go as soon as its clients have left.
    fn queue_behind_others(&mut self, turn: &mut Turn) {
        let others: Vec<ServerEpoch> = self
            .all
            .values()
            .filter(|server| matches!(server.state, ServerState::Serving))
            .map(|server| server.epoch)
            .collect();
        for epoch in others {
            self.drain(turn, epoch, None, false);
            if let Some(ServerState::Draining(drain)) = self.all.get_mut(&epoch).map(|server| &mut server.state) {
                drain.makes_room = true;
            }
        }
    }

    pub(in crate::core) fn server_spawned(&mut self, turn: &mut Turn, epoch: ServerEpoch, pid: Pid) {
        let Some(server) = self.all.get_mut(&epoch) else {
            return;
        };
        server.pid = Some(pid);
        let (uid, domain, reason) = (server.uid, server.domain, server.reason);
        turn.log(format!("Starting new server {pid} for user {uid}"));
        let domain = self.domain_name(domain);
        turn.record(JournalEvent::ServerStarted { epoch, server: pid, uid, domain, reason });
        turn.save();
    }

    /// What a server that stands by costs on the GPU is known, or can't be.
    pub(in crate::core) fn server_measured(&mut self, turn: &mut Turn, epoch: ServerEpoch, memory_bytes: Option<u64>) {
        let Some(server) = self.all.get_mut(&epoch) else {
            return;
        };
        server.memory_bytes = memory_bytes;
        let (pid, uid, id) = (server.pid.unwrap_or_default(), server.uid, server.domain);
        let start = server.ready_at.unwrap_or_default().saturating_sub(server.started_at);
        let domain = self.domain_name(id);
        turn.record(JournalEvent::StandbyReady { epoch, server: pid, uid, domain, start, memory_bytes });
    }

    /// The clients of a server have been given another share of threads, in percent.
    pub(in crate::core) fn note_threads(&mut self, epoch: ServerEpoch, percent: f64) {
        if let Some(server) = self.all.get_mut(&epoch) {
            server.threads = Some(percent);
        }
    }

    /// A domain that nobody needs is forgotten, its failures with it once they are old.
    pub(in crate::core) fn forget_unneeded(&mut self, now: Duration, clients: &impl Clientele) {
        let served: BTreeSet<DomainId> = self.all.values().map(|server| server.domain).collect();
        self.domains.retain(|id, domain| {
            domain.requested
                || clients.waiting(id) > 0
                || domain.retry_at.is_some_and(|at| at > now)
                || served.contains(&id)
        });
    }

    /// Starts what a domain needs; `one_fits` where a second server can't start beside a first one.
    pub(in crate::core) fn start_if_wanted(
        &mut self,
        turn: &mut Turn,
        clients: &impl Clientele,
        one_fits: bool,
        id: DomainId,
    ) {
        if clients.wants_server(self, id) {
            self.promote(turn, id);
            self.start_active(turn, clients, id);
        }
        // Never two starts of one domain at a time.
        let is_time = |domain: &Domain| domain.standby_retry_at.is_none_or(|at| at <= turn.now);
        if self.wants_standby(turn, one_fits, id) && self.domains.get(id).is_some_and(is_time) {
            if let Some(domain) = self.domains.get_mut(id) {
                domain.standby_retry_at = None;
            }
            if self.has_room(&turn.policy, id, Role::Standby) {
                self.start_server(turn, id, Role::Standby, StartReason::Standby);
            }
        }
    }

    fn start_active(&mut self, turn: &mut Turn, clients: &impl Clientele, id: DomainId) {
        if let Some(server) = self.server_for_newcomers(&turn.policy, id) {
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
        if domain.retry_at.is_some_and(|at| at > turn.now) {
            return;
        }
        domain.retry_at = None;
        // A server that a fault has spoilt serves nobody, and its own domain need not wait for its end.
        let is_other = |server: &Server| server.tainted().is_none() || server.domain != id;
        if turn.policy.sharing == Sharing::Single && self.all.values().any(is_other) {
            self.queue_behind_others(turn);
            return;
        }
        if !self.has_room(&turn.policy, id, Role::Active) {
            self.waits_for_room(turn, id);
            return;
        }
        let reason = self.start_reason(clients, id);
        self.start_server(turn, id, Role::Active, reason);
        if let Some(domain) = self.domains.get_mut(id) {
            domain.requested = false;
            domain.is_held_up = false;
        }
    }

    /// Whether a start has failed by that.
    #[must_use]
    pub(in crate::core) fn spawn_failed(
        &mut self,
        turn: &mut Turn,
        clients: &impl Clientele,
        epoch: ServerEpoch,
        reason: &str,
    ) -> bool {
        let failed = self.all.remove(&epoch).filter(|server| !server.is_told_to_end());
        if let Some(server) = &failed {
            let (uid, domain) = (server.uid, self.domain_name(server.domain));
            let text = reason.to_owned();
            turn.record(JournalEvent::ServerStartFailed { epoch, uid, domain, text });
            self.start_failed(turn, clients, server, reason);
        }
        failed.is_some()
    }

    /// Waits before the next try, and says once a try what is wrong and what happens next.
    pub(super) fn start_failed(&mut self, turn: &mut Turn, clients: &impl Clientele, server: &Server, reason: &str) {
        let now = turn.now;
        let (id, constants) = (server.domain, &turn.policy.constants);
        let Some(domain) = self.domains.get_mut(id) else {
            return;
        };
        let uid = domain.key.uid;
        if server.role == Role::Standby {
            domain.standby_retry_at = Some(now + constants.largest_retry);
            turn.log(format!("The server that was to stand by for user {uid} failed: {reason}"));
            return;
        }
        let since = now.saturating_sub(constants.breaker_window);
        domain.failures.retain(|at| *at >= since);
        domain.failures.push_back(now);
        let most = constants.breaker_failures as usize;
        let is_broken = most > 0 && domain.failures.len() >= most;
        let backoff = domain.starts.next_delay();
        let delay = if is_broken { backoff.max(constants.breaker_pause) } else { backoff };
        while domain.failures.len() > most {
            domain.failures.pop_front();
        }
        domain.retry_at = Some(now + delay);
        let opened = is_broken && !domain.breaker_open;
        domain.breaker_open |= is_broken;
        let (tries, waiting) = (domain.starts.tries(), clients.waiting(id));
        turn.log(format!(
            "Server for user {uid} failed to start: {reason}. Try {} in {} ms, {waiting} clients wait",
            tries + 1,
            delay.as_millis(),
        ));
        if opened {
            let domain = self.domain_name(id);
            turn.record(JournalEvent::BreakerOpened { uid, domain, failures: tries, retry: delay });
        }
        self.make_room_for_replacement(turn, clients, id);
        // Servers whose clients only they know may have none any longer: they are asked again with every try.
        for server in self.all.values_mut().filter(|server| server.domain != id) {
            if matches!(server.state, ServerState::Serving) && !clients.are_on(server.epoch) {
                server.idle_since.get_or_insert(now);
            }
        }
    }
}

impl Core {
    pub(in crate::core) fn server_hello(&mut self, connection: ConnectionId, peer: Peer) {
        let now = self.turn.now;
        let found = self
            .servers
            .all
            .values_mut()
            .find(|server| server.pid == Some(peer.pid) && matches!(server.state, ServerState::Starting { .. }));
        let Some(server) = found else {
            self.turn.log(format!("Process {} of user {} is no server of this daemon", peer.pid, peer.uid));
            self.turn.push(Effect::Close { connection });
            return;
        };
        server.state = ServerState::Serving;
        server.ready_at = Some(now);
        server.healthy_at = Some(now);
        server.idle_since = Some(now);
        let (epoch, uid, id, role) = (server.epoch, server.uid, server.domain, server.role);
        let start = now.saturating_sub(server.started_at);
        let configuration = self.configuration(id);
        let entrance = self.servers.domain(id).and_then(|domain| domain.key.entrance.clone());
        let threads = self.defaults_of(entrance.as_ref()).percentage().get();
        self.servers.note_threads(epoch, threads);
        self.turn.push(Effect::AdoptLink { server: epoch, connection, configuration });
        self.turn.log(format!("NEW SERVER {}: Ready", peer.pid));
        let (server, domain) = (peer.pid, self.servers.domain_name(id));
        match role {
            Role::Active => {
                self.turn.record(JournalEvent::ServerReady { epoch, server, uid, domain, start });
                self.servers.swapped(&mut self.turn, epoch, false);
            }
            Role::Standby => {
                // What it costs is told with its being ready.
                self.turn.push(Effect::MeasureServer { server: epoch, pid: server });
                self.servers.promote(&mut self.turn, id);
            }
        }
        self.turn.save();
        self.ask_for_devices(epoch);
        if self.turn.quit.is_some() {
            let force_at = self.servers.quit_deadline(&self.turn);
            self.servers.drain(&mut self.turn, epoch, force_at, false);
        }
    }
}
