//! Which server a client goes to.
//!
//! A process stays with the server of its first context: contexts of one process on two servers don't work (the second
//! `cuCtxCreate` fails with `CUDA_ERROR_INVALID_VALUE`). A newcomer goes to its domain's active server, or waits on its
//! open connection until there is one; nobody is refused while the daemon runs on.

use super::backoff::Backoff;
use super::ids::{ConnectionId, Pid, ServerEpoch, Uid};
use super::server::{Server, ServerState};
use super::{Core, Effect, Peer, Policy, Sharing};
use core::time::Duration;
use std::collections::VecDeque;

/// The clients that share one server.
#[derive(Debug)]
pub(super) struct Domain {
    /// The user whose clients these are; the daemon's owner for the one domain of multi-user mode.
    pub(super) gid: u32,
    pub(super) waiting: VecDeque<ConnectionId>,
    /// `start_server` asked for a server, whether or not a client waits.
    pub(super) requested: bool,
    pub(super) starts: Backoff,
    pub(super) retry_at: Option<Duration>,
}

impl Domain {
    pub(super) fn new(policy: &Policy, gid: u32) -> Self {
        Self {
            gid,
            waiting: VecDeque::new(),
            requested: false,
            starts: Backoff::new(policy.first_retry, policy.largest_retry),
            retry_at: None,
        }
    }

    pub(super) fn retry_at(&self) -> Option<Duration> {
        self.retry_at
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// A client's connection that is not over.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Client {
    pub(super) peer: Peer,
    pub(super) domain: Uid,
    pub(super) place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In its domain's queue.
    Waiting,
    /// Handed to this server; its status is outstanding.
    Dispatched(ServerEpoch),
}

/// A client process and the server it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) server: ServerEpoch,
    pub(super) uid: Uid,
}

/// Where a client can go now.
enum Route {
    To(ServerEpoch),
    Wait,
}

impl Core {
    /// Whether the daemon is about to end.
    #[must_use]
    pub fn is_quitting(&self) -> bool {
        self.quit.is_some()
    }

    /// Who a client is.
    #[must_use]
    pub fn client_peer(&self, connection: ConnectionId) -> Option<Peer> {
        self.clients.get(&connection).map(|client| client.peer)
    }

    /// Who a client is that waits for a server.
    #[must_use]
    pub fn waiting_peer(&self, connection: ConnectionId) -> Option<Peer> {
        self.clients.get(&connection).filter(|client| client.place == Place::Waiting).map(|client| client.peer)
    }

    /// The domain of a user.
    pub(super) fn domain_of(&self, uid: Uid) -> Uid {
        match self.policy.sharing {
            Sharing::PerUser | Sharing::Single => uid,
            Sharing::MultiUser => self.policy.owner,
        }
    }

    /// The domain's active server.
    pub(super) fn active_server(&self, domain: Uid) -> Option<&Server> {
        self.servers.values().find(|server| server.domain == domain && server.is_active())
    }

    pub(super) fn client_arrived(&mut self, connection: ConnectionId, peer: Peer) {
        // Its server died before it had taken the client, who waits again.
        if let Some(client) = self.clients.get_mut(&connection)
            && let Place::Dispatched(server) = client.place
        {
            client.place = Place::Waiting;
            let domain = client.domain;
            self.handshake_over(server);
            let queue = self.domains.entry(domain).or_insert_with(|| Domain::new(&self.policy, peer.gid));
            queue.waiting.push_front(connection);
            return;
        }
        let domain = self.domain_of(peer.uid);
        if self.quit.is_some() && !self.processes.contains_key(&peer.pid) {
            self.log(format!("NEW CLIENT {} from user {}: refused, the daemon is about to quit", peer.pid, peer.uid));
            self.effects.push(Effect::Close { connection });
            return;
        }
        if self.domains.get(&domain).map_or(0, Domain::waiting) >= self.policy.max_waiting_per_user {
            let limit = self.policy.max_waiting_per_user;
            self.log(format!("NEW CLIENT {} from user {}: refused, {limit} clients wait already", peer.pid, peer.uid));
            self.effects.push(Effect::Close { connection });
            return;
        }
        let client = Client { peer, domain, place: Place::Waiting };
        self.clients.insert(connection, client);
        let queue = self.domains.entry(domain).or_insert_with(|| Domain::new(&self.policy, peer.gid));
        queue.waiting.push_back(connection);
        let line = match self.route(connection) {
            Route::To(_) => "Server already exists",
            Route::Wait => "Server is not ready, push client to pending list",
        };
        self.log(format!("NEW CLIENT {} from user {}: {line}", peer.pid, peer.uid));
    }

    pub(super) fn client_done(&mut self, connection: ConnectionId, status: Option<u32>) {
        let Some(client) = self.clients.remove(&connection) else {
            return;
        };
        if let Place::Dispatched(server) = client.place {
            self.handshake_over(server);
        }
        match (client.place, status) {
            (Place::Waiting, _) => {
                if let Some(domain) = self.domains.get_mut(&client.domain) {
                    domain.waiting.retain(|&waiting| waiting != connection);
                }
            }
            (Place::Dispatched(_), Some(0)) => {}
            (Place::Dispatched(_), Some(status)) => {
                self.log(format!("Client {} was not accepted by its server, status {status}", client.peer.pid));
            }
            (Place::Dispatched(_), None) => {
                self.log(format!("Client {} left during its handshake", client.peer.pid));
            }
        }
    }

    pub(super) fn process_gone(&mut self, now: Duration, pid: Pid) {
        let Some(process) = self.processes.remove(&pid) else {
            return;
        };
        let idle = !self.processes.values().any(|other| other.server == process.server);
        if let Some(server) = self.servers.get_mut(&process.server) {
            if idle {
                server.idle_since = Some(now);
            }
            server.client_left(now);
        }
    }

    /// The server that a client's process belongs to, as long as it can be used.
    fn own_server(&self, client: &Client) -> Option<&Server> {
        let process = self.processes.get(&client.peer.pid)?;
        self.servers.get(&process.server).filter(|server| server.is_connected())
    }

    /// Whether anybody in a domain waits for a server to be started, and not just for the answer of its own.
    pub(super) fn wants_server(&self, domain: &Domain) -> bool {
        let waits = |connection: &ConnectionId| {
            self.clients.get(connection).is_some_and(|client| self.own_server(client).is_none())
        };
        domain.requested || domain.waiting.iter().any(waits)
    }

    /// Whether a server can be told of another client now.
    fn is_open(&self, server: &Server) -> bool {
        !server.is_deciding() && server.handshakes < self.policy.max_handshakes
    }

    /// A client's handshake with a server is over, whatever came of it.
    fn handshake_over(&mut self, server: ServerEpoch) {
        if let Some(server) = self.servers.get_mut(&server) {
            server.handshakes = server.handshakes.saturating_sub(1);
        }
    }

    /// Where the client can go now.
    fn route(&self, connection: ConnectionId) -> Route {
        let Some(client) = self.clients.get(&connection) else {
            return Route::Wait;
        };
        if let Some(own) = self.own_server(client) {
            return if self.is_open(own) { Route::To(own.epoch) } else { Route::Wait };
        }
        // Until a server that was taken over has named its clients, this process may be one of them.
        if self.servers.values().any(|server| server.domain == client.domain && server.census_due) {
            return Route::Wait;
        }
        match self.server_for_newcomers(client.domain) {
            Some(server) if server.ready_at.is_some() && self.is_open(server) => Route::To(server.epoch),
            _ => Route::Wait,
        }
    }

    /// The server that newcomers of a domain go to: its active one; one that was only idle, whose answer may be that it
    /// goes on; or, where only one server may run, any draining one, as with the vendor.
    pub(super) fn server_for_newcomers(&self, domain: Uid) -> Option<&Server> {
        self.active_server(domain).or_else(|| {
            self.servers.values().find(|server| {
                server.domain == domain
                    && matches!(&server.state, ServerState::Draining(drain)
                        if drain.because_idle || self.policy.sharing == Sharing::Single)
            })
        })
    }

    /// Hands waiting clients to servers that can take them.
    pub(super) fn dispatch_waiting(&mut self, domain: Uid) {
        let Some(queue) = self.domains.get(&domain) else {
            return;
        };
        let connections: Vec<ConnectionId> = queue.waiting.iter().copied().collect();
        for connection in connections {
            if let Route::To(server) = self.route(connection) {
                self.dispatch(domain, server, connection);
            }
        }
    }

    fn dispatch(&mut self, domain: Uid, epoch: ServerEpoch, connection: ConnectionId) {
        if let Some(queue) = self.domains.get_mut(&domain) {
            queue.waiting.retain(|&waiting| waiting != connection);
        }
        let Some(client) = self.clients.get_mut(&connection) else {
            return;
        };
        client.place = Place::Dispatched(epoch);
        let peer = client.peer;
        let newcomer = peer.pid != 0 && self.processes.get(&peer.pid).is_none_or(|process| process.server != epoch);
        self.effects.push(Effect::Dispatch { server: epoch, connection });
        if newcomer {
            self.processes.insert(peer.pid, Process { server: epoch, uid: peer.uid });
            self.effects.push(Effect::WatchProcess { pid: peer.pid, connection: Some(connection) });
        }
        if let Some(server) = self.servers.get_mut(&epoch) {
            server.idle_since = None;
            server.handshakes += 1;
        }
    }
}
