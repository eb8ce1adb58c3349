//! Connections from their acceptance to their role: how many of whom there may be.

use super::events::Events;
use super::sessions::Visitor;
use super::successor::keys;
use super::successor::notes::Stage;
use super::{Driver, handshake};
use crate::core::{ConnectionId, Peer, Place, SessionId, Uid, is_hidden};
use crate::failpoint::reached;
use crate::io::seqpacket::SeqPacket;
use crate::witness::peer;
use remps_proto::mps::handshake::Role;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// Connections that have not said their role, of each user; of one who has the owner's number and is elsewhere, of each pod
/// or container. The owner, where the daemon is, has as many as he likes.
const MAX_HANDSHAKES_PER_USER: usize = 512;
/// As many of those who have the owner's number are let in without a look at where they are: that takes a few files of
/// `/proc` each.
const MAX_UNSEEN: usize = 64;

/// The vendor's line about a connection. It comes when it is known what the connection is.
pub(super) const ACCEPTING: &str = "Accepting connection...";

/// Which process has said a role.
#[derive(Debug)]
enum Speaker {
    Known(OwnedFd),
    /// It had ended by then: whoever goes on is another one.
    Ended,
}

/// Among whose connections without a role one counts.
///
/// Root of a container without a user namespace has the owner's number, and is nobody of his
/// ([`sessions::rights`](super::sessions)). Such are told apart by pod and container, and by nothing that they could make
/// more of: else one of them would take the others' room, or have as much as it makes namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Whose {
    User(Uid),
    /// Of somebody with the owner's number who was not looked at.
    Unseen,
    /// Of the owner, where the daemon is.
    Owner,
    /// Of somebody with the owner's number who is elsewhere: the path of his pod or else of his container, empty where he is
    /// in none or can't be looked at.
    Elsewhere(String),
}

impl Whose {
    /// How many there may be.
    const fn most(&self) -> usize {
        match self {
            Self::User(_) | Self::Elsewhere(_) => MAX_HANDSHAKES_PER_USER,
            Self::Unseen => MAX_UNSEEN,
            Self::Owner => usize::MAX,
        }
    }

    /// Of somebody with the owner's number who is there.
    fn at(place: Place) -> Self {
        match place {
            place if place.is_the_daemons() => Self::Owner,
            Place { pod, container, .. } => Self::Elsewhere(if pod.is_empty() { container } else { pod }),
        }
    }
}

/// A connection that has been accepted and is not over.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: Arc<SeqPacket>,
    whose: Whose,
    /// Whether it came by `control_privileged`.
    pub(super) privileged: bool,
    /// Whether its role is still to come.
    in_handshake: bool,
    /// Whether it counts among those of its user that are nothing yet: it has said no role, or that of a server without a
    /// server's hello.
    is_nothing: bool,
    /// The process that has said its role, of one that has no pid here.
    speaker: Option<Speaker>,
    /// The task that waits for its next packet.
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All connections but those of servers that have said hello, and of the command line.
pub(super) struct Connections {
    known: HashMap<ConnectionId, Connection>,
    events: Events,
}

impl Connections {
    pub(super) fn new(events: Events) -> Self {
        Self { known: HashMap::new(), events }
    }

    pub(super) fn has(&self, connection: ConnectionId) -> bool {
        self.known.contains_key(&connection)
    }

    pub(super) fn socket(&self, connection: ConnectionId) -> Option<&Arc<SeqPacket>> {
        self.known.get(&connection).map(|known| &known.socket)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Arc<SeqPacket>)> {
        self.known.iter().map(|(connection, known)| (*connection, &known.socket))
    }

    fn has_room(&self, whose: &Whose) -> bool {
        let most = whose.most();
        self.known.values().filter(|other| other.is_nothing && other.whose == *whose).take(most).count() < most
    }

    /// Waits for the role of a connection that has been greeted.
    fn begin(&mut self, connection: ConnectionId, socket: Arc<SeqPacket>, whose: Whose, privileged: bool) {
        let role = handshake::read_role(connection, socket.clone(), self.events.clone());
        let task = tokio::spawn(role).abort_handle();
        let (in_handshake, is_nothing, speaker) = (true, true, None);
        self.known
            .insert(connection, Connection { socket, whose, privileged, in_handshake, is_nothing, speaker, task });
    }

    /// Goes on with a connection of an earlier daemon's that has said its role; `task` waits for its next packet.
    pub(super) fn resume(
        &mut self,
        connection: ConnectionId,
        socket: Arc<SeqPacket>,
        uid: Uid,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = tokio::spawn(task).abort_handle();
        let whose = Whose::User(uid);
        let (privileged, in_handshake, is_nothing, speaker) = (false, false, false, None);
        self.known
            .insert(connection, Connection { socket, whose, privileged, in_handshake, is_nothing, speaker, task });
    }

    /// Whether its role is still to come.
    pub(super) fn is_in_handshake(&self, connection: ConnectionId) -> bool {
        self.known.get(&connection).is_some_and(|known| known.in_handshake)
    }

    /// A connection has said its role. Anybody may say that it is a server.
    fn has_role(&mut self, connection: ConnectionId, role: Role) -> Option<Arc<SeqPacket>> {
        let known = self.known.get_mut(&connection)?;
        known.in_handshake = false;
        known.is_nothing = role == Role::SERVER;
        Some(known.socket.clone())
    }

    /// Notes which process has said the role of a connection, whose next packet that still is.
    fn note_speaker(&mut self, connection: ConnectionId) {
        if let Some(known) = self.known.get_mut(&connection) {
            known.speaker = match known.socket.sender_pidfd() {
                Ok(Some(pidfd)) => Some(Speaker::Known(pidfd)),
                Ok(None) => Some(Speaker::Ended),
                Err(_) => None,
            };
        }
    }

    /// The process of a client without a pid here. Of one that came to an earlier daemon the one that connected, which
    /// may be another one than has spoken.
    ///
    /// # Errors
    /// When the connection is over, before Linux 6.5, or when the process had ended.
    pub(super) fn process_of(&self, connection: ConnectionId) -> std::io::Result<OwnedFd> {
        let known = self.known.get(&connection).ok_or(std::io::ErrorKind::NotConnected)?;
        match &known.speaker {
            Some(Speaker::Known(pidfd)) => pidfd.try_clone(),
            Some(Speaker::Ended) => Err(std::io::Error::from_raw_os_error(libc::ESRCH)),
            None => known.socket.peer_pidfd(),
        }
    }

    /// Lets another task wait for a connection's next packet.
    pub(super) fn wait(&mut self, connection: ConnectionId, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(known) = self.known.get_mut(&connection) {
            known.task.abort();
            known.task = tokio::spawn(task).abort_handle();
        }
    }

    /// Gives a connection away that is something else from now on.
    pub(super) fn remove(&mut self, connection: ConnectionId) -> Option<Connection> {
        self.known.remove(&connection)
    }
}

impl Driver {
    pub(super) fn accepted(&mut self, connection: ConnectionId, fd: OwnedFd, privileged: bool) {
        reached("accepted");
        match SeqPacket::new(fd) {
            Ok(socket) => self.greeted(connection, Arc::new(socket), privileged),
            Err(error) => {
                self.logs.chatter(ACCEPTING);
                self.say(&format!("A connection can't be used: {error}"));
                self.successor.release(connection.0);
            }
        }
    }

    /// A connection that has been greeted: its next packets say what it is.
    pub(super) fn greeted(&mut self, connection: ConnectionId, socket: Arc<SeqPacket>, privileged: bool) {
        let (uid, whose) = self.whose(&socket);
        if !self.connections.has_room(&whose) {
            self.logs.chatter(ACCEPTING);
            self.logs.chatter(&format!("User {uid} has too many connections without a role"));
            socket.refuse_the_rest();
            return self.successor.release(connection.0);
        }
        self.connections.begin(connection, socket, whose, privileged);
    }

    /// Who connected, and among whose connections that one counts.
    fn whose(&self, socket: &SeqPacket) -> (Uid, Whose) {
        let peer = socket.connected_peer();
        let uid = peer.as_ref().map_or(u32::MAX, |peer| peer.uid);
        if !self.is_owner(uid) {
            return (uid, Whose::User(uid));
        }
        if self.connections.has_room(&Whose::Unseen) {
            return (uid, Whose::Unseen);
        }
        let is_unseen = peer.is_ok_and(|peer| is_hidden(peer.pid));
        let place = if is_unseen {
            let pidfd = socket.peer_pidfd().ok();
            pidfd.and_then(|pidfd| self.witnesses.identities.place_of_hidden(&pidfd))
        } else {
            peer::look(&socket).ok().map(|connected| connected.found.place)
        };
        (uid, Whose::at(place.unwrap_or_default()))
    }

    pub(super) fn is_owner(&self, uid: Uid) -> bool {
        uid == 0 || uid == self.owner
    }

    /// A connection has said what it is: noted first, and only then taken from its socket.
    pub(super) fn role(&mut self, connection: ConnectionId, role: Role, peer: Peer) {
        let Some(socket) = self.connections.has_role(connection, role) else {
            return;
        };
        reached("role-seen");
        // That of the command line is told of with its first command, which may be a mere look.
        if role != Role::UI {
            self.logs.chatter(ACCEPTING);
        }
        match role {
            Role::CLIENT => {
                if is_hidden(peer.pid) {
                    self.connections.note_speaker(connection);
                }
                self.successor.note(connection, Stage::Waiting, peer, None);
                reached("role-noted");
                let _ = socket.discard();
                reached("role-taken");
                self.connections.wait(connection, handshake::read_status(connection, socket, self.events.clone()));
                self.client_arrives(connection, peer);
                reached("client-waits");
            }
            Role::SERVER => {
                self.successor.note(connection, Stage::Server, peer, None);
                reached("server-role-noted");
                let _ = socket.discard();
                reached("server-role-taken");
                self.connections.wait(connection, handshake::read_hello(connection, peer, socket, self.events.clone()));
            }
            Role::UI => {
                // A session does not outlive the daemon: nobody could say which of its commands were done.
                let rights = self
                    .connections
                    .remove(connection)
                    .map(|known| self.rights_of(&known.socket, known.privileged, peer));
                self.successor.release(connection.0);
                let _ = socket.discard();
                let rights = rights.unwrap_or_default();
                let is_owner = rights.privileged && self.is_owner(peer.uid);
                self.open_session(Visitor { session: SessionId(connection.0), peer, rights, is_owner, socket });
            }
            other => {
                self.logs.chatter(&format!("Unable to serve a connection of type {other}"));
                self.close(connection);
            }
        }
    }

    /// Closes a connection here and with the holder.
    pub(super) fn close(&mut self, connection: ConnectionId) {
        self.successor.release(keys::client_end(connection));
        if let Some(socket) = self.connections.socket(connection) {
            socket.refuse_the_rest();
        }
        self.successor.release(connection.0);
        self.connections.remove(connection);
        self.handovers.closed(connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Namespace;

    #[test]
    fn only_who_is_where_the_daemon_is_has_the_owners_room_and_a_pod_has_one() {
        let home = Place { user: Namespace::Own, pid: Namespace::Own, ..Place::default() };
        assert_eq!(Whose::at(home.clone()), Whose::Owner);
        let pod = |pid, container: &str| Place {
            pid: Namespace::Other(pid),
            container: container.to_owned(),
            pod: "/kubepods/pod1".to_owned(),
            ..home.clone()
        };
        // Neither namespaces nor containers of its own give it more.
        assert_eq!(Whose::at(pod(4, "/kubepods/pod1/a")), Whose::at(pod(5, "/kubepods/pod1/b")));
        let apart = |name: &str| Place { is_apart: true, container: name.to_owned(), ..home.clone() };
        assert_eq!(Whose::at(apart("/a")), Whose::Elsewhere("/a".to_owned()));
        assert_ne!(Whose::at(apart("/a")), Whose::at(apart("/b")));
        assert_eq!(Whose::at(Place::default()), Whose::Elsewhere(String::new()));
    }
}
