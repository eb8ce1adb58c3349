//! Connections of an earlier daemon: each goes on from where its note says it was.

use super::found::{Found, skip_noted_role};
use crate::core::{ConnectionId, Peer, ServerEpoch};
use crate::driver::successor::keys;
use crate::driver::successor::notes::{ConnectionNote, Stage};
use crate::driver::{Driver, handshake};
use crate::io::seqpacket::SeqPacket;
use remps_proto::mps::handshake::Role;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl Driver {
    pub(in crate::driver) fn take_over_connections(&mut self, found: &mut Found) {
        self.take_over_hidden(std::mem::take(&mut found.hidden));
        for (connection, note, socket) in std::mem::take(&mut found.connections) {
            let (peer, server) = (note.peer(), ServerEpoch(note.server));
            let end = found.client_ends.remove(&keys::client_end(connection));
            match note.stage() {
                Stage::Unknown => {
                    let privileged = found.privileged_connections.contains(&connection);
                    self.greeted(connection, Arc::new(socket), privileged);
                }
                Stage::Waiting => self.client_again(connection, peer, Arc::new(socket)),
                Stage::Dispatching | Stage::HandedOver => {
                    let end = end.filter(|_| self.links.has(server));
                    self.client_on_its_way(connection, &note, Arc::new(socket), end);
                }
                Stage::Server => {
                    skip_noted_role(&socket, Role::SERVER);
                    let socket = Arc::new(socket);
                    let task = handshake::read_hello(connection, peer, socket.clone(), self.events.clone());
                    self.connections.resume(connection, socket, peer.uid, task);
                }
                // A server whose daemon died before it knew that it was configured, or one that is gone.
                Stage::Configuring | Stage::Link => self.successor.release(connection.0),
            }
        }
        // Ends of clients that are gone.
        for key in std::mem::take(&mut found.client_ends).into_keys() {
            self.successor.release(key);
        }
    }

    /// A client that waits, as before.
    fn client_again(&mut self, connection: ConnectionId, peer: Peer, socket: Arc<SeqPacket>) {
        skip_noted_role(&socket, Role::CLIENT);
        self.successor.note(connection, Stage::Waiting, peer, None);
        let task = handshake::read_status(connection, socket.clone(), self.events.clone());
        self.connections.resume(connection, socket, peer.uid, task);
        self.client_arrives(connection, peer);
    }

    /// A client that an earlier daemon was about to hand, or had handed, to a server.
    fn client_on_its_way(
        &mut self,
        connection: ConnectionId,
        note: &ConnectionNote,
        socket: Arc<SeqPacket>,
        end: Option<OwnedFd>,
    ) {
        let (peer, server) = (note.peer(), ServerEpoch(note.server));
        let Some(end) = end else {
            self.successor.release(keys::client_end(connection));
            self.client_again(connection, peer, socket);
            return;
        };
        let task = handshake::read_status(connection, socket.clone(), self.events.clone());
        self.connections.resume(connection, socket.clone(), peer.uid, task);
        if note.stage() == Stage::HandedOver {
            self.hand_over_end(connection, peer, server, end);
        } else if let Err(error) = self.handovers.begin(connection, peer, server, end) {
            self.say(&format!("Client {} can't be taken over: {error}", peer.pid));
            self.close(connection);
        }
    }
}
