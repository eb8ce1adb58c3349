//! Client processes that have no pid here, those of other PID namespaces, as far as they can be told apart.
//!
//! The kernel names a process by a descriptor whatever namespace it is in, and when it ends. So they are counted and shown,
//! and stay with the server of their first context. Nobody can be asked about one or told to end it: servers know them all
//! by pid 0. Who connects may hand his connection to another process, and that one counts as he does: whoever does so has
//! more of his own processes in one domain, and nothing of anybody else's. What must hold against that, as `shared_by`,
//! does not go by this.

use super::Clients;
use super::client::{BEFORE_CONTEXTS, Client};
use crate::core::identity::{HiddenId, Identity};
use crate::core::ids::{Pid, ServerEpoch, Uid};
use crate::core::servers::Servers;
use crate::core::servers::server::Server;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One process among the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core) enum Who {
    /// By its pid here.
    Pid(Pid),
    /// By what else the kernel says of it.
    Hidden(HiddenId),
}

impl Who {
    /// Which process this is; `None` for one of those that nobody can tell apart.
    pub(in crate::core) fn of(pid: Pid, identity: &Identity) -> Option<Self> {
        if pid == 0 { identity.elsewhere.as_ref().map(|known| Self::Hidden(known.id)) } else { Some(Self::Pid(pid)) }
    }
}

impl Client {
    /// Which process it is of.
    pub(in crate::core) fn who(&self) -> Option<Who> {
        Who::of(self.peer.pid, &self.identity)
    }
}

/// A client process without a pid here, and the server it belongs to.
#[derive(Debug, Clone)]
pub(in crate::core) struct HiddenProcess {
    pub(in crate::core) server: ServerEpoch,
    pub(in crate::core) uid: Uid,
    pub(in crate::core) identity: Arc<Identity>,
    /// How many of its connections were sent there: the first is the process's own, the others are contexts.
    pub(in crate::core) connections: usize,
}

impl HiddenProcess {
    /// How many contexts it has made on its server.
    pub(in crate::core) fn contexts_made(&self) -> usize {
        self.connections.saturating_sub(BEFORE_CONTEXTS)
    }
}

/// All of them that have a server.
#[derive(Debug, Default)]
pub(in crate::core) struct Hidden(BTreeMap<HiddenId, HiddenProcess>);

impl Hidden {
    pub(in crate::core) fn iter(&self) -> impl Iterator<Item = (HiddenId, &HiddenProcess)> {
        self.0.iter().map(|(id, process)| (*id, process))
    }

    /// A connection of one is sent to a server; whether the process was not known yet.
    pub(in crate::core) fn comes(
        &mut self,
        id: HiddenId,
        server: ServerEpoch,
        uid: Uid,
        identity: &Arc<Identity>,
    ) -> bool {
        let new = HiddenProcess { server, uid, identity: Arc::clone(identity), connections: 0 };
        let known = self.0.get(&id).filter(|known| known.server == server);
        let connections = known.map_or(0, |known| known.connections) + 1;
        self.0.insert(id, HiddenProcess { connections, ..new }).is_none()
    }

    /// One has ended.
    pub(in crate::core) fn gone(&mut self, id: HiddenId) {
        self.0.remove(&id);
    }

    /// A server has ended.
    pub(super) fn server_gone(&mut self, server: ServerEpoch) {
        self.0.retain(|_, process| process.server != server);
    }
}

impl Clients {
    /// The server that a client without a pid belongs to, as long as it can be used.
    pub(super) fn own_server_of_hidden<'servers>(
        &self,
        servers: &'servers Servers,
        client: &Client,
    ) -> Option<&'servers Server> {
        let Some(Who::Hidden(id)) = client.who() else { return None };
        let process = self.hidden.0.get(&id)?;
        let is_left = |server: &Server| server.can_be_left() && process.connections <= BEFORE_CONTEXTS;
        let server = servers.get(process.server)?;
        Some(server).filter(|server| server.is_connected() && !server.is_lost() && !is_left(server))
    }
}
