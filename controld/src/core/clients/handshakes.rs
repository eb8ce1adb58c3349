//! Clients between the word to a server and the end of their handshake with it, and how they are taken back.

use super::channels::{Channel, Facts};
use super::client::{BEFORE_CONTEXTS, Client, Stage};
use crate::core::events::{JournalEvent, RefusalReason};
use crate::core::ids::{ConnectionId, ServerEpoch};
use crate::core::{Core, Effect};
use core::time::Duration;
use std::sync::Arc;

impl Core {
    /// A server has greeted a client: it gets its end, unless a sign of a fault has come meanwhile, or the server's answer
    /// to what it was asked before that lies unread.
    pub(in crate::core) fn server_greeted(&mut self, connection: ConnectionId) {
        let Some(client) = self.clients.connections.get_mut(&connection) else {
            return;
        };
        let Some(epoch) = client.stage.server() else {
            return;
        };
        let is_suspected = self.servers.get(epoch).is_some_and(|server| server.is_suspected());
        // Anybody can make a server suspect again and again, and nobody must wait for ever because of that.
        if is_suspected && client.recalled_from != Some(epoch) {
            self.recall(connection);
        } else if let Stage::Told { awaits, is_greeted, .. } = &mut client.stage {
            *is_greeted = true;
            if awaits.is_none() {
                client.stage = Stage::HasEnd { server: epoch };
                self.servers.client_has_end(epoch);
                self.turn.push(Effect::HandOver { connection });
            }
        }
        self.servers.progress(&mut self.turn, epoch);
    }

    /// A server has said how it is, or has not, when it was asked on newcomers' account: those that it was told of after
    /// that go on, or come back.
    pub(in crate::core) fn word_has_come(&mut self, epoch: ServerEpoch, asked_at: Duration, is_known: bool) {
        let mut on_their_way = Vec::new();
        for (connection, client) in &mut self.clients.connections {
            if let Stage::Told { server, awaits, is_greeted } = &mut client.stage
                && *server == epoch
                && awaits.take_if(|at| *at <= asked_at).is_some()
            {
                on_their_way.push((*connection, *is_greeted));
            }
        }
        for (connection, is_greeted) in on_their_way {
            if !is_known {
                self.recall(connection);
            } else if is_greeted {
                self.server_greeted(connection);
            }
        }
    }

    /// A handshake is over: the server has said how, or the client has left.
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
        if client.spare.is_some() {
            return self.spare_is_done(&client, server, status);
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

    /// A client does not hold its server up any longer.
    pub(in crate::core) fn end_taken_back(&mut self, connection: ConnectionId) {
        let Some(client) = self.clients.connections.get_mut(&connection) else {
            return;
        };
        let Stage::HasEnd { server } = client.stage else {
            return;
        };
        client.stage = Stage::Told { server, awaits: None, is_greeted: true };
        self.servers.end_taken_back(server, self.turn.now);
    }

    /// A server has done what was left of a handshake, for a client that has left.
    pub(in crate::core) fn rest_answered(&mut self, connection: ConnectionId) {
        if let Some(epoch) = self.clients.get(connection).and_then(|client| client.stage.server()) {
            self.servers.progress(&mut self.turn, epoch);
        }
    }

    /// Takes a client back from the server that was told of it.
    fn recall(&mut self, connection: ConnectionId) {
        let Some(client) = self.clients.connections.get_mut(&connection) else {
            return;
        };
        let Some(epoch) = client.stage.server() else {
            return;
        };
        client.recalled_from = Some(epoch);
        self.turn.push(Effect::Recall { connection });
        self.waits_again(connection);
    }

    /// A client that was on its way to a server is the first of its domain's queue again; but when the daemon ends
    /// nobody waits any longer.
    pub(in crate::core) fn waits_again(&mut self, connection: ConnectionId) {
        let Some(client) = self.clients.connections.get_mut(&connection) else {
            return;
        };
        let stage = core::mem::replace(&mut client.stage, Stage::Waiting);
        let Some(server) = stage.server() else {
            return;
        };
        let mut domain = client.domain;
        let (peer, identity, entrance) = (client.peer, Arc::clone(&client.identity), client.entrance);
        self.servers.handshake_over(server, stage.has_end());
        // It has no queue: whether it still has a place is looked at next.
        if client.spare.is_some() {
            return;
        }
        let refusal = if self.turn.quit.is_some() {
            Some((RefusalReason::Quitting, "the daemon is about to quit".to_owned()))
        } else {
            self.not_let_in(peer, entrance).map(|words| (RefusalReason::Namespace, words))
        };
        if let Some((reason, words)) = refusal {
            self.clients.connections.remove(&connection);
            self.clients.refuse(&mut self.turn, connection, peer, &identity, reason, &words);
            return;
        }
        // A domain is forgotten whose only clients are on another one's server.
        if self.servers.domain(domain).is_none() {
            domain = self.domain_of_client(peer, &identity, entrance);
            if let Some(client) = self.clients.connections.get_mut(&connection) {
                client.domain = domain;
            }
        }
        self.clients.enqueue(domain, connection, true);
    }

    /// Takes back those whom a tainted server was told of, as far as they can go elsewhere.
    pub(in crate::core) fn recall_all(&mut self, epoch: ServerEpoch) {
        let is_bound = |client: &Client| {
            let own = self.clients.processes.get(&client.peer.pid).filter(|process| process.server == epoch);
            own.is_some_and(|process| !process.is_hit(&self.servers) && process.connections > BEFORE_CONTEXTS)
        };
        let is_told =
            |client: &Client| client.stage.server() == Some(epoch) && !client.stage.has_end() && !is_bound(client);
        let movable = self.clients.connections.iter().filter(|(_, client)| is_told(client));
        let movable: Vec<ConnectionId> = movable.map(|(connection, _)| *connection).collect();
        // The one that was told first is the first in the queue again.
        for connection in movable.into_iter().rev() {
            self.recall(connection);
        }
    }
}
