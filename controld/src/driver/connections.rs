//! Connections from their acceptance to their role: how many of whom there may be.

use super::sessions::Visitor;
use super::successor::keys;
use super::successor::notes::Stage;
use super::{Driver, handshake};
use crate::core::{ConnectionId, Peer, ServerEpoch, SessionId, Uid};
use crate::failpoint::reached;
use crate::io::seqpacket::SeqPacket;
use remps_proto::mps::handshake::Role;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// Connections that have not said their role, of each user who is neither root nor the owner.
const MAX_HANDSHAKES_PER_USER: usize = 512;

/// A connection that has been accepted and is not over.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: Arc<SeqPacket>,
    pub(super) uid: Uid,
    /// Whether it came by `control_privileged`.
    pub(super) privileged: bool,
    /// Whether its role is still to come.
    pub(super) in_handshake: bool,
    /// The task that waits for its next packet.
    pub(super) task: AbortHandle,
    /// Of a client that does its handshake with a server: which one, and a duplicate of the client's end of the pair.
    pub(super) handed_over: Option<(ServerEpoch, OwnedFd)>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Driver {
    pub(super) fn accepted(&mut self, connection: ConnectionId, fd: OwnedFd, privileged: bool) {
        reached("accepted");
        self.log.chatter(self.own_pid, "Accepting connection...");
        match SeqPacket::new(fd) {
            Ok(socket) => self.greeted(connection, Arc::new(socket), privileged),
            Err(error) => {
                self.say(&format!("A connection can't be used: {error}"));
                self.successor.release(connection.0);
            }
        }
    }

    /// A connection that has been greeted: its next packets say what it is.
    pub(super) fn greeted(&mut self, connection: ConnectionId, socket: Arc<SeqPacket>, privileged: bool) {
        let uid = socket.connected_peer().map_or(u32::MAX, |peer| peer.uid);
        let handshakes = self.connections.values().filter(|other| other.in_handshake && other.uid == uid);
        if !self.is_owner(uid) && handshakes.count() >= MAX_HANDSHAKES_PER_USER {
            self.log.chatter(self.own_pid, &format!("User {uid} has too many connections without a role"));
            socket.refuse_the_rest();
            self.successor.release(connection.0);
            return;
        }
        let task = tokio::spawn(handshake::read_role(connection, socket.clone(), self.events.clone())).abort_handle();
        let known = Connection { socket, uid, privileged, in_handshake: true, task, handed_over: None };
        self.connections.insert(connection, known);
    }

    pub(super) fn is_owner(&self, uid: Uid) -> bool {
        uid == 0 || uid == self.owner
    }

    /// A connection has said what it is: noted first, and only then taken from its socket.
    pub(super) fn role(&mut self, connection: ConnectionId, role: Role, peer: Peer) {
        let Some(known) = self.connections.get_mut(&connection) else {
            return;
        };
        known.in_handshake = false;
        let socket = known.socket.clone();
        reached("role-seen");
        match role {
            Role::CLIENT => {
                self.successor.note(connection, Stage::Waiting, peer, None);
                reached("role-noted");
                let _ = socket.discard();
                reached("role-taken");
                self.watch(connection, handshake::read_status(connection, socket, self.events.clone()));
                self.client_arrives(connection, peer);
                reached("client-waits");
            }
            Role::SERVER => {
                self.successor.note(connection, Stage::Server, peer, None);
                reached("server-role-noted");
                let _ = socket.discard();
                reached("server-role-taken");
                self.watch(connection, handshake::read_hello(connection, peer, socket, self.events.clone()));
            }
            Role::UI => {
                // A session does not outlive the daemon: nobody could say which of its commands were done.
                let rights = self.connections.remove(&connection).map(|known| self.rights_of(&known, peer));
                self.successor.release(connection.0);
                let _ = socket.discard();
                let rights = rights.unwrap_or_default();
                let is_owner = rights.privileged && self.is_owner(peer.uid);
                self.open_session(Visitor { session: SessionId(connection.0), peer, rights, is_owner, socket });
            }
            other => {
                self.log.chatter(self.own_pid, &format!("Unable to serve a connection of type {other}"));
                self.close(connection);
            }
        }
    }

    /// Closes a connection here and with the holder.
    pub(in crate::driver) fn close(&mut self, connection: ConnectionId) {
        self.successor.release(keys::client_end(connection));
        if let Some(known) = self.connections.get(&connection) {
            known.socket.refuse_the_rest();
        }
        self.successor.release(connection.0);
        self.connections.remove(&connection);
    }

    /// Lets another task wait for a connection's next packet.
    pub(super) fn watch(&mut self, connection: ConnectionId, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(known) = self.connections.get_mut(&connection) {
            known.task.abort();
            known.task = tokio::spawn(task).abort_handle();
        }
    }
}
