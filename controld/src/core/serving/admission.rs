//! Which server a client goes to.
//!
//! A process stays with the server of its first context: contexts of one process on two servers don't work (the second
//! `cuCtxCreate` fails with `CUDA_ERROR_INVALID_VALUE`). A newcomer goes to its domain's active server, or waits on its
//! open connection until there is one; nobody is refused while the daemon runs on, but where its user has as many waiting
//! as may wait, or its like has caused too many faults.

use crate::core::clients::client::{BEFORE_CONTEXTS, Client, Process, Stage};
use crate::core::events::RefusalReason;
use crate::core::evidence::{End, ProcessKey};
use crate::core::gpu::Whereabouts;
use crate::core::identity::Identity;
use crate::core::ids::{ConnectionId, DomainId, EntranceId, Pid, ServerEpoch};
use crate::core::servers::Clientele as _;
use crate::core::servers::server::Server;
use crate::core::{Core, Effect, Grouping, Peer};
use std::sync::Arc;

/// Where a client can go now.
enum Route {
    To(ServerEpoch),
    /// There, as soon as the server is known to be sound.
    Settling,
    Wait,
}

impl Core {
    /// Whether a newcomer's domain depends on more than its user and its process.
    pub(crate) fn must_know_clients(&self) -> bool {
        let by_identity = match self.turn.policy.grouping().by {
            Grouping::Cgroup | Grouping::Label => true,
            Grouping::Uid | Grouping::Client => false,
        };
        by_identity
            || self.faults.must_know_claims(&self.turn.policy)
            || !self.turn.policy.domains.overrides.is_empty()
            || self.clients.offenders().are_any()
    }

    pub(in crate::core) fn client_arrived(
        &mut self,
        connection: ConnectionId,
        peer: Peer,
        identity: Arc<Identity>,
        entrance: Option<EntranceId>,
    ) {
        let now = self.turn.now;
        // Its server died before it had taken the client, who waits again.
        if self.clients.get(connection).is_some_and(|client| client.stage.server().is_some()) {
            self.waits_again(connection);
            return;
        }
        let peer = self.clients.named(peer, &identity);
        // A pid that belongs to another process by now.
        if let Some(old) = self.clients.process(peer.pid)
            && old.identity.start_time != identity.start_time
            && old.identity.start_time != 0
            && identity.start_time != 0
        {
            self.process_gone(peer.pid, End::Unknown);
        }
        let refusal = if self.turn.quit.is_some() && self.clients.process(peer.pid).is_none() {
            Some((RefusalReason::Quitting, "the daemon is about to quit".to_owned()))
        } else {
            let not_let_in = self.not_let_in(peer, entrance).map(|words| (RefusalReason::Namespace, words));
            not_let_in.or_else(|| self.refused_offender(peer, &identity).map(|words| (RefusalReason::Culprit, words)))
        };
        if let Some((reason, words)) = refusal {
            self.clients.refuse(&mut self.turn, connection, peer, &identity, reason, &words);
            return;
        }
        let domain = self.domain_of_client(peer, &identity, entrance);
        if self.cant_be_counted(domain, peer.pid) {
            let words = "limits are shared (shared_by), and who has no pid here can't be counted";
            self.clients.refuse(&mut self.turn, connection, peer, &identity, RefusalReason::Shares, words);
            return;
        }
        let waits =
            |client: &&Client| client.peer.uid == peer.uid && client.stage == Stage::Waiting && client.spare.is_none();
        let most = self.turn.policy.constants.max_waiting_per_user;
        if self.clients.iter().filter(waits).count() >= most {
            let words = format!("{most} clients wait already");
            self.clients.refuse(&mut self.turn, connection, peer, &identity, RefusalReason::TooManyWaiting, &words);
            return;
        }
        let client = Client::new(now, peer, identity, domain, Stage::Waiting);
        self.clients.insert(connection, Client { entrance, ..client });
        self.clients.enqueue(domain, connection, false);
        let line = match self.route(connection) {
            Route::To(_) | Route::Settling => "Server already exists",
            Route::Wait => "Server is not ready, push client to pending list",
        };
        self.turn.log(format!("NEW CLIENT {} from user {}: {line}", peer.pid, peer.uid));
    }

    /// A process has ended, which is no client's any more when another one has its pid.
    pub(in crate::core) fn process_ended(&mut self, key: ProcessKey, end: End) {
        let is_it = |known: &Process| key.start_time == 0 || known.is(key);
        if self.clients.process(key.pid).is_some_and(is_it) {
            self.process_gone(key.pid, end);
        } else if self.clients.process(key.pid).is_none() && self.clients.guests().of(key).next().is_some() {
            self.guests_gone(key.pid, end);
        }
    }

    /// A client's process has ended.
    fn process_gone(&mut self, pid: Pid, end: End) {
        let Some(process) = self.clients.process_gone(pid) else {
            return;
        };
        self.servers.client_left(self.turn.now, process.server, !self.clients.are_on(process.server));
        self.client_died(pid, &process, end);
        self.guests_gone(pid, end);
    }

    /// A process has ended: what it was on servers other than its own is over.
    fn guests_gone(&mut self, pid: Pid, end: End) {
        for guest in self.spares_process_gone(pid) {
            self.guest_died(pid, &guest, end);
        }
    }

    /// The server that a client would go to: its own, or that of its domain.
    pub(super) fn server_for(&self, client: &Client) -> Option<&Server> {
        let census = self.servers.server_user(&self.turn.policy, client.peer.uid);
        if let Some(own) = self.clients.own_server(&self.servers, client) {
            return Some(own);
        }
        // Until a server that was taken over has named its clients, this process may be one of them, also when it would
        // be grouped with others today.
        if self.servers.iter().any(|server| server.uid == census && server.census_due) {
            return None;
        }
        let beside = self.server_beside_fault(client);
        beside.or_else(|| {
            self.servers
                .server_for_newcomers(&self.turn.policy, client.domain)
                .filter(|server| server.ready_at.is_some())
        })
    }

    /// Where the client can go now.
    fn route(&self, connection: ConnectionId) -> Route {
        let Some(client) = self.clients.get(connection) else {
            return Route::Wait;
        };
        match self.server_for(client) {
            _ if !self.has_part(client) => Route::Wait,
            Some(server) if !self.clients.is_open(&self.turn.policy, server) || self.is_held_back(server) => {
                Route::Wait
            }
            Some(server) if self.is_settled(client, server) => Route::To(server.epoch),
            Some(_) => Route::Settling,
            None => Route::Wait,
        }
    }

    /// Hands waiting clients to servers that can take them.
    pub(in crate::core) fn dispatch_waiting(&mut self, domain: DomainId) {
        // A crowd waits while no server can take any of it, and this is called after every event.
        if !self.is_any_open() {
            return;
        }
        let connections: Vec<ConnectionId> = self.clients.queue(domain).collect();
        for connection in connections {
            if let Route::To(server) = self.route(connection) {
                self.dispatch(domain, server, connection);
                if !self.is_any_open() {
                    return;
                }
            }
        }
    }

    fn is_any_open(&self) -> bool {
        self.servers.iter().any(|server| self.clients.is_open(&self.turn.policy, server))
    }

    fn dispatch(&mut self, domain: DomainId, epoch: ServerEpoch, connection: ConnectionId) {
        self.clients.dequeue(domain, connection);
        let awaits = self.ask_on_the_way(connection, epoch);
        let stage = Stage::Told { server: epoch, awaits, is_greeted: false };
        let Some((peer, identity)) = self.clients.goes_on(connection, stage) else {
            return;
        };
        let known = self.clients.process(peer.pid);
        let newcomer = peer.pid != 0 && known.is_none_or(|process| process.server != epoch);
        if self.servers.is_used(epoch, peer.pid) {
            self.turn.save();
        }
        self.turn.push(Effect::Dispatch { server: epoch, connection });
        if newcomer {
            let (copies, tracked) = known.map_or((0, false), |process| (process.copies, process.tracked));
            // Contexts that it has elsewhere are on a server that is lost.
            let connections = known.map_or(0, |process| process.connections.min(BEFORE_CONTEXTS));
            let is_watched = known.is_some();
            let condemned = known.is_some_and(|process| process.condemned);
            // Who is sent to a server after its fault has nothing to do with that.
            let is_spared = self.servers.get(epoch).is_some_and(Server::is_lost);
            let gpus = Whereabouts { is_spared, ..Whereabouts::default() };
            let (server, uid) = (epoch, peer.uid);
            let process = Process { server, uid, identity, copies, tracked, condemned, connections, gpus };
            self.clients.insert_process(peer.pid, process);
            self.void_grants(false);
            if !is_watched {
                self.turn.push(Effect::WatchProcess { pid: peer.pid, connection: Some(connection) });
            }
        }
        self.servers.will_owe(self.turn.now, epoch);
        self.servers.handshake_begins(epoch);
    }
}
