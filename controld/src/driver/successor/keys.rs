//! Under which keys things are kept with the holder.
//!
//! Keys of accepted connections come from the holder and have their highest bit set; all others are the daemon's.

use crate::core::vault::{NameId, RegionId};
use crate::core::{ConnectionId, EntranceId, Pid, ServerEpoch};

/// [`Saved`](crate::core::saved::Saved).
pub(in crate::driver) const STATE: u64 = 1;
/// The listening socket `control`.
pub(in crate::driver) const PUBLIC_LISTENER: u64 = 2;
/// The listening socket `control_privileged`.
pub(in crate::driver) const PRIVILEGED_LISTENER: u64 = 3;
/// The log FIFO.
pub(in crate::driver) const LOG_FIFO: u64 = 4;

/// The listening socket `shim`.
pub(in crate::driver) const SHIM_LISTENER: u64 = 5;

/// What is noted of the GPUs' compute modes.
pub(in crate::driver) const COMPUTE_MODES: u64 = 6;

/// Pieces of a state that is too large for one message.
const PIECE_SPACE: u64 = 1 << 52;
/// Clients without a pid here, by the number in its place.
const HIDDEN_SPACE: u64 = 1 << 53;
/// The listening sockets of namespaces.
const ENTRANCE_SPACE: u64 = 1 << 54;
/// This daemon's parts in the machine's records of compute modes, by their place in a list.
const MODE_RECORD_SPACE: u64 = 1 << 55;
/// User namespaces of those for whom the vault keeps something, by inode number.
const NAMESPACE_SPACE: u64 = 1 << 56;
/// Copies of a client's UVM descriptors.
const COPIES_SPACE: u64 = 1 << 57;
/// Keys of one client's copies, one for each address space.
const MOST_SPACES: u64 = 1 << 8;
const NAME_SPACE: u64 = 1 << 58;
// The next bit is the holder link's.
const REGION_SPACE: u64 = 1 << 60;
const REGION_NUMBER: u64 = (1 << 59) - 1;
const STDERR_SPACE: u64 = 1 << 61;
const CLIENT_END_SPACE: u64 = 1 << 62;
const NUMBER: u64 = CLIENT_END_SPACE - 1;
/// Barriers behind states; those of the vault have lower numbers, and no barrier a higher one than the next bit.
const STATE_BARRIERS: u64 = 1 << 58;

/// A piece of a state.
pub(super) fn piece(number: u64) -> u64 {
    PIECE_SPACE | (number & (PIECE_SPACE - 1))
}

/// The number of the piece that has this key.
pub(super) fn piece_of(key: u64) -> Option<u64> {
    (key & !(PIECE_SPACE - 1) == PIECE_SPACE).then_some(key & (PIECE_SPACE - 1))
}

/// Whether a barrier is one behind a state.
pub(super) fn is_state_barrier(number: u64) -> bool {
    number & STATE_BARRIERS != 0
}

/// The barrier behind the state of this generation: no key, but a number beside the vault's.
pub(super) fn state_barrier(generation: u64) -> u64 {
    STATE_BARRIERS | (generation & (STATE_BARRIERS - 1))
}

/// A region of the vault.
pub(in crate::driver) fn region(id: RegionId) -> u64 {
    REGION_SPACE | (id.0 & REGION_NUMBER)
}

/// The region that has this key.
pub(in crate::driver) fn region_of(key: u64) -> Option<RegionId> {
    (key & !REGION_NUMBER == REGION_SPACE).then_some(RegionId(key & REGION_NUMBER))
}

/// The part in the record of one GPU's mode.
pub(in crate::driver) fn mode_record(number: u64) -> u64 {
    MODE_RECORD_SPACE | (number & (MODE_RECORD_SPACE - 1))
}

/// The number of the part that has this key.
pub(in crate::driver) fn mode_record_of(key: u64) -> Option<u64> {
    (key & !(MODE_RECORD_SPACE - 1) == MODE_RECORD_SPACE).then_some(key & (MODE_RECORD_SPACE - 1))
}

/// A client without a pid here.
pub(in crate::driver) fn hidden(pid: Pid) -> u64 {
    HIDDEN_SPACE | u64::from(pid)
}

/// The client without a pid here that has this key.
pub(in crate::driver) fn hidden_of(key: u64) -> Option<Pid> {
    let number = (key & !(HIDDEN_SPACE - 1) == HIDDEN_SPACE).then_some(key & (HIDDEN_SPACE - 1));
    number.and_then(|number| Pid::try_from(number).ok())
}

/// The listening socket of a namespace of a named server.
pub(in crate::driver) fn entrance(id: EntranceId) -> u64 {
    ENTRANCE_SPACE | (id.0 & (ENTRANCE_SPACE - 1))
}

/// The namespace whose listening socket has this key.
pub(in crate::driver) fn entrance_of(key: u64) -> Option<EntranceId> {
    (key & !(ENTRANCE_SPACE - 1) == ENTRANCE_SPACE).then_some(EntranceId(key & (ENTRANCE_SPACE - 1)))
}

/// A user namespace.
pub(in crate::driver) fn namespace(number: u64) -> u64 {
    NAMESPACE_SPACE | (number & (NAMESPACE_SPACE - 1))
}

/// The number of the user namespace that has this key.
pub(in crate::driver) fn namespace_of(key: u64) -> Option<u64> {
    (key & !(NAMESPACE_SPACE - 1) == NAMESPACE_SPACE).then_some(key & (NAMESPACE_SPACE - 1))
}

/// What is noted of a name of the vault.
pub(in crate::driver) fn name(id: NameId) -> u64 {
    NAME_SPACE | (id.0 & (NAME_SPACE - 1))
}

/// The name whose title has this key.
pub(in crate::driver) fn name_of(key: u64) -> Option<NameId> {
    (key & !(NAME_SPACE - 1) == NAME_SPACE).then_some(NameId(key & (NAME_SPACE - 1)))
}

/// The copies of a client's descriptors that go with its address space of this number; `None` beyond the bound.
pub(in crate::driver) fn copies(pid: Pid, space: usize) -> Option<u64> {
    let space = u64::try_from(space).ok().filter(|space| *space < MOST_SPACES)?;
    Some(COPIES_SPACE | (u64::from(pid) * MOST_SPACES) | space)
}

/// A server's standard error.
pub(in crate::driver) fn stderr(server: ServerEpoch) -> u64 {
    STDERR_SPACE | (server.0 & (STDERR_SPACE - 1))
}

/// The server whose standard error has this key.
pub(in crate::driver) fn stderr_of(key: u64) -> Option<ServerEpoch> {
    (key & !(STDERR_SPACE - 1) == STDERR_SPACE).then_some(ServerEpoch(key & (STDERR_SPACE - 1)))
}

/// The end of a socket pair that a client is given.
pub(in crate::driver) fn client_end(connection: ConnectionId) -> u64 {
    CLIENT_END_SPACE | (connection.0 & NUMBER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::{LOG_BACKLOG_KEY, REFUSED_KEYS};

    #[test]
    fn key_spaces_do_not_meet() {
        let server = ServerEpoch(77);
        assert_eq!(stderr_of(stderr(server)), Some(server));
        let holder_given = ConnectionId((1 << 63) | 5);
        for key in [
            STATE,
            PUBLIC_LISTENER,
            PRIVILEGED_LISTENER,
            LOG_FIFO,
            COMPUTE_MODES,
            mode_record(3),
            client_end(holder_given),
            holder_given.0,
        ] {
            assert_eq!(stderr_of(key), None);
        }
        assert_eq!(client_end(holder_given), (1 << 62) | 5);
        assert_eq!(region_of(region(RegionId(9))), Some(RegionId(9)));
        for key in [SHIM_LISTENER, client_end(holder_given), holder_given.0, stderr(server), STATE, LOG_BACKLOG_KEY] {
            assert_eq!(region_of(key), None);
        }
        assert_eq!(name_of(name(NameId(9))), Some(NameId(9)));
        assert_eq!(region_of(name(NameId(9))), None);
        for key in [SHIM_LISTENER, region(RegionId(9)), stderr(server), STATE, LOG_BACKLOG_KEY] {
            assert_eq!(name_of(key), None);
        }
        assert_eq!(namespace_of(namespace(4_026_531_837)), Some(4_026_531_837));
        let copies = copies(u32::MAX, 3).unwrap();
        let entrance = entrance(EntranceId(9));
        assert_eq!(entrance_of(entrance), Some(EntranceId(9)));
        for key in
            [PUBLIC_LISTENER, SHIM_LISTENER, mode_record(3), namespace(9), copies, stderr(server), LOG_BACKLOG_KEY]
        {
            assert_eq!(entrance_of(key), None);
        }
        assert_eq!((mode_record_of(entrance), namespace_of(entrance), region_of(entrance)), (None, None, None));
        assert!(!REFUSED_KEYS.contains(&entrance));
        let piece = piece(9);
        assert_eq!(
            (piece_of(piece), hidden_of(piece), entrance_of(piece), mode_record_of(piece)),
            (Some(9), None, None, None)
        );
        let hidden = hidden(u32::MAX);
        for key in [
            STATE,
            COMPUTE_MODES,
            hidden,
            entrance,
            copies,
            mode_record(3),
            namespace(9),
            holder_given.0,
            stderr(server),
        ] {
            assert_eq!(piece_of(key), None);
        }
        assert!(REFUSED_KEYS.contains(&(REFUSED_KEYS.start + state_barrier(u64::MAX))));
        assert_eq!((hidden_of(hidden), entrance_of(hidden), namespace_of(hidden)), (Some(u32::MAX), None, None));
        for key in [entrance, copies, mode_record(3), client_end(holder_given), holder_given.0, stderr(server), STATE] {
            assert_eq!(hidden_of(key), None);
        }
        assert_eq!(
            (namespace_of(mode_record(3)), name_of(mode_record(3)), region_of(mode_record(3))),
            (None, None, None)
        );
        for key in [SHIM_LISTENER, region(RegionId(9)), name(NameId(9)), stderr(server), copies, STATE] {
            assert_eq!(namespace_of(key), None);
        }
        assert_eq!((region_of(namespace(9)), name_of(namespace(9))), (None, None));
        for key in [copies, region(RegionId(u64::MAX)), name(NameId(u64::MAX)), namespace(9), stderr(server), LOG_FIFO]
        {
            assert!(!REFUSED_KEYS.contains(&key));
        }
    }
}
