//! Client processes that have no pid here, those of other PID namespaces, as far as they can be told apart.
//!
//! The kernel names a process by a descriptor whatever namespace it is in, and tells when it ends. Each gets a number above
//! all pids that stands for its pid: in tables, lists, verdicts and commands. The number comes of what the kernel tells
//! it apart by, so another daemon gives it the same one. Servers know all of them by pid 0, so a server can be asked to end
//! one only where it has no other.
//!
//! Who says that it is a client may hand its end of the connection with the server to another process, and that one
//! counts as it does: whoever does so has more of his own processes in one place, and nothing of anybody else's. The
//! same is so of those that have pids. Whom nobody can tell apart has pid 0.

use super::Clients;
use super::client::Stage;
use crate::core::evidence::ProcessKey;
use crate::core::identity::{HiddenId, Identity};
use crate::core::ids::{Pid, STAND_IN_RANGE, ServerEpoch, first_stand_in, is_hidden, is_stand_in, next_stand_in};
use crate::core::{Core, Namespace, Peer};
use std::collections::BTreeSet;
use std::sync::Arc;

/// By what a process is told apart that has no pid here.
fn id_of(identity: &Identity) -> Option<HiddenId> {
    identity.elsewhere.as_ref().map(|known| known.id)
}

impl Clients {
    /// Who a newcomer is, with the number that stands for its pid where it has none.
    pub(in crate::core) fn named(&self, peer: Peer, identity: &Identity) -> Peer {
        if !is_hidden(peer.pid) {
            return peer;
        }
        Peer { pid: id_of(identity).map_or(0, |id| self.stand_in(id)), ..peer }
    }

    /// The number of a process that has no pid here.
    fn stand_in(&self, id: HiddenId) -> Pid {
        let is_it = |identity: &Arc<Identity>| id_of(identity) == Some(id);
        let process = self.processes.range(STAND_IN_RANGE).find(|(_, process)| is_it(&process.identity));
        let known = process.map(|(pid, _)| *pid).or_else(|| {
            let mut hidden = self.iter().filter(|client| is_stand_in(client.peer.pid));
            hidden.find(|client| is_it(&client.identity)).map(|client| client.peer.pid)
        });
        known.unwrap_or_else(|| {
            let mut number = first_stand_in(id.0);
            while self.is_one(number) {
                number = next_stand_in(number);
            }
            number
        })
    }

    /// The processes of a server that have no pid here, or are on the way there, each once.
    pub(in crate::core) fn hidden_on(&self, server: ServerEpoch) -> BTreeSet<Pid> {
        let there = self.processes.range(STAND_IN_RANGE).filter(|(_, process)| process.server == server);
        let coming = self.iter().filter(|client| is_hidden(client.peer.pid) && client.stage.server() == Some(server));
        there.map(|(pid, _)| *pid).chain(coming.map(|client| client.peer.pid)).collect()
    }

    /// Whether nobody but this process has to do with a server, as far as that is known of those that are told apart.
    pub(in crate::core) fn is_alone_on(&self, server: ServerEpoch, pid: Pid) -> bool {
        let is_other = |stage: Stage| stage.server() == Some(server);
        self.on(server).all(|(other, _)| other == pid)
            && self.guests.on(server).next().is_none()
            && self.iter().all(|client| client.peer.pid == pid || !is_other(client.stage))
    }
}

impl Core {
    /// Whether pid 0 of a server is this process and can't be another one.
    pub(in crate::core) fn is_only_hidden(&self, server: ServerEpoch, client: Pid) -> bool {
        let are_known = self.servers.get(server).is_some_and(|server| !server.has_unknown_clients);
        are_known && self.clients.hidden_on(server) == BTreeSet::from([client])
    }

    /// The number of a process without a pid here; 0 is of those that nobody tells apart.
    pub(crate) fn number_of(&self, identity: &Identity) -> Pid {
        id_of(identity).map_or(0, |id| self.clients.stand_in(id))
    }

    /// A client process that has a server.
    pub(crate) fn client_key(&self, pid: Pid) -> Option<ProcessKey> {
        self.clients.process(pid).map(|process| process.key(pid))
    }

    /// The pid on the machine of a client that has none here.
    pub(crate) fn seen_as(&self, pid: Pid) -> Option<Pid> {
        self.clients.process(pid)?.identity.elsewhere.as_ref()?.seen_as
    }

    /// The PID namespace of a client that has no pid here, where it is known.
    pub(crate) fn hidden_namespace(&self, pid: Pid) -> Option<u64> {
        match self.clients.process(pid).filter(|_| is_stand_in(pid))?.identity.place.pid {
            Namespace::Other(inode) => Some(inode),
            Namespace::Own | Namespace::Alike(_) | Namespace::Unknown => None,
        }
    }
}
