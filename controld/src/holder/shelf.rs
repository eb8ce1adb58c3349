//! What is held: a kind, a state and descriptors for each key, within limits.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{getsockopt, sockopt};
use prost::Message as _;
use remps_proto::holder::{CopiesNote, Failure, Kind, ModesNote};

use crate::sys::clock::milliseconds;
use crate::witness::uvm::closing;

/// Most keys held at a time.
const MAX_ENTRIES: usize = 65_536;
/// Beyond that, pieces of a state: connections may fill everything else, and a state that lacked one would be lost.
const ROOM_FOR_PIECES: usize = 8_192;
/// Most bytes of state held at a time.
const MAX_TOTAL_STATE_BYTES: usize = 64 * 1024 * 1024;

/// What is held under one key.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) state: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
    /// The listener that a connection came from; `Kind(0)` for anything else.
    pub(super) listener: Kind,
}

/// Everything that is held.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    entries: BTreeMap<u64, Entry>,
    /// Keys of the listeners, so that a turn of the loop need not look through everything.
    listeners: Vec<u64>,
    /// What is noted of copies of clients' descriptors.
    copies: BTreeMap<u64, CopiesNote>,
    state_bytes: usize,
}

impl Shelf {
    /// Keeps something under a key and closes what was there; a connection stays known by its listener.
    pub(super) fn hold(&mut self, key: u64, kind: Kind, state: Vec<u8>, fds: Vec<OwnedFd>) -> Result<(), Failure> {
        check(kind, &fds)?;
        let listener = self.entries.get(&key).map_or(Kind(0), |old| old.listener);
        self.put(key, Entry { kind, state, fds, listener })
    }

    /// Keeps a connection that was just accepted.
    pub(super) fn hold_accepted(&mut self, key: u64, listener: Kind, connection: OwnedFd) -> Result<(), Failure> {
        self.put(key, Entry { kind: Kind::CONNECTION, state: Vec::new(), fds: vec![connection], listener })
    }

    fn put(&mut self, key: u64, entry: Entry) -> Result<(), Failure> {
        let old = self.entries.get(&key);
        let bytes = self.state_bytes - old.map_or(0, |old| old.state.len()) + entry.state.len();
        let most = if entry.kind == Kind::STATE_PIECE { MAX_ENTRIES + ROOM_FOR_PIECES } else { MAX_ENTRIES };
        if bytes > MAX_TOTAL_STATE_BYTES || (old.is_none() && self.entries.len() >= most) {
            return Err(Failure::TOO_MANY);
        }
        self.release(key);
        self.state_bytes += entry.state.len();
        if entry.kind.is_listener() {
            self.listeners.push(key);
        }
        if entry.kind == Kind::COPIES {
            self.copies.insert(key, note_of(&entry.state));
        }
        self.entries.insert(key, entry);
        Ok(())
    }

    /// Replaces a state. A key that is not held is ignored: its peer may have hung up meanwhile.
    pub(super) fn update(&mut self, key: u64, state: Vec<u8>) -> Result<(), Failure> {
        let Some(entry) = self.entries.get_mut(&key) else { return Ok(()) };
        let bytes = self.state_bytes - entry.state.len() + state.len();
        if bytes > MAX_TOTAL_STATE_BYTES {
            return Err(Failure::TOO_MANY);
        }
        self.state_bytes = bytes;
        if let Some(note) = self.copies.get_mut(&key) {
            *note = note_of(&state);
        }
        entry.state = state;
        Ok(())
    }

    /// Closes and forgets.
    pub(super) fn release(&mut self, key: u64) {
        if let Some(old) = self.entries.remove(&key) {
            self.state_bytes -= old.state.len();
            self.listeners.retain(|listener| *listener != key);
            if self.copies.remove(&key).is_some() {
                // Who closes the last copy pays for what the kernel frees, and nobody may wait for that here.
                drop(closing::close(old.fds));
            }
        }
    }

    /// The clients that have copies here and were alive when last looked at, each with its pidfd.
    pub(super) fn living_clients(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        let living = self.copies.iter().filter(|(_, note)| note.until_ms == 0);
        living.filter_map(|(key, _)| Some((*key, self.entries.get(key)?.fds.first()?.as_fd())))
    }

    /// A client has ended: its copies' time begins.
    pub(super) fn client_ended(&mut self, key: u64, now: Duration) {
        let Some(note) = self.copies.get(&key) else { return };
        let until_ms = milliseconds(now).saturating_add(note.hold_ms).max(1);
        // A number in place of another; there is room for that.
        let _ = self.update(key, CopiesNote { until_ms, ..note.clone() }.encode_to_vec());
    }

    /// When the first copies' time is over, since boot.
    pub(super) fn copies_end(&self) -> Option<Duration> {
        let ends = self.copies.values().map(|note| note.until_ms).filter(|until| ![0, u64::MAX].contains(until));
        ends.min().map(Duration::from_millis)
    }

    /// Closes the copies whose time is over.
    pub(super) fn expire_copies(&mut self, now: Duration) {
        let is_over = |note: &CopiesNote| note.until_ms != 0 && note.until_ms <= milliseconds(now);
        let over: Vec<u64> = self.copies.iter().filter(|(_, note)| is_over(note)).map(|(key, _)| *key).collect();
        for key in over {
            self.release(key);
        }
    }

    /// What is noted of compute modes, which is forgotten: a daemon that comes now begins anew with them.
    pub(super) fn take_modes(&mut self) -> Option<ModesNote> {
        let (key, note) = self.iter().find(|(_, entry)| entry.kind == Kind::COMPUTE_MODES).map(|(key, entry)| {
            let note = ModesNote::decode(entry.state.as_slice());
            (key, note.unwrap_or_default())
        })?;
        self.release(key);
        Some(note)
    }

    /// The locked records of compute modes, each with its GPU's UUID, which are forgotten too.
    pub(super) fn take_mode_records(&mut self) -> Vec<(String, OwnedFd)> {
        let keys: Vec<u64> =
            self.iter().filter(|(_, entry)| entry.kind == Kind::MODE_RECORD).map(|(key, _)| key).collect();
        let mut taken = Vec::new();
        for key in keys {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let uuid = String::from_utf8_lossy(&entry.state).into_owned();
            taken.extend(std::mem::take(&mut entry.fds).into_iter().map(|fd| (uuid.clone(), fd)));
            self.release(key);
        }
        taken
    }

    /// Releases everything that does not stay.
    pub(super) fn retain(&mut self, stays: impl Fn(&Entry) -> bool) {
        let gone: Vec<u64> = self.iter().filter(|(_, entry)| !stays(entry)).map(|(key, _)| key).collect();
        for key in gone {
            self.release(key);
        }
    }

    /// What is held under a key.
    pub(super) fn get(&self, key: u64) -> Option<&Entry> {
        self.entries.get(&key)
    }

    /// The first key from a given one upwards.
    pub(super) fn first_from(&self, key: u64) -> Option<(u64, &Entry)> {
        self.entries.range(key..).next().map(|(key, entry)| (*key, entry))
    }

    /// Everything, by key.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Entry)> {
        self.entries.iter().map(|(key, entry)| (*key, entry))
    }

    /// Keys of the listeners.
    pub(super) fn listeners(&self) -> &[u64] {
        &self.listeners
    }

    /// Whether nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether no further key can be held.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= MAX_ENTRIES
    }
}

/// What is no note is kept as a living client's, until giving up.
fn note_of(state: &[u8]) -> CopiesNote {
    CopiesNote::decode(state).unwrap_or_default()
}

/// Checks that descriptors fit their kind, and makes those that are read or accepted from never wait.
///
/// The flag belongs to the open file that the daemon shares, and the daemon wants it too.
fn check(kind: Kind, fds: &[OwnedFd]) -> Result<(), Failure> {
    let wrong = |_| Failure::WRONG_DESCRIPTORS;
    let single = match kind {
        Kind::LISTENER_PUBLIC | Kind::LISTENER_PRIVILEGED => true,
        Kind::LOG_FIFO | Kind::SERVER_STDERR | Kind::CONNECTION | Kind::SERVER_CONNECTION => true,
        // Nobody but the holder makes a backlog; what a later version may name is kept without a look.
        Kind::LOG_BACKLOG => return Err(Failure::WRONG_DESCRIPTORS),
        _ => false,
    };
    let [fd] = fds else {
        return if single { Err(Failure::WRONG_DESCRIPTORS) } else { Ok(()) };
    };
    if kind.is_listener() && !getsockopt(fd, sockopt::AcceptConn).map_err(wrong)? {
        return Err(Failure::WRONG_DESCRIPTORS);
    }
    if kind.is_listener() || kind == Kind::LOG_FIFO || kind == Kind::SERVER_STDERR {
        let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL).map_err(wrong)?);
        fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map_err(wrong)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
