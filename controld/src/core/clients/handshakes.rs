//! Clients between the word to a server and the end of their handshake with it, and how they are taken back.

use super::admission::{Client, Place};
use crate::core::ids::{ConnectionId, ServerEpoch};
use crate::core::journal::RefusalReason;
use crate::core::servers::settle::BEFORE_CONTEXTS;
use crate::core::{Core, Effect};
use core::time::Duration;
use std::sync::Arc;

impl Core {
    /// A client's handshake with a server is over, whatever came of it.
    pub(super) fn handshake_over(&mut self, server: ServerEpoch, had_end: bool) {
        if let Some(server) = self.servers.get_mut(&server) {
            server.handshakes = server.handshakes.saturating_sub(1);
            server.with_clients = server.with_clients.saturating_sub(usize::from(had_end));
        }
    }

    /// A server has greeted a client: it gets its end, unless a sign of a fault has come meanwhile, or the server's answer
    /// to what it was asked before that lies unread.
    pub(in crate::core) fn server_greeted(&mut self, connection: ConnectionId) {
        let Some(client) = self.clients.get_mut(&connection) else {
            return;
        };
        let Place::Dispatched(epoch) = client.place else {
            return;
        };
        client.is_greeted = true;
        let is_suspected = self.servers.get(&epoch).is_some_and(|server| server.suspected);
        // Anybody can make a server suspect again and again, and nobody must wait for ever because of that.
        if is_suspected && client.recalled_from != Some(epoch) {
            self.recall(connection);
        } else if client.awaits.is_none() {
            self.gets_end(connection, epoch);
        }
        self.progress(epoch);
    }

    fn gets_end(&mut self, connection: ConnectionId, epoch: ServerEpoch) {
        let Some(client) = self.clients.get_mut(&connection) else {
            return;
        };
        if !core::mem::replace(&mut client.has_end, true) {
            if let Some(server) = self.servers.get_mut(&epoch) {
                server.with_clients += 1;
                server.has_served = true;
            }
            self.turn.push(Effect::HandOver { connection });
        }
    }

    /// A server has said how it is, or has not, when it was asked on newcomers' account: those that it was told of after
    /// that go on, or come back.
    pub(in crate::core) fn word_has_come(&mut self, epoch: ServerEpoch, asked_at: Duration, is_known: bool) {
        let to_it = |client: &Client| client.place == Place::Dispatched(epoch) && !client.has_end;
        let awaits = |client: &Client| client.awaits.is_some_and(|at| at <= asked_at);
        let on_their_way = self.clients.iter().filter(|(_, client)| to_it(client) && awaits(client));
        let on_their_way: Vec<ConnectionId> = on_their_way.map(|(connection, _)| *connection).collect();
        for connection in on_their_way {
            let Some(client) = self.clients.get_mut(&connection) else { continue };
            client.awaits = None;
            if !is_known {
                self.recall(connection);
            } else if client.is_greeted {
                self.server_greeted(connection);
            }
        }
    }

    /// A client does not hold its server up any longer.
    pub(in crate::core) fn end_taken_back(&mut self, connection: ConnectionId) {
        let Some(client) = self.clients.get_mut(&connection) else {
            return;
        };
        if let Place::Dispatched(epoch) = client.place
            && core::mem::take(&mut client.has_end)
            && let Some(server) = self.servers.get_mut(&epoch)
        {
            server.with_clients = server.with_clients.saturating_sub(1);
            server.progress_at = self.turn.now;
        }
    }

    /// A server has done what was left of a handshake, for a client that has left.
    pub(in crate::core) fn rest_answered(&mut self, connection: ConnectionId) {
        if let Some(Place::Dispatched(epoch)) = self.clients.get(&connection).map(|client| client.place) {
            self.progress(epoch);
        }
    }

    /// Takes a client back from the server that was told of it.
    fn recall(&mut self, connection: ConnectionId) {
        let Some(client) = self.clients.get_mut(&connection) else {
            return;
        };
        let Place::Dispatched(epoch) = client.place else {
            return;
        };
        client.recalled_from = Some(epoch);
        self.turn.push(Effect::Recall { connection });
        self.waits_again(connection);
    }

    /// A client that was on its way to a server is the first of its domain's queue again; but when the daemon ends
    /// nobody waits any longer.
    pub(super) fn waits_again(&mut self, connection: ConnectionId) {
        let Some(client) = self.clients.get_mut(&connection) else {
            return;
        };
        let Place::Dispatched(server) = core::mem::replace(&mut client.place, Place::Waiting) else {
            return;
        };
        let (mut domain, had_end) = (client.domain, core::mem::take(&mut client.has_end));
        (client.is_greeted, client.awaits) = (false, None);
        let (peer, identity) = (client.peer, Arc::clone(&client.identity));
        self.handshake_over(server, had_end);
        // A domain is forgotten whose only clients are on another one's server.
        if self.domains.get(domain).is_none() {
            domain = self.domain_of_client(self.turn.now, peer, &identity);
            if let Some(client) = self.clients.get_mut(&connection) {
                client.domain = domain;
            }
        }
        if self.quit.is_some() {
            self.clients.remove(&connection);
            self.refuse(connection, peer, &identity, RefusalReason::Quitting, "the daemon is about to quit");
        } else if let Some(queue) = self.domains.get_mut(domain) {
            queue.waiting.push_front(connection);
        }
    }

    /// Takes back those whom a tainted server was told of, as far as they can go elsewhere.
    pub(in crate::core) fn recall_all(&mut self, epoch: ServerEpoch) {
        let is_bound = |client: &Client| {
            let own = self.processes.get(&client.peer.pid).filter(|process| process.server == epoch);
            own.is_some_and(|process| !self.is_hit(process) && process.connections > BEFORE_CONTEXTS)
        };
        let told = self.clients.iter().filter(|(_, client)| client.place == Place::Dispatched(epoch));
        let movable: Vec<ConnectionId> = told
            .filter(|(_, client)| !client.has_end && !is_bound(client))
            .map(|(connection, _)| *connection)
            .collect();
        // The one that was told first is the first in the queue again.
        for connection in movable.into_iter().rev() {
            self.recall(connection);
        }
    }
}
