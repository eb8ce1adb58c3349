//! What an earlier daemon left with the holder, sorted, and what lies in its sockets.

use crate::core::saved::Saved;
use crate::core::{ConnectionId, EntranceId, Pid, ServerEpoch};
use crate::driver::successor::keys;
use crate::driver::successor::notes::{ConnectionNote, HiddenNote};
use crate::driver::successor::whole::Left;
use crate::holder::{Held, Kind, ModesNote};
use crate::io::seqpacket::{Packet, SeqPacket};
use prost::Message as _;
use remps_proto::mps::handshake::Role;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;

/// What the holder kept, sorted.
#[derive(Default)]
pub(in crate::driver) struct Found {
    pub(in crate::driver) state: Option<Saved>,
    /// How the state was kept, and what is wrong with it.
    pub(in crate::driver) left: Left,
    pub(in crate::driver) public: Option<OwnedFd>,
    pub(in crate::driver) privileged: Option<OwnedFd>,
    /// Listening sockets of namespaces.
    pub(in crate::driver) entrances: BTreeMap<EntranceId, OwnedFd>,
    pub(in crate::driver) fifo: Option<OwnedFd>,
    pub(in crate::driver) backlog: Vec<u8>,
    pub(in crate::driver) stderr: BTreeMap<ServerEpoch, (OwnedFd, u64)>,
    pub(in crate::driver) client_ends: HashMap<u64, OwnedFd>,
    /// Clients without a pid here.
    pub(in crate::driver) hidden: BTreeMap<Pid, (HiddenNote, OwnedFd)>,
    pub(in crate::driver) connections: Vec<(ConnectionId, ConnectionNote, SeqPacket)>,
    /// Those of them that came by `control_privileged`.
    pub(in crate::driver) privileged_connections: HashSet<ConnectionId>,
    pub(in crate::driver) shim: Option<OwnedFd>,
    pub(in crate::driver) regions: Vec<Held>,
    pub(in crate::driver) copies: Vec<Held>,
    pub(in crate::driver) modes: Option<ModesNote>,
    /// Parts in the machine's records of compute modes, each with its number and its GPU.
    pub(in crate::driver) mode_records: Vec<(u64, String, OwnedFd)>,
}

impl Found {
    pub(in crate::driver) fn sort(held: Vec<Held>) -> Self {
        let mut found = Self::default();
        let (regions, others) =
            held.into_iter().partition(|held| [Kind::REGION, Kind::NAME, Kind::NAMESPACE].contains(&held.kind));
        found.regions = regions;
        let (mut state_found, mut pieces) = (None, BTreeMap::new());
        for held in others {
            if held.kind == Kind::COPIES {
                found.copies.push(held);
                continue;
            }
            let Held { key, kind, state, mut fds, privileged, .. } = held;
            let fd = fds.pop();
            match (kind, fd) {
                (Kind::STATE, _) => state_found = Some(state),
                (Kind::STATE_PIECE, _) => pieces.extend(keys::piece_of(key).map(|number| (number, state))),
                (Kind::COMPUTE_MODES, _) => found.modes = ModesNote::decode(state.as_slice()).ok(),
                (Kind::MODE_RECORD, Some(fd)) => {
                    let uuid = String::from_utf8_lossy(&state).into_owned();
                    found.mode_records.extend(keys::mode_record_of(key).map(|number| (number, uuid, fd)));
                }
                (Kind::LOG_BACKLOG, _) => found.backlog.extend(state),
                (Kind::LISTENER_PUBLIC, Some(fd)) => match keys::entrance_of(key) {
                    Some(entrance) => drop(found.entrances.insert(entrance, fd)),
                    None => found.public = Some(fd),
                },
                (Kind::LISTENER_PRIVILEGED, Some(fd)) => found.privileged = Some(fd),
                (Kind::LISTENER_SHIM, Some(fd)) => found.shim = Some(fd),
                (Kind::LOG_FIFO, Some(fd)) => found.fifo = Some(fd),
                (Kind::CLIENT_END, Some(fd)) => match keys::hidden_of(key) {
                    Some(pid) => {
                        found.hidden.extend(HiddenNote::decode(state.as_slice()).ok().map(|note| (pid, (note, fd))));
                    }
                    None => drop(found.client_ends.insert(key, fd)),
                },
                (Kind::SERVER_STDERR, Some(fd)) => {
                    let started = <[u8; 8]>::try_from(state).map_or(0, u64::from_le_bytes);
                    if let Some(server) = keys::stderr_of(key) {
                        found.stderr.insert(server, (fd, started));
                    }
                }
                (Kind::CONNECTION | Kind::SERVER_CONNECTION, Some(fd)) => {
                    let note = ConnectionNote::decode(state.as_slice()).unwrap_or_default();
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
        found.left = Left::of(state_found, pieces);
        found.state = found.left.state.take().and_then(|state| Saved::decode(state.as_slice()).ok());
        found
    }
}

/// What lies in a socket now.
pub(in crate::driver) enum Next {
    Nothing,
    Packet(Packet),
    End,
}

pub(in crate::driver) fn next_packet(socket: &SeqPacket) -> Next {
    match socket.peek_now(1024) {
        Ok(Some(packet)) => Next::Packet(packet),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Next::Nothing,
        Ok(None) | Err(_) => Next::End,
    }
}

/// Takes the role away if the earlier daemon had noted it but not yet taken it.
pub(in crate::driver) fn skip_noted_role(socket: &SeqPacket, role: Role) {
    if let Next::Packet(packet) = next_packet(socket)
        && packet.bytes == role.encode()
    {
        let _ = socket.discard();
    }
}
