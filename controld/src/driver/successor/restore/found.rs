//! What an earlier daemon left with the holder, sorted, and what lies in its sockets.

use crate::core::saved::Saved;
use crate::core::{ConnectionId, ServerEpoch};
use crate::driver::successor::keys::{self, Note};
use crate::holder::{Held, Kind, ModesNote};
use crate::io::seqpacket::{Packet, SeqPacket};
use prost::Message as _;
use remps_proto::mps::handshake::Role;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;

/// What the holder kept, sorted.
#[derive(Default)]
pub(super) struct Found {
    pub(super) state: Option<Saved>,
    pub(super) public: Option<OwnedFd>,
    pub(super) privileged: Option<OwnedFd>,
    pub(super) fifo: Option<OwnedFd>,
    pub(super) backlog: Vec<u8>,
    pub(super) stderr: BTreeMap<ServerEpoch, (OwnedFd, u64)>,
    pub(super) client_ends: HashMap<u64, OwnedFd>,
    pub(super) connections: Vec<(ConnectionId, Note, SeqPacket)>,
    /// Those of them that came by `control_privileged`.
    pub(super) privileged_connections: HashSet<ConnectionId>,
    pub(super) shim: Option<OwnedFd>,
    pub(super) regions: Vec<Held>,
    pub(super) copies: Vec<Held>,
    pub(super) modes: Option<ModesNote>,
    /// Parts in the machine's records of compute modes, each with its number and its GPU.
    pub(super) mode_records: Vec<(u64, String, OwnedFd)>,
}

impl Found {
    pub(super) fn sort(held: Vec<Held>) -> Self {
        let mut found = Self::default();
        let (regions, others) =
            held.into_iter().partition(|held| [Kind::REGION, Kind::NAME, Kind::NAMESPACE].contains(&held.kind));
        found.regions = regions;
        for held in others {
            if held.kind == Kind::COPIES {
                found.copies.push(held);
                continue;
            }
            let Held { key, kind, state, mut fds, privileged, .. } = held;
            let fd = fds.pop();
            match (kind, fd) {
                (Kind::STATE, _) => found.state = Saved::decode(state.as_slice()).ok(),
                (Kind::COMPUTE_MODES, _) => found.modes = ModesNote::decode(state.as_slice()).ok(),
                (Kind::MODE_RECORD, Some(fd)) => {
                    let uuid = String::from_utf8_lossy(&state).into_owned();
                    found.mode_records.extend(keys::mode_record_of(key).map(|number| (number, uuid, fd)));
                }
                (Kind::LOG_BACKLOG, _) => found.backlog.extend(state),
                (Kind::LISTENER_PUBLIC, Some(fd)) => found.public = Some(fd),
                (Kind::LISTENER_PRIVILEGED, Some(fd)) => found.privileged = Some(fd),
                (Kind::LISTENER_SHIM, Some(fd)) => found.shim = Some(fd),
                (Kind::LOG_FIFO, Some(fd)) => found.fifo = Some(fd),
                (Kind::CLIENT_END, Some(fd)) => drop(found.client_ends.insert(key, fd)),
                (Kind::SERVER_STDERR, Some(fd)) => {
                    let started = <[u8; 8]>::try_from(state).map_or(0, u64::from_le_bytes);
                    if let Some(server) = keys::stderr_of(key) {
                        found.stderr.insert(server, (fd, started));
                    }
                }
                (Kind::CONNECTION | Kind::SERVER_CONNECTION, Some(fd)) => {
                    let note = Note::decode(state.as_slice()).unwrap_or_default();
                    if privileged {
                        found.privileged_connections.insert(ConnectionId(key));
                    }
                    if let Ok(socket) = SeqPacket::new(fd) {
                        found.connections.push((ConnectionId(key), note, socket));
                    }
                }
                _ => {}
            }
        }
        found
    }
}

/// What lies in a socket now.
pub(super) enum Next {
    Nothing,
    Packet(Packet),
    End,
}

pub(super) fn next_packet(socket: &SeqPacket) -> Next {
    match socket.peek_now(1024) {
        Ok(Some(packet)) => Next::Packet(packet),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Next::Nothing,
        Ok(None) | Err(_) => Next::End,
    }
}

/// Takes the role away if the earlier daemon had noted it but not yet taken it.
pub(super) fn skip_noted_role(socket: &SeqPacket, role: Role) {
    if let Next::Packet(packet) = next_packet(socket)
        && packet.bytes == role.encode()
    {
        let _ = socket.discard();
    }
}
