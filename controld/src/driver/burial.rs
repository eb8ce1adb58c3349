//! Clients that leave in the middle of their handshake with a server.
//!
//! NVIDIA's server does a client's handshake in the thread that serves its control connection. When a client closes its
//! socket before it has sent its credentials, that thread stops for good: the server takes no other client and answers
//! no request (580.159.04, with the vendor's daemon as well). One that is merely slow holds the thread up. So the daemon
//! keeps a duplicate of the client's end until the client reports its status, and does the rest of the handshake itself
//! when the client can't: the server then sees a client that connects and leaves.
//!
//! A client may have done part of the handshake. What it had sent already is then sent twice, and the server reads the
//! first three packets: seen to be harmless with the credentials doubled.

use super::events::{Event, Events};
use super::keys::{self, Stage};
use super::{Driver, handshake};
use crate::core::{ConnectionId, Input, Peer, ServerEpoch};
use crate::io::seqpacket::SeqPacket;
use nix::sys::socket::{Shutdown, shutdown};
use remps_proto::mps::client::{NO_PRIORITY, PROCESS_CONTEXT, Status};
use remps_proto::mps::handshake::{CREDENTIALS, DESCRIPTOR};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// How long the server may take for the rest of a handshake that is done for a client.
const REST_TIMEOUT: Duration = Duration::from_secs(5);
const CAPACITY: usize = 64;

/// Does the client's part of the handshake on its end of the pair, then closes that for everybody who has it.
async fn finish_handshake(end: OwnedFd) {
    let Ok(socket) = SeqPacket::new(end) else {
        return;
    };
    let packets = [CREDENTIALS.to_vec(), PROCESS_CONTEXT.to_le_bytes().to_vec(), NO_PRIORITY.to_le_bytes().to_vec()];
    // A server that is gone needs no handshake.
    let sent = packets.iter().try_for_each(|packet| socket.send(packet, None));
    let status = async {
        while let Ok(Some(packet)) = socket.receive(CAPACITY).await {
            if Status::decode(&packet.bytes).is_ok() {
                break;
            }
        }
    };
    if sent.is_ok() && timeout(REST_TIMEOUT, status).await.is_err() {
        tracing::debug!("a server did not end the handshake of a client that left");
    }
    // A client that was only slow must see that it has no server.
    let _ = shutdown(socket.as_fd().as_raw_fd(), Shutdown::Both);
}

/// Says that a server has answered on the pair that a killed daemon made.
async fn wait_for_server(connection: ConnectionId, end: SeqPacket, events: Events) {
    if let Ok(Some(_)) = end.peek(CAPACITY).await {
        events.send(Event::ServerHasEnd { connection }).await;
    }
}

/// A client of which a killed daemon had not noted whether its server was told.
#[derive(Debug)]
pub(super) struct Undecided {
    peer: Peer,
    server: ServerEpoch,
    end: OwnedFd,
    task: AbortHandle,
}

impl Driver {
    /// A client's connection is over. If it left its server in the middle of the handshake, that is finished for it.
    pub(super) fn client_left(&mut self, connection: ConnectionId, status: Option<u32>) {
        let end = self.connections.get_mut(&connection).and_then(|known| known.client_end.take());
        if let Some(end) = end.filter(|_| status.is_none()) {
            tokio::spawn(finish_handshake(end));
        }
    }

    /// Takes a client over whose server may or may not have been told: the server's first packet on the pair, or its
    /// answer to what this daemon asks, will say which. Throwing the pair away would stop a server that has it.
    ///
    /// # Errors
    /// When the descriptor can't be watched.
    pub(super) fn decide_later(
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

    /// A client that was still undecided has left: the pair is of no use to anybody, but its server may have it.
    pub(super) fn undecided_left(&mut self, connection: ConnectionId) {
        if let Some(Undecided { end, task, .. }) = self.undecided.remove(&connection) {
            task.abort();
            tokio::spawn(finish_handshake(end));
        }
    }

    /// The server has its end: the client gets its own.
    pub(super) fn server_has_end(&mut self, connection: ConnectionId) {
        if let Some(Undecided { peer, server, end, .. }) = self.undecided.remove(&connection) {
            self.note(connection, Stage::HandedOver, peer, Some(server));
            self.hand_over_end(connection, peer, server, end);
        }
    }

    /// Gives a client its end of the pair, perhaps for the second time, and waits for its status.
    pub(super) fn hand_over_end(&mut self, connection: ConnectionId, peer: Peer, server: ServerEpoch, end: OwnedFd) {
        let Some(known) = self.connections.get_mut(&connection) else {
            return;
        };
        // A client that is gone shows at its socket's end.
        let _ = known.socket.send(DESCRIPTOR, Some(end.as_fd()));
        known.client_end = Some(end);
        let task = handshake::read_late_status(connection, known.socket.clone(), self.events.clone());
        self.watch(connection, task);
        if let Some(effect) = self.core.restore_dispatched(connection, peer, server) {
            self.perform(effect);
        }
    }

    /// A server that was taken over has answered everything that came before: whom it has not greeted by now it was
    /// never told of, or it is gone. Those clients wait as before.
    pub(super) fn undecided_wait_again(&mut self, server: ServerEpoch) {
        let (waiting, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.undecided).into_iter().partition(|(_, undecided)| undecided.server == server);
        self.undecided = others;
        for (connection, Undecided { peer, task, .. }) in waiting {
            task.abort();
            self.kept(self.holder.release(keys::client_end(connection)));
            self.note(connection, Stage::Waiting, peer, None);
            if let Some(known) = self.connections.get(&connection) {
                let task = handshake::read_status(connection, known.socket.clone(), self.events.clone());
                self.watch(connection, task);
                self.feed(Input::ClientArrived { connection, peer });
            }
        }
    }
}
