//! Clients on their way to a server: between the daemon's word to the server and the client's status.
//!
//! # Servers that die
//! A client gets its end of the pair only when its server has greeted it there, the core has no sign of a fault by
//! then, and the server has answered what it was asked before on the client's account. A server that ends, or is found to be in a fault, before that has harmed nobody: the client waits for the next
//! one, and the server, if it lives, sees a client that connects and leaves.
//!
//! # Clients that leave
//! NVIDIA's server does a client's handshake in the thread that serves its control connection. When a client closes its
//! socket before it has sent its credentials, that thread stops for good: the server takes no other client and answers
//! no request (580.159.04, with the vendor's daemon as well). One that is merely slow holds the thread up. So the daemon
//! keeps a duplicate of the client's end until the client reports its status, and does the rest of the handshake itself
//! when the client can't: the server then sees a client that connects and leaves.
//!
//! A client may have done part of the handshake. What it had sent already is then sent twice, and the server reads the
//! first three packets: seen to be harmless with the credentials doubled.

use crate::core::{ConnectionId, Input, Peer, ServerEpoch};
use crate::driver::events::{Event, Events};
use crate::driver::successor::keys;
use crate::driver::successor::notes::{ConnectionNote, Stage};
use crate::driver::{Driver, handshake};
use crate::failpoint::reached;
use crate::io::seqpacket::SeqPacket;
use crate::patience::patient;
use nix::sys::socket::{Shutdown, shutdown};
use remps_proto::mps::client::{NO_PRIORITY, PROCESS_CONTEXT, Status};
use remps_proto::mps::handshake::{CREDENTIALS, DESCRIPTOR};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};

/// How long the server may take for the rest of a handshake that is done for a client.
const REST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long after a pair's end the end of the server's control connection is noticed at the latest.
const DYING_TIME: Duration = Duration::from_secs(1);
const CAPACITY: usize = 64;

/// Sends the client's part of the handshake on its end of the pair; from then on the end may be closed at any time. What
/// is left to be waited for is [`finish_handshake`].
fn say_for_client(end: OwnedFd) -> Option<SeqPacket> {
    let socket = SeqPacket::of_pair(end).ok()?;
    let packets = [CREDENTIALS.to_vec(), PROCESS_CONTEXT.to_le_bytes().to_vec(), NO_PRIORITY.to_le_bytes().to_vec()];
    // A server that is gone needs no handshake.
    let sent = packets.iter().try_for_each(|packet| socket.send(packet, None));
    sent.is_ok().then_some(socket)
}

/// Waits for the end of a handshake that is done for a client, then closes its end for everybody who has it; whether the
/// server has ended it.
async fn finish_handshake(socket: SeqPacket) -> bool {
    let status = async {
        while let Ok(Some(packet)) = socket.receive(CAPACITY).await {
            if Status::decode(&packet.bytes).is_ok() {
                break;
            }
        }
    };
    let is_answered = timeout(patient(REST_TIMEOUT), status).await.is_ok();
    if !is_answered {
        tracing::debug!("a server did not end the handshake of a client that left");
    }
    // A client that was only slow must see that it has no server.
    let _ = shutdown(socket.as_fd().as_raw_fd(), Shutdown::Both);
    is_answered
}

/// Says that a server has greeted its client on the pair, or has closed its end without a word and lives on: when it
/// has ended, its control connection says so before.
async fn wait_for_server(connection: ConnectionId, end: SeqPacket, events: Events) {
    let event = match end.peek(CAPACITY).await {
        Ok(Some(_)) => Event::ServerHasEnd { connection },
        Ok(None) | Err(_) => {
            sleep_until(Instant::now() + DYING_TIME).await;
            Event::ServerClosedEnd { connection }
        }
    };
    events.send(event).await;
}

/// A client that has been given to a server and has not reported its status yet.
#[derive(Debug)]
struct Handover {
    peer: Peer,
    server: ServerEpoch,
    /// A duplicate of the client's end of the pair.
    end: OwnedFd,
    /// The task that waits for the server's greeting, of a client that has not got its end yet: its server has been told,
    /// or may have been by a killed daemon.
    undecided: Option<AbortHandle>,
}

/// All of them.
pub(in crate::driver) struct Handovers {
    clients: BTreeMap<ConnectionId, Handover>,
    events: Events,
}

impl Handovers {
    pub(in crate::driver) fn new(events: Events) -> Self {
        Self { clients: BTreeMap::new(), events }
    }

    /// Waits for the server's first packet on the pair. Of a server that was taken over, its answer to what this daemon
    /// asks may come first and say that it was never told; throwing the pair away would stop a server that has it.
    ///
    /// # Errors
    /// When the descriptor can't be watched.
    pub(in crate::driver) fn begin(
        &mut self,
        connection: ConnectionId,
        peer: Peer,
        server: ServerEpoch,
        end: OwnedFd,
    ) -> std::io::Result<()> {
        let watched = SeqPacket::watch(end.try_clone()?)?;
        let task = tokio::spawn(wait_for_server(connection, watched, self.events.clone())).abort_handle();
        self.clients.insert(connection, Handover { peer, server, end, undecided: Some(task) });
        Ok(())
    }

    /// What another holder has to keep of a client beside its connection.
    pub(in crate::driver) fn kept(&self, connection: ConnectionId) -> Option<(Vec<u8>, BorrowedFd<'_>)> {
        let Handover { peer, server, end, undecided } = self.clients.get(&connection)?;
        let stage = if undecided.is_some() { Stage::Dispatching } else { Stage::HandedOver };
        Some((ConnectionNote::of(stage, *peer, Some(*server)), end.as_fd()))
    }

    fn take_undecided(&mut self, connection: ConnectionId) -> Option<Handover> {
        self.clients.get(&connection)?.undecided.as_ref()?.abort();
        self.clients.remove(&connection)
    }

    /// The end of a client whose connection is over, if its server may still wait for the rest of the handshake: also of
    /// one that left before its server greeted it.
    fn left(&mut self, connection: ConnectionId, status: Option<u32>) -> Option<OwnedFd> {
        let undecided = self.take_undecided(connection);
        let left = undecided.or_else(|| self.clients.remove(&connection).filter(|_| status.is_none()));
        left.map(|handover| handover.end)
    }

    /// A connection is closed. The end of one that has not got its own is kept until its server shows what it does.
    pub(in crate::driver) fn closed(&mut self, connection: ConnectionId) {
        if self.clients.get(&connection).is_some_and(|handover| handover.undecided.is_none()) {
            self.clients.remove(&connection);
        }
    }

    fn take_undecided_of(&mut self, server: ServerEpoch) -> Vec<(ConnectionId, Handover)> {
        let is_one = |_: &ConnectionId, handover: &mut Handover| {
            handover.server == server && handover.undecided.as_ref().inspect(|task| task.abort()).is_some()
        };
        self.clients.extract_if(.., is_one).collect()
    }
}

impl Driver {
    /// A client's connection is over. If it left its server in the middle of the handshake, that is finished for it, and
    /// only then does the core hear of it: until then the server is busy with it.
    pub(in crate::driver) fn client_left(&mut self, connection: ConnectionId, status: Option<u32>) {
        let end = self.handovers.left(connection, status);
        let is_unfinished = end.is_some();
        let socket = end.and_then(say_for_client);
        self.close(connection);
        reached("client-released");
        if !is_unfinished {
            return self.feed(Input::ClientDone { connection, status });
        }
        // From now on only the server can be slow.
        self.feed(Input::EndTakenBack { connection });
        let events = self.events.clone();
        tokio::spawn(async move {
            let is_answered = match socket {
                Some(socket) => finish_handshake(socket).await,
                None => false,
            };
            events.send(Event::HandshakeFinished { connection, is_answered }).await;
        });
    }

    /// Takes a client back from a server that was told of it: the server sees a client that connects and leaves.
    pub(in crate::driver) fn recall(&mut self, connection: ConnectionId) {
        let Some(Handover { peer, end, .. }) = self.handovers.take_undecided(connection) else {
            return;
        };
        let socket = say_for_client(end);
        self.successor.note(connection, Stage::Waiting, peer, None);
        self.successor.release(keys::client_end(connection));
        if let Some(socket) = socket {
            tokio::spawn(finish_handshake(socket));
        }
    }

    /// The server has its end. Whether the client gets its own now is decided by the core, unless an earlier daemon's
    /// core has decided it.
    pub(in crate::driver) fn server_has_end(&mut self, connection: ConnectionId) {
        if self.core.client_peer(connection).is_some() {
            self.feed(Input::ServerGreeted { connection });
        } else {
            self.hand_over_to(connection);
        }
    }

    /// The client gets its end of the pair.
    pub(in crate::driver) fn hand_over_to(&mut self, connection: ConnectionId) {
        if let Some(Handover { peer, server, end, .. }) = self.handovers.take_undecided(connection) {
            self.successor.note(connection, Stage::HandedOver, peer, Some(server));
            reached("hand-over-noted");
            self.hand_over_end(connection, peer, server, end);
            reached("client-told");
        }
    }

    /// A server has closed its end unasked and lives on: another one would do the same with this client.
    pub(in crate::driver) fn server_closed_end(&mut self, connection: ConnectionId) {
        if let Some(Handover { peer, .. }) = self.handovers.take_undecided(connection) {
            self.say(&format!("Client {} was sent away by its server", peer.pid));
            self.close(connection);
            self.feed(Input::ClientDone { connection, status: None });
        }
    }

    /// Gives a client its end of the pair, perhaps for the second time, and waits for its status.
    ///
    /// A client that had it already ignores the second one.
    pub(in crate::driver) fn hand_over_end(
        &mut self,
        connection: ConnectionId,
        peer: Peer,
        server: ServerEpoch,
        end: OwnedFd,
    ) {
        let Some(socket) = self.connections.socket(connection).cloned() else {
            return;
        };
        // A client that is gone shows at its socket's end.
        let _ = socket.send(DESCRIPTOR, Some(end.as_fd()));
        self.handovers.clients.insert(connection, Handover { peer, server, end, undecided: None });
        self.connections.wait(connection, handshake::read_late_status(connection, socket, self.events.clone()));
        if self.core.client_peer(connection).is_none() {
            let (now, identity) = (self.now(), self.client_at_once(connection, peer));
            if let Some(effect) = self.core.restore_dispatched(now, connection, peer, identity, server) {
                self.perform(effect);
            }
        }
    }

    /// A server that was taken over has answered everything that came before, so whom it has not greeted by now it was
    /// never told of; or a server is gone. Its undecided clients wait as before.
    pub(in crate::driver) fn undecided_wait_again(&mut self, server: ServerEpoch) {
        for (connection, Handover { peer, .. }) in self.handovers.take_undecided_of(server) {
            self.wait_again(connection, peer);
        }
    }

    /// A client's pair of sockets is of no use any more; the client waits as before.
    pub(in crate::driver) fn wait_again(&mut self, connection: ConnectionId, peer: Peer) {
        self.successor.release(keys::client_end(connection));
        self.successor.note(connection, Stage::Waiting, peer, None);
        if self.connections.has(connection) {
            self.client_arrives(connection, peer);
        }
    }
}
