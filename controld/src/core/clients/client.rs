//! A client: its connection, until its handshake with a server is over, and its process, as long as that has a server.

use super::Clients;
use crate::core::Policy;
use crate::core::effect::Turn;
use crate::core::events::{JournalEvent, RefusalReason};
use crate::core::evidence::ProcessKey;
use crate::core::gpu::Whereabouts;
use crate::core::identity::Identity;
use crate::core::ids::{ConnectionId, DomainId, EntranceId, Pid, ServerEpoch, Uid};
use crate::core::servers::server::Server;
use crate::core::{Core, Effect, Peer};
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
    pub(in crate::core) recalled_from: Option<ServerEpoch>,
    /// The token that it shows as a spare copy's: it goes to the server of its grant, where its process is a guest.
    pub(in crate::core) spare: Option<u64>,
    /// The socket of a namespace by which it came; `None` is the daemon's own.
    pub(in crate::core) entrance: Option<EntranceId>,
}

impl Client {
    pub(in crate::core) fn new(
        now: Duration,
        peer: Peer,
        identity: Arc<Identity>,
        domain: DomainId,
        stage: Stage,
    ) -> Self {
        Self { peer, identity, domain, came_at: now, stage, recalled_from: None, spare: None, entrance: None }
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
    /// One that a server has for the spare copy of a client of another one, and of which nothing more is known.
    pub(in crate::core) fn guest(server: ServerEpoch, uid: Uid, identity: Arc<Identity>) -> Self {
        let (copies, tracked, condemned, connections) = (0, false, false, 0);
        Self { server, uid, identity, copies, tracked, condemned, connections, gpus: Whereabouts::default() }
    }

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
    pub(in crate::core) fn is_open(&self, policy: &Policy, server: &Server) -> bool {
        !server.is_deciding() && server.handshakes < policy.constants.max_handshakes
    }
}

impl Core {
    /// Who a client is.
    pub(crate) fn client_peer(&self, connection: ConnectionId) -> Option<Peer> {
        self.clients.connections.get(&connection).map(|client| client.peer)
    }

    /// What is known of a client.
    pub(crate) fn client_identity(&self, connection: ConnectionId) -> Option<Arc<Identity>> {
        self.clients.connections.get(&connection).map(|client| Arc::clone(&client.identity))
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
}
