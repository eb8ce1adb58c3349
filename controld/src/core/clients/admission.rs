//! Which server a client goes to.
//!
//! A process stays with the server of its first context: contexts of one process on two servers don't work (the second
//! `cuCtxCreate` fails with `CUDA_ERROR_INVALID_VALUE`). A newcomer goes to its domain's active server, or waits on its
//! open connection until there is one; nobody is refused while the daemon runs on, but where its user has as many waiting
//! as may wait, or its like has caused too many faults.

use super::Clients;
use super::channels::{Channel, Facts};
use crate::core::Policy;
use crate::core::effect::Turn;
use crate::core::evidence::{End, ProcessKey};
use crate::core::gpu::Whereabouts;
use crate::core::identity::Identity;
use crate::core::ids::{ConnectionId, DomainId, Pid, ServerEpoch, Uid};
use crate::core::journal::{JournalEvent, RefusalReason};
use crate::core::servers::server::{Role, Server, ServerState};
use crate::core::{Core, Effect, Peer, Sharing};
use core::time::Duration;
use std::sync::Arc;

/// Connections of a process until it has a context: that of the process itself.
pub(in crate::core) const BEFORE_CONTEXTS: usize = 1;

/// Connections of a process that nobody has counted: it may have contexts, and can't be moved.
pub(in crate::core) const UNCOUNTED: usize = usize::MAX / 2;

/// A client's connection that is not over.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::core) struct Client {
    pub(in crate::core) peer: Peer,
    pub(in crate::core) identity: Arc<Identity>,
    pub(in crate::core) domain: DomainId,
    pub(in crate::core) came_at: Duration,
    pub(in crate::core) stage: Stage,
    /// The server that it was taken back from on a mere suspicion, which happens once.
    pub(super) recalled_from: Option<ServerEpoch>,
}

impl Client {
    pub(super) fn new(now: Duration, peer: Peer, identity: Arc<Identity>, domain: DomainId, stage: Stage) -> Self {
        Self { peer, identity, domain, came_at: now, stage, recalled_from: None }
    }

    pub(in crate::core) fn process(&self) -> ProcessKey {
        ProcessKey { pid: self.peer.pid, start_time: self.identity.start_time }
    }
}

/// How far a client has come on its way from accepted to given away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) enum Stage {
    /// In its domain's queue.
    Waiting,
    /// This server was told of it.
    Told {
        server: ServerEpoch,
        /// When the server was asked how it is, whose answer this client needs before it has its end; `None` when it
        /// needs none, or has it.
        awaits: Option<Duration>,
        /// Whether the server has greeted it.
        is_greeted: bool,
    },
    /// It has its end of the connection with this server, so that nothing can be undone; its status is outstanding.
    HasEnd { server: ServerEpoch },
}

impl Stage {
    /// The server that it is on its way to.
    pub(in crate::core) fn server(self) -> Option<ServerEpoch> {
        match self {
            Self::Waiting => None,
            Self::Told { server, .. } | Self::HasEnd { server } => Some(server),
        }
    }

    pub(in crate::core) fn has_end(self) -> bool {
        matches!(self, Self::HasEnd { .. })
    }
}

/// A client process and the server it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::core) struct Process {
    pub(in crate::core) server: ServerEpoch,
    pub(in crate::core) uid: Uid,
    pub(in crate::core) identity: Arc<Identity>,
    /// How many copies of its UVM descriptors the driver holds.
    pub(in crate::core) copies: usize,
    /// Whether its UVM tools queue is read, so that its silence about a memory fault means something.
    pub(in crate::core) tracked: bool,
    /// Whether the patched module has cut it off from its memory.
    pub(in crate::core) condemned: bool,
    /// How many of its connections servers have accepted: the first is the process's own, the others are contexts.
    pub(in crate::core) connections: usize,
    /// On which GPUs it has contexts.
    pub(in crate::core) gpus: Whereabouts,
}

impl Process {
    /// How many contexts it has made on its server; `None` when nobody has counted.
    pub(in crate::core) fn contexts_made(&self) -> Option<usize> {
        (self.connections < UNCOUNTED).then(|| self.connections.saturating_sub(BEFORE_CONTEXTS))
    }

    pub(in crate::core) fn key(&self, pid: Pid) -> ProcessKey {
        ProcessKey { pid, start_time: self.identity.start_time }
    }

    /// Whether the process of this pid is the one that is meant. One whose start nobody knows yet is taken for it.
    pub(in crate::core) fn is(&self, key: ProcessKey) -> bool {
        self.identity.start_time == 0 || self.identity.start_time == key.start_time
    }
}

/// Where a client can go now.
enum Route {
    To(ServerEpoch),
    /// There, as soon as the server is known to be sound.
    Settling,
    Wait,
}

impl Clients {
    pub(in crate::core) fn refuse(
        &mut self,
        turn: &mut Turn,
        connection: ConnectionId,
        peer: Peer,
        identity: &Identity,
        reason: RefusalReason,
        words: &str,
    ) {
        turn.log(format!("NEW CLIENT {} from user {}: refused, {words}", peer.pid, peer.uid));
        let process = ProcessKey { pid: peer.pid, start_time: identity.start_time };
        let domain = format!("user {}", peer.uid);
        turn.record(JournalEvent::ClientRefused { process, uid: peer.uid, domain, reason, status: None });
        turn.push(Effect::Close { connection });
    }

    /// Whether a server can be told of another client now.
    pub(super) fn is_open(&self, policy: &Policy, server: &Server) -> bool {
        !server.is_deciding() && server.handshakes < policy.constants.max_handshakes
    }
}

impl Core {
    /// Whether the daemon is about to end.
    pub(crate) fn is_quitting(&self) -> bool {
        self.turn.quit.is_some()
    }

    /// Who a client is.
    pub(crate) fn client_peer(&self, connection: ConnectionId) -> Option<Peer> {
        self.clients.connections.get(&connection).map(|client| client.peer)
    }

    /// Who a client is that waits for a server.
    #[cfg(test)]
    pub(in crate::core) fn waiting_peer(&self, connection: ConnectionId) -> Option<Peer> {
        let client = self.clients.connections.get(&connection);
        client.filter(|client| client.stage == Stage::Waiting).map(|client| client.peer)
    }

    /// Whether a client has its process's own connection to a server, and no other one there or on the way.
    pub(crate) fn is_before_contexts(&self, process: ProcessKey) -> bool {
        let is_it = |known: &&Process| known.is(process) && known.connections == BEFORE_CONTEXTS;
        self.clients.processes.get(&process.pid).filter(is_it).is_some()
            && !self.clients.connections.values().any(|client| client.peer.pid == process.pid)
    }

    /// The domain's active server.
    pub(in crate::core) fn active_server(&self, domain: DomainId) -> Option<&Server> {
        self.servers.iter().find(|server| server.domain == domain && server.is_active())
    }

    pub(in crate::core) fn client_arrived(&mut self, connection: ConnectionId, peer: Peer, identity: Arc<Identity>) {
        let now = self.turn.now;
        // Its server died before it had taken the client, who waits again.
        if self.clients.connections.get(&connection).is_some_and(|client| client.stage.server().is_some()) {
            self.waits_again(connection);
            return;
        }
        // A pid that belongs to another process by now.
        if let Some(old) = self.clients.processes.get(&peer.pid)
            && old.identity.start_time != identity.start_time
            && old.identity.start_time != 0
            && identity.start_time != 0
        {
            self.process_gone(peer.pid, End::Unknown);
        }
        let refusal = if self.turn.quit.is_some() && !self.clients.processes.contains_key(&peer.pid) {
            Some((RefusalReason::Quitting, "the daemon is about to quit".to_owned()))
        } else {
            self.refused_offender(peer, &identity).map(|words| (RefusalReason::Culprit, words))
        };
        if let Some((reason, words)) = refusal {
            self.clients.refuse(&mut self.turn, connection, peer, &identity, reason, &words);
            return;
        }
        let domain = self.domain_of_client(peer, &identity);
        let waits = |client: &&Client| client.peer.uid == peer.uid && client.stage == Stage::Waiting;
        let most = self.turn.policy.constants.max_waiting_per_user;
        if self.clients.connections.values().filter(waits).count() >= most {
            let words = format!("{most} clients wait already");
            self.clients.refuse(&mut self.turn, connection, peer, &identity, RefusalReason::TooManyWaiting, &words);
            return;
        }
        self.clients.connections.insert(connection, Client::new(now, peer, identity, domain, Stage::Waiting));
        self.clients.enqueue(domain, connection, false);
        let line = match self.route(connection) {
            Route::To(_) | Route::Settling => "Server already exists",
            Route::Wait => "Server is not ready, push client to pending list",
        };
        self.turn.log(format!("NEW CLIENT {} from user {}: {line}", peer.pid, peer.uid));
    }

    pub(in crate::core) fn client_done(&mut self, connection: ConnectionId, status: Option<u32>) {
        let Some(client) = self.clients.connections.remove(&connection) else {
            return;
        };
        let server = client.stage.server();
        if let Some(server) = server {
            self.servers.handshake_over(server, client.stage.has_end());
            if status.is_some() {
                self.servers.progress(&mut self.turn, server);
            }
        }
        let (process, uid) = (client.process(), client.peer.uid);
        match (server, status) {
            (None, _) => {
                self.clients.dequeue(client.domain, connection);
            }
            (Some(server), Some(0)) => {
                if let Some(known) = self.clients.processes.get_mut(&process.pid).filter(|known| known.server == server)
                {
                    known.connections += 1;
                    if known.connections > BEFORE_CONTEXTS {
                        self.look_at(process.pid);
                    }
                }
                self.clients.channels.add(process, Channel::Context(connection), Facts::Context(server));
                let server = self.servers.get(server).and_then(|server| server.pid).unwrap_or_default();
                let (domain, waited) =
                    (self.servers.domain_name(client.domain), self.turn.now.saturating_sub(client.came_at));
                self.turn.record(JournalEvent::ClientAdmitted { process, uid, domain, server, waited });
            }
            (Some(_), Some(status)) => {
                self.turn.log(format!("Client {} was not accepted by its server, status {status}", client.peer.pid));
                let (domain, reason) = (self.servers.domain_name(client.domain), RefusalReason::Server);
                self.turn.record(JournalEvent::ClientRefused { process, uid, domain, reason, status: Some(status) });
            }
            (Some(_), None) => {
                self.turn.log(format!("Client {} left during its handshake", client.peer.pid));
            }
        }
    }

    /// A process has ended, which is no client's any more when another one has its pid.
    pub(in crate::core) fn process_ended(&mut self, key: ProcessKey, end: End) {
        let is_it = |known: &Process| key.start_time == 0 || known.is(key);
        if self.clients.processes.get(&key.pid).is_some_and(is_it) {
            self.process_gone(key.pid, end);
        }
    }

    /// A client's process has ended.
    fn process_gone(&mut self, pid: Pid, end: End) {
        let Some(process) = self.clients.processes.remove(&pid) else {
            return;
        };
        self.servers.client_left(self.turn.now, process.server, !self.clients.are_on(process.server));
        self.clients.former_homes.note(pid, &process);
        self.clients.channels.remove_process(pid);
        self.client_died(pid, &process, end);
    }

    /// The server that a client's process belongs to, as long as it can be used.
    fn own_server(&self, client: &Client) -> Option<&Server> {
        let process = self.clients.processes.get(&client.peer.pid)?;
        // Without a context there it can go elsewhere.
        let is_left = |server: &Server| server.can_be_left() && process.connections <= BEFORE_CONTEXTS;
        let server = self.servers.get(process.server)?;
        Some(server).filter(|server| server.is_connected() && !self.is_hit(process) && !is_left(server))
    }

    /// Whether anybody in a domain waits for a server to be started, and not just for the answer of its own.
    pub(in crate::core) fn wants_server(&self, id: DomainId) -> bool {
        let waits = |connection| self.clients.get(connection).is_some_and(|client| self.own_server(client).is_none());
        self.servers.domain(id).is_some_and(|domain| domain.requested) || self.clients.waiting(id).any(waits)
    }

    /// The server that a client would go to: its own, or that of its domain.
    pub(super) fn server_for(&self, client: &Client) -> Option<&Server> {
        let census = self.servers.server_user(&self.turn.policy, client.peer.uid);
        if let Some(own) = self.own_server(client) {
            return Some(own);
        }
        // Until a server that was taken over has named its clients, this process may be one of them, also when it would
        // be grouped with others today.
        if self.servers.iter().any(|server| server.uid == census && server.census_due) {
            return None;
        }
        let beside = self.server_beside_fault(client);
        beside.or_else(|| self.server_for_newcomers(client.domain).filter(|server| server.ready_at.is_some()))
    }

    /// Where the client can go now.
    fn route(&self, connection: ConnectionId) -> Route {
        let Some(client) = self.clients.connections.get(&connection) else {
            return Route::Wait;
        };
        match self.server_for(client) {
            Some(server) if !self.clients.is_open(&self.turn.policy, server) || self.is_held_back(server) => {
                Route::Wait
            }
            Some(server) if self.is_settled(client, server) => Route::To(server.epoch),
            Some(_) => Route::Settling,
            None => Route::Wait,
        }
    }

    /// The server that newcomers of a domain go to: its active one; one that was only idle, whose answer may be that it
    /// goes on; or, where only one server may run, any draining one, as with the vendor.
    pub(in crate::core) fn server_for_newcomers(&self, domain: DomainId) -> Option<&Server> {
        self.active_server(domain).or_else(|| {
            self.servers.iter().find(|server| {
                server.domain == domain
                    && server.role == Role::Active
                    && server.tainted().is_none()
                    && matches!(&server.state, ServerState::Draining(drain)
                        if drain.because_idle || self.turn.policy.sharing == Sharing::Single)
            })
        })
    }

    /// Hands waiting clients to servers that can take them.
    pub(in crate::core) fn dispatch_waiting(&mut self, domain: DomainId) {
        // A crowd waits while no server can take any of it, and this is called after every event.
        if !self.is_any_open() {
            return;
        }
        let connections: Vec<ConnectionId> = self.clients.waiting(domain).collect();
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
        let Some(client) = self.clients.connections.get_mut(&connection) else {
            return;
        };
        client.stage = Stage::Told { server: epoch, awaits, is_greeted: false };
        let (peer, identity) = (client.peer, Arc::clone(&client.identity));
        let known = self.clients.processes.get(&peer.pid);
        let newcomer = peer.pid != 0 && known.is_none_or(|process| process.server != epoch);
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
            self.clients.processes.insert(peer.pid, process);
            if !is_watched {
                self.turn.push(Effect::WatchProcess { pid: peer.pid, connection: Some(connection) });
            }
        }
        self.servers.will_owe(self.turn.now, epoch);
        self.servers.handshake_begins(epoch);
        self.servers.is_used(epoch, peer.pid == 0);
    }
}
