//! The first packets of a connection: credentials and role.
//!
//! The holder has greeted the peer already. The role is only looked at here and taken away by the driver, after it has
//! noted it with the holder: a daemon killed in between leaves a connection whose next packet still says what it is.

use super::events::{Event, Events, Refusal};
use crate::core::{ConnectionId, Peer};
use crate::failpoint::reached;
use crate::io::seqpacket::SeqPacket;
use crate::patience::patient;
use remps_proto::mps::handshake::{CREDENTIALS, Role, expect_fixed};
use remps_proto::mps::server::{HELLO_LENGTH, Hello};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a peer may take for its credentials; every real one answers the greeting at once.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer may take for its role; a server sends it when it has initialised CUDA on every GPU.
const ROLE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a server may take from its role to its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Larger than every packet of a handshake.
const CAPACITY: usize = 1024;

pub(super) async fn role(socket: &SeqPacket) -> Result<(Role, Peer), Refusal> {
    // A successor of a killed daemon may find the credentials gone already.
    let first = timeout(patient(CREDENTIALS_TIMEOUT), socket.peek(CAPACITY)).await.map_err(|_| Refusal::Credentials)?;
    let first = first.ok().flatten().ok_or(Refusal::Credentials)?;
    if Role::decode(&first.bytes).is_err() {
        expect_fixed("credentials", &first.bytes, CREDENTIALS).map_err(|_| Refusal::Credentials)?;
        socket.discard().map_err(|_| Refusal::Credentials)?;
        reached("credentials-taken");
    }
    let packet = timeout(patient(ROLE_TIMEOUT), socket.peek(CAPACITY)).await.map_err(|_| Refusal::Role)?;
    let packet = packet.ok().flatten().ok_or(Refusal::Role)?;
    let role = Role::decode(&packet.bytes).map_err(|_| Refusal::Role)?;
    let peer = packet.sender.or_else(|| socket.connected_peer().ok()).ok_or(Refusal::Credentials)?;
    Ok((role, peer))
}

/// Reads up to the role and reports it, or why there is none.
pub(super) async fn read_role(connection: ConnectionId, socket: Arc<SeqPacket>, events: Events) {
    let event = match role(&socket).await {
        Ok((role, peer)) => Event::Role { connection, role, peer },
        Err(refusal) => Event::Refused { connection, refusal },
    };
    events.send(event).await;
}

/// Looks at a server's hello and reports it; the driver takes it away.
pub(super) async fn read_hello(connection: ConnectionId, peer: Peer, socket: Arc<SeqPacket>, events: Events) {
    let packet = timeout(patient(HELLO_TIMEOUT), socket.peek(CAPACITY)).await;
    let hello = match packet {
        Ok(Ok(Some(packet))) if packet.bytes.len() == HELLO_LENGTH => Hello::decode(&packet.bytes).ok(),
        _ => None,
    };
    let event = match hello {
        Some(hello) => Event::Hello { connection, peer, hello },
        None => Event::Refused { connection, refusal: Refusal::Hello },
    };
    events.send(event).await;
}

/// How long a client may take from its descriptor to its status: a handshake with its server, about 1 ms. Meanwhile
/// its server does nothing else.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// As [`read_status`], for a client that has been handed to its server.
pub(super) async fn read_late_status(connection: ConnectionId, socket: Arc<SeqPacket>, events: Events) {
    if timeout(patient(STATUS_TIMEOUT), read_status(connection, socket, events.clone())).await.is_err() {
        events.send(Event::ClientDone { connection, status: None }).await;
    }
}

/// Waits for the one packet that a client still sends, its status, or for its end, and reports it.
pub(super) async fn read_status(connection: ConnectionId, socket: Arc<SeqPacket>, events: Events) {
    use remps_proto::mps::client::Status;
    let status = match socket.receive(CAPACITY).await {
        Ok(Some(packet)) => Status::decode(&packet.bytes).ok().map(|status| status.0),
        Ok(None) | Err(_) => None,
    };
    events.send(Event::ClientDone { connection, status }).await;
}
