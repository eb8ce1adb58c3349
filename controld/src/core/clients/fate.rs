//! Which server a process has, how that is, and what the process has to do with it.

use super::Clients;
use super::client::{BEFORE_CONTEXTS, Client, Process, Stage};
use crate::core::Core;
use crate::core::evidence::ProcessKey;
use crate::core::ids::{DomainId, Pid, ServerEpoch, Uid};
use crate::core::servers::server::{Server, ServerState};
use crate::core::servers::{Clientele, Servers};
use crate::core::verdict::Confidence;
use std::collections::VecDeque;

/// How a process's server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It serves.
    Healthy,
    /// It has met a fault that its clients share.
    Tainted,
    /// It ends.
    Ending,
}

/// How many former clients are remembered with their servers; the oldest makes room. MPS has 60 clients on a GPU, and a machine has 8.
const MOST_HOMES: usize = 512;

/// A process that was a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Home {
    pub(super) key: ProcessKey,
    pub(super) uid: Uid,
    pub(super) server: ServerEpoch,
}

/// Where those were that are no clients any more, in the order in which they ceased to be; and where those were that
/// have another server now.
#[derive(Debug, Default)]
pub(in crate::core) struct FormerHomes {
    all: VecDeque<Home>,
    /// The newest server of whose former clients one has made room.
    forgotten: Option<ServerEpoch>,
}

impl FormerHomes {
    /// A client has ended or has gone to another server, or its server has ended before it: its end is noticed later, or
    /// never when it lives on.
    pub(in crate::core) fn note(&mut self, pid: Pid, process: &Process) {
        if self.all.len() >= MOST_HOMES {
            let oldest = self.all.pop_front().map(|home| home.server);
            self.forgotten = self.forgotten.max(oldest);
        }
        self.all.push_back(Home { key: process.key(pid), uid: process.uid, server: process.server });
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Home> {
        self.all.iter()
    }

    pub(super) const fn forgotten(&self) -> Option<ServerEpoch> {
        self.forgotten
    }
}

/// What a process has to do with the faults of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// There was none, or nobody can say whose it was.
    Unknown,
    /// Another process is held for the culprit.
    Bystander,
    /// It is held for the culprit, as surely as that.
    Culprit(Confidence),
}

impl Core {
    /// The server of a process, while it is known: a process that was forgotten has none.
    pub(crate) fn fate_of(&self, process: ProcessKey) -> Option<(ServerEpoch, Fate)> {
        let known = self.clients.processes.get(&process.pid).filter(|known| known.is(process))?;
        let fate = match self.servers.get(known.server) {
            None | Some(Server { state: ServerState::Ending { .. }, .. }) => Fate::Ending,
            Some(server) if server.tainted().is_some() && !known.gpus.is_spared => Fate::Tainted,
            Some(_) => Fate::Healthy,
        };
        Some((known.server, fate))
    }

    /// How a server is, and whether it is being asked just now; `None` when its process is reaped.
    pub(crate) fn fate_of_server(&self, server: ServerEpoch) -> Option<(Fate, bool)> {
        let server = self.servers.get(server)?;
        let fate = match server {
            _ if server.tainted().is_some() => Fate::Tainted,
            Server { state: ServerState::Ending { .. }, .. } => Fate::Ending,
            _ => Fate::Healthy,
        };
        Some((fate, server.is_suspected()))
    }

    /// Whether a fault has cost the clients of a server their contexts. One whose process is reaped has no clients.
    pub(crate) fn is_lost(&self, server: ServerEpoch) -> bool {
        self.servers.get(server).is_some_and(Server::is_lost)
    }

    /// The same of one client: a fault on a GPU where it has nothing has cost it nothing.
    pub(crate) fn has_lost(&self, process: ProcessKey) -> bool {
        self.clients.known(process).is_some_and(|known| known.is_hit(&self.servers))
    }

    /// Whether a process would go on after a fault: it has said so, or has a place for a spare copy.
    pub(crate) fn may_go_on(&self, process: ProcessKey) -> bool {
        self.clients.may_recover(process) || self.clients.spares().grant_of(process).is_some()
    }

    /// The server that a client of this pid was on last, when the client has been noticed to have ended, or the server
    /// has ended before it.
    pub(crate) fn server_of_ended(&self, pid: Pid, uid: Uid) -> Option<ServerEpoch> {
        let home = self.clients.former_homes.iter().rev().find(|home| home.key.pid == pid && home.uid == uid)?;
        Some(home.server)
    }

    /// The server that a process was on last that is no client any more.
    pub(crate) fn former_server_of(&self, process: ProcessKey) -> Option<ServerEpoch> {
        let home = self.clients.former_homes.iter().rev().find(|home| home.key == process)?;
        Some(home.server)
    }

    /// Whether a process of this pid and this user is a client, or has ended and that was not noticed yet. Of another
    /// user's nobody is told.
    pub(crate) fn is_client_of(&self, pid: Pid, uid: Uid) -> bool {
        self.clients.processes.get(&pid).is_some_and(|process| process.uid == uid)
    }
}

impl Process {
    /// Whether a fault has cost it its contexts, as far as anybody knows.
    pub(in crate::core) fn is_hit(&self, servers: &Servers) -> bool {
        !self.gpus.is_spared && servers.get(self.server).is_some_and(Server::is_lost)
    }
}

impl Clients {
    /// The server that a client's process belongs to, as long as it can be used.
    pub(in crate::core) fn own_server<'servers>(
        &self,
        servers: &'servers Servers,
        client: &Client,
    ) -> Option<&'servers Server> {
        let pid = client.peer.pid;
        let process = self.process(pid)?;
        // Without a context there it can go elsewhere, and does where the server's namespace has been removed meanwhile and
        // no connection of it is on its way there any more.
        let is_on_its_way = |server: &Server| {
            let mut own = self.iter().filter(|client| client.peer.pid == pid && client.spare.is_none());
            own.any(|client| client.stage.server() == Some(server.epoch))
        };
        let is_removed = |server: &Server| servers.is_of_removed_namespace(server) && !is_on_its_way(server);
        let has_left = |server: &Server| server.can_be_left() || is_removed(server);
        let is_left = |server: &Server| process.connections <= BEFORE_CONTEXTS && has_left(server);
        let server = servers.get(process.server)?;
        Some(server).filter(|server| server.is_connected() && !process.is_hit(servers) && !is_left(server))
    }
}

impl Clientele for Clients {
    fn waiting(&self, domain: DomainId) -> usize {
        self.queue(domain).len()
    }

    fn wants_server(&self, servers: &Servers, domain: DomainId) -> bool {
        let waits = |connection| self.get(connection).is_some_and(|client| self.own_server(servers, client).is_none());
        servers.domain(domain).is_some_and(|domain| domain.requested) || self.queue(domain).any(waits)
    }

    fn are_on(&self, server: ServerEpoch) -> bool {
        self.on(server).next().is_some()
    }

    fn has_spared(&self, server: ServerEpoch) -> bool {
        self.spared_of(server).next().is_some()
    }

    fn are_in_handshakes(&self, server: ServerEpoch) -> bool {
        self.iter().any(|client| match client.stage {
            Stage::Told { server: told, awaits: None, .. } | Stage::HasEnd { server: told } => told == server,
            Stage::Told { .. } | Stage::Waiting => false,
        })
    }
}
