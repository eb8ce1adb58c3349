//! Connections from their acceptance to their role, and sessions of the command line: how many of whom there may be.

use super::reports::UnderWay;
use super::sessions::conversation::{self, ToSession};
use super::successor::keys;
use super::successor::notes::Stage;
use super::{Driver, handshake};
use crate::core::{ConnectionId, Peer, Rights, ServerEpoch, SessionId, Uid};
use crate::failpoint::reached;
use crate::io::seqpacket::SeqPacket;
use remps_proto::mps::handshake::Role;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Sessions of the command line at one time: of all users, and of each user who is neither root nor the owner.
const MAX_SESSIONS: usize = 512;
const MAX_SESSIONS_PER_USER: usize = 64;
/// Sessions of root and the owner that wait until another one has ended.
const MAX_QUEUED_SESSIONS: usize = 4096;
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

/// Who opens a session, and what he may do.
pub(super) type Visitor = (Peer, Rights);

/// A session of the command line.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) peer: Peer,
    pub(super) rights: Rights,
    /// driver --answers--> session
    pub(super) answers_tx: mpsc::UnboundedSender<ToSession>,
    /// Whether a command is under way.
    pub(super) busy: bool,
    /// The command under way, for the metrics.
    pub(super) under_way: Option<UnderWay>,
    pub(super) task: AbortHandle,
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
                self.open_session(SessionId(connection.0), (peer, rights.unwrap_or_default()), socket);
            }
            other => {
                self.log.chatter(self.own_pid, &format!("Unable to serve a connection of type {other}"));
                self.close(connection);
            }
        }
    }

    pub(super) fn open_session(&mut self, session: SessionId, (peer, rights): Visitor, socket: Arc<SeqPacket>) {
        let is_owner = rights.privileged && self.is_owner(peer.uid);
        let is_alike = |other: &Session| other.peer.uid == peer.uid && other.rights.privileged == rights.privileged;
        let of_user = self.sessions.values().filter(|other| is_alike(other)).count();
        // All the others together can't keep the owner out, and the owner's own wait for each other.
        if is_owner && of_user >= MAX_SESSIONS && self.queued_sessions.len() < MAX_QUEUED_SESSIONS {
            self.queued_sessions.push_back((session, (peer, rights), socket));
            return;
        }
        let full = if is_owner {
            of_user >= MAX_SESSIONS
        } else {
            of_user >= MAX_SESSIONS_PER_USER || self.sessions.len() >= MAX_SESSIONS
        };
        if full {
            self.log.chatter(self.own_pid, &format!("User {} has too many sessions, one is refused", peer.uid));
            return socket.refuse_the_rest();
        }
        if self.core.is_quitting() {
            return;
        }
        self.log.chatter(self.own_pid, "NEW UI");
        // driver --answers--> session
        let (answers_tx, answers_rx) = mpsc::unbounded_channel();
        let task = tokio::spawn(conversation::serve(session, socket, self.events.clone(), answers_rx)).abort_handle();
        self.sessions.insert(session, Session { peer, rights, answers_tx, busy: false, under_way: None, task });
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
