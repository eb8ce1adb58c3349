//! The connections of spare copies: which of them have a place, and when they are handed to the server of their grant.

use crate::core::clients::client::{BEFORE_CONTEXTS, Client, Process, Stage};
use crate::core::clients::spares::Grant;
use crate::core::evidence::ProcessKey;
use crate::core::identity::Identity;
use crate::core::ids::{ConnectionId, EntranceId};
use crate::core::servers::server::Server;
use crate::core::{Core, Effect, Peer};
use std::sync::Arc;

impl Core {
    /// How many connections one spare copy needs: its own, and one for a context on each GPU of its server, or as many as
    /// its program's living copy has.
    fn most_connections(&self, process: ProcessKey, grant: &Grant) -> usize {
        let devices = self.gpus.known().of_server(grant.server).len().max(1);
        let own = self.clients.known(process).and_then(Process::contexts_made).unwrap_or_default();
        BEFORE_CONTEXTS + devices.max(own)
    }

    /// A connection has come that shows a token.
    pub(in crate::core) fn spare_arrived(
        &mut self,
        connection: ConnectionId,
        peer: Peer,
        identity: Arc<Identity>,
        token: u64,
        entrance: Option<EntranceId>,
    ) {
        // Its server died before it had taken it.
        if self.clients.get(connection).is_some_and(|client| client.stage.server().is_some()) {
            self.waits_again(connection);
            return;
        }
        let process = ProcessKey { pid: peer.pid, start_time: identity.start_time };
        if self.spare_has_lived(process, token) {
            self.client_arrived(connection, peer, identity, entrance);
            return;
        }
        let is_own = |other: &&Client| other.peer.pid == peer.pid && other.spare.is_some();
        let on_the_way = self.clients.iter().filter(is_own).count();
        let grant = self.clients.spares().grant_of(process).filter(|grant| grant.token == token);
        let domain = grant.and_then(|grant| self.servers.get(grant.server)).map(|server| server.domain);
        let has_room = |grant: &Grant| {
            let guest = self.clients.guests().get(grant.server, peer.pid);
            let made = guest.map_or(0, |guest| guest.process.connections);
            grant.uid == peer.uid && made.saturating_add(on_the_way) < self.most_connections(process, grant)
        };
        let (Some(domain), true) = (domain, grant.is_some_and(has_room)) else {
            self.turn.log(format!("Client {} has no place for the spare copy that comes", peer.pid));
            self.turn.push(Effect::Close { connection });
            return;
        };
        let client = Client::new(self.turn.now, peer, identity, domain, Stage::Waiting);
        self.clients.insert(connection, Client { spare: Some(token), entrance, ..client });
    }

    /// Hands waiting connections of spare copies to the servers of their grants, and closes those without one.
    pub(super) fn dispatch_spares(&mut self) {
        let waiting: Vec<ConnectionId> = self.clients.waiting_spares().map(|(connection, _)| connection).collect();
        for connection in waiting {
            let Some(client) = self.clients.get(connection) else { continue };
            let (process, token) = (client.process(), client.spare);
            let (uid, identity) = (client.peer.uid, Arc::clone(&client.identity));
            let grant = self.clients.spares().grant_of(process).filter(|grant| Some(grant.token) == token);
            let Some(epoch) = grant.map(|grant| grant.server) else {
                self.clients.forget_connection(connection);
                self.turn.push(Effect::Close { connection });
                continue;
            };
            let is_open = |server: &Server| self.clients.is_open(&self.turn.policy, server);
            if !self.servers.get(epoch).is_some_and(is_open) {
                continue;
            }
            self.clients.goes_on(connection, Stage::Told { server: epoch, awaits: None, is_greeted: false });
            self.clients.guests_mut().comes(process.pid, Process::guest(epoch, uid, identity));
            self.turn.push(Effect::Dispatch { server: epoch, connection });
            self.servers.will_owe(self.turn.now, epoch);
            self.servers.handshake_begins(epoch);
        }
    }
}
