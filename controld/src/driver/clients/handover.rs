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
use crate::driver::clients::known_at_once;
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
    let socket = SeqPacket::new(end).ok()?;
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

/// A client whose server has been told, or may have been by a killed daemon, and has not greeted it yet.
#[derive(Debug)]
pub(in crate::driver) struct Undecided {
    peer: Peer,
    server: ServerEpoch,
    end: OwnedFd,
    task: AbortHandle,
}

impl Undecided {
    /// What a new holder has to keep of it.
    pub(in crate::driver) fn kept(&self) -> (Vec<u8>, BorrowedFd<'_>) {
        (ConnectionNote::of(Stage::Dispatching, self.peer, Some(self.server)), self.end.as_fd())
    }
}

impl Driver {
    /// A client's connection is over. If it left its server in the middle of the handshake, that is finished for it, and
    /// only then does the core hear of it: until then the server is busy with it.
    pub(in crate::driver) fn client_left(&mut self, connection: ConnectionId, status: Option<u32>) {
        let handed_over = self.connections.get_mut(&connection).and_then(|known| known.handed_over.take());
        // One that left before its server greeted it: the server may have its end all the same.
        let undecided = self.undecided.remove(&connection);
        let end = match (handed_over, undecided) {
            (Some((_, end)), _) if status.is_none() => Some(end),
            (_, Some(Undecided { end, task, .. })) => {
                task.abort();
                Some(end)
            }
            _ => None,
        };
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
        let Some(Undecided { peer, end, task, .. }) = self.undecided.remove(&connection) else {
            return;
        };
        task.abort();
        let socket = say_for_client(end);
        self.successor.note(connection, Stage::Waiting, peer, None);
        self.successor.release(keys::client_end(connection));
        if let Some(socket) = socket {
            tokio::spawn(finish_handshake(socket));
        }
    }

    /// Waits for the server's first packet on the pair. Of a server that was taken over, its answer to what this daemon
    /// asks may come first and say that it was never told; throwing the pair away would stop a server that has it.
    ///
    /// # Errors
    /// When the descriptor can't be watched.
    pub(in crate::driver) fn await_greeting(
        &mut self,
        connection: ConnectionId,
        peer: Peer,
        server: ServerEpoch,
        end: OwnedFd,
    ) -> std::io::Result<()> {
        let watched = SeqPacket::watch(end.try_clone()?)?;
        let task = tokio::spawn(wait_for_server(connection, watched, self.events.clone())).abort_handle();
        self.undecided.insert(connection, Undecided { peer, server, end, task });
        Ok(())
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
        if let Some(Undecided { peer, server, end, .. }) = self.undecided.remove(&connection) {
            self.successor.note(connection, Stage::HandedOver, peer, Some(server));
            reached("hand-over-noted");
            self.hand_over_end(connection, peer, server, end);
            reached("client-told");
        }
    }

    /// A server has closed its end unasked and lives on: another one would do the same with this client.
    pub(in crate::driver) fn server_closed_end(&mut self, connection: ConnectionId) {
        if let Some(Undecided { peer, .. }) = self.undecided.remove(&connection) {
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
        let Some(known) = self.connections.get_mut(&connection) else {
            return;
        };
        // A client that is gone shows at its socket's end.
        let _ = known.socket.send(DESCRIPTOR, Some(end.as_fd()));
        known.handed_over = Some((server, end));
        let task = handshake::read_late_status(connection, known.socket.clone(), self.events.clone());
        self.watch(connection, task);
        if self.core.client_peer(connection).is_none() {
            let (now, identity) = (self.now(), known_at_once(peer.pid));
            if let Some(effect) = self.core.restore_dispatched(now, connection, peer, identity, server) {
                self.perform(effect);
            }
        }
    }

    /// A server that was taken over has answered everything that came before, so whom it has not greeted by now it was
    /// never told of; or a server is gone. Its undecided clients wait as before.
    pub(in crate::driver) fn undecided_wait_again(&mut self, server: ServerEpoch) {
        let (waiting, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.undecided).into_iter().partition(|(_, undecided)| undecided.server == server);
        self.undecided = others;
        for (connection, Undecided { peer, task, .. }) in waiting {
            task.abort();
            self.wait_again(connection, peer);
        }
    }

    /// A client's pair of sockets is of no use any more; the client waits as before.
    pub(in crate::driver) fn wait_again(&mut self, connection: ConnectionId, peer: Peer) {
        self.successor.release(keys::client_end(connection));
        self.successor.note(connection, Stage::Waiting, peer, None);
        if self.connections.contains_key(&connection) {
            self.client_arrives(connection, peer);
        }
    }
}
