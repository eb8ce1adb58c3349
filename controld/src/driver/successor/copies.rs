//! Copies of clients' UVM descriptors, kept across the daemon's death: the holder has them too, with a pidfd of their
//! client beside them.
//!
//! | client | daemon | what keeps its copies |
//! |---|---|---|
//! | lives | lives | both |
//! | lives | dead | the holder, which notices the client's end and keeps them for `hold_timeout` then |
//! | dead, mourned | lives | both; the holder is told until when |
//! | dead, mourned | dead | the holder, until then |
//! | dead, mourned | successor | both, for the rest of the time |
//!
//! So each copy costs two descriptors, one in each process, and each address space one more for the pidfd.

use crate::core::{Mourned, ProcessKey, ServerEpoch};
use crate::driver::events::Event;
use crate::driver::following::Followed;
use crate::driver::processes::kernel_pid;
use crate::driver::{Driver, Kind, keys};
use crate::holder::{CopiesNote, Held, MAX_DESCRIPTORS};
use crate::io::process::WatchedProcess;
use crate::sys::clock::{milliseconds, since_boot};
use crate::witness::uvm::closing;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use prost::Message as _;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// What an earlier daemon left of one client.
#[derive(Debug, Default)]
pub(in crate::driver) struct EarlierCopies {
    /// Under which keys the holder has it.
    pub(in crate::driver) keys: BTreeSet<u64>,
    /// The copies.
    pub(in crate::driver) files: Vec<OwnedFd>,
    /// What was noted with the last of them.
    note: CopiesNote,
}

/// Whether the process of a pidfd has ended.
fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(pidfd, PollFlags::POLLIN)], PollTimeout::ZERO).is_ok_and(|count| count > 0)
}

impl Driver {
    /// Gives the holder what is held of a client.
    pub(in crate::driver) fn hold_copies(&mut self, process: ProcessKey) {
        let Some(hold) = self.core.hold_timeout() else {
            return;
        };
        let Some((uid, server)) = self.core.home_of(process) else {
            return;
        };
        let Some(Followed { pidfd, copies, .. }) = self.witnesses.following.clients.get(&process) else {
            return;
        };
        let note = CopiesNote {
            until_ms: 0,
            hold_ms: milliseconds(hold),
            pid: process.pid,
            start_time: process.start_time,
            uid,
            server: server.0,
            endless: false,
        };
        let mut held = Vec::new();
        for (space, copies) in copies.iter().enumerate() {
            // Out of descriptors, or out of keys: these are the daemon's alone.
            let (Some(key), Ok(files)) = (keys::copies(process.pid, space), copies.duplicates()) else { continue };
            let all = std::iter::once(pidfd.as_fd()).chain(files.iter().map(AsFd::as_fd));
            let all: Vec<BorrowedFd<'_>> = all.take(MAX_DESCRIPTORS).collect();
            self.successor.hold(key, Kind::COPIES, &note.encode_to_vec(), &all);
            drop(closing::close(files));
            held.push(key);
        }
        if let Some(followed) = self.witnesses.following.clients.get_mut(&process) {
            followed.keys.extend(held);
        }
    }

    /// Gives another holder everything.
    pub(in crate::driver) fn hold_all_copies(&mut self) {
        let clients: Vec<ProcessKey> = self.witnesses.following.clients.keys().copied().collect();
        for process in clients {
            self.hold_copies(process);
        }
        // With their times.
        for (process, until, endless) in self.core.mourned() {
            self.note_funeral(process, until, endless);
        }
    }

    /// Tells the holder what it was told before it got other copies of a client, if that is dead.
    pub(in crate::driver) fn note_its_funeral(&self, process: ProcessKey) {
        let mourned = self.core.mourned().into_iter().find(|(dead, ..)| *dead == process);
        if let Some((_, until, endless)) = mourned {
            self.note_funeral(process, until, endless);
        }
    }

    /// Tells the holder until when a dead client's copies are kept.
    pub(in crate::driver) fn note_funeral(&self, process: ProcessKey, until: Option<Duration>, endless: bool) {
        let Some((uid, server)) = self.core.home_of(process) else {
            return;
        };
        let until_ms = until.map_or(u64::MAX, |until| milliseconds(since_boot() + until.saturating_sub(self.now())));
        let note = CopiesNote {
            until_ms: until_ms.max(1),
            hold_ms: 0,
            pid: process.pid,
            start_time: process.start_time,
            uid,
            server: server.0,
            endless,
        };
        let following = &self.witnesses.following;
        let own = following.clients.get(&process).map(|followed| &followed.keys);
        let earlier = following.earlier.get(&process).map(|earlier| &earlier.keys);
        for key in own.into_iter().chain(earlier).flatten() {
            self.successor.update(*key, &note.encode_to_vec());
        }
    }

    /// Takes over what an earlier daemon left: of the living until their server names them, of the dead for the rest of
    /// their time.
    pub(in crate::driver) fn take_over_copies(&mut self, held: Vec<Held>) {
        let mut dead = BTreeSet::new();
        for Held { key, state, fds, .. } in held {
            let mut fds = fds.into_iter();
            let (Ok(note), Some(pidfd)) = (CopiesNote::decode(state.as_slice()), fds.next()) else {
                self.successor.release(key);
                continue;
            };
            let process = ProcessKey { pid: note.pid, start_time: note.start_time };
            if note.until_ms != 0 || has_ended(pidfd.as_fd()) {
                dead.insert(process);
            } else if !self.witnesses.following.earlier.contains_key(&process) {
                self.watch_unfollowed(process, pidfd);
            }
            let earlier = self.witnesses.following.earlier.entry(process).or_default();
            earlier.keys.insert(key);
            earlier.files.extend(fds);
            earlier.note = note;
        }
        for process in dead {
            self.mourn(process);
            self.forget_unless_held(process);
        }
    }

    /// A client has ended of which there are only the copies that an earlier daemon left.
    pub(in crate::driver) fn mourn(&mut self, process: ProcessKey) {
        let Some(EarlierCopies { files, note, .. }) = self.witnesses.following.earlier.get(&process) else {
            return;
        };
        let left = match note.until_ms {
            // It ended while nobody looked.
            0 => Some(Duration::from_millis(note.hold_ms)),
            u64::MAX => None,
            until => Some(Duration::from_millis(until).saturating_sub(since_boot())),
        };
        let (uid, server, endless, now) = (note.uid, ServerEpoch(note.server), note.endless, self.now());
        let mourned =
            Mourned { process, uid, server, descriptors: files.len(), left, endless, is_new: note.until_ms == 0 };
        if !self.core.holds_copies_of(process) && self.core.restore_funeral(now, mourned) {
            self.note_funeral(process, left.map(|left| now + left), endless);
        }
    }

    /// Looks to a client's end until it is followed: of one that no server has named yet, too, copies are kept then.
    fn watch_unfollowed(&self, process: ProcessKey, pidfd: OwnedFd) {
        let Ok(watched) = WatchedProcess::from_pidfd(kernel_pid(process.pid), pidfd) else {
            return;
        };
        let events = self.events.clone();
        tokio::spawn(async move {
            // One that can't be watched is taken for gone.
            let _ = watched.ended().await;
            events.send(Event::UnfollowedEnded { process }).await;
        });
    }

    /// Closes what an earlier daemon left of a client, here and with the holder.
    pub(in crate::driver) fn release_earlier(&mut self, process: ProcessKey) {
        if let Some(EarlierCopies { keys, files, .. }) = self.witnesses.following.earlier.remove(&process) {
            for key in keys {
                self.successor.release(key);
            }
            drop(closing::close(files));
        }
    }
}
