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
use crate::driver::following::Following;
use crate::driver::processes::kernel_pid;
use crate::driver::successor::Successor;
use crate::driver::turn::Turn;
use crate::driver::{Driver, Kind, keys};
use crate::holder::{CopiesNote, Held, MAX_DESCRIPTORS};
use crate::io::process::WatchedProcess;
use crate::sys::clock::{milliseconds, since_boot};
use crate::witness::uvm::closing;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use prost::Message as _;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// What an earlier daemon left of clients that are not followed yet, and of dead ones.
#[derive(Debug, Default)]
pub(in crate::driver) struct Inherited(HashMap<ProcessKey, InheritedCopies>);

/// What it left of one client.
#[derive(Debug, Default)]
struct InheritedCopies {
    /// Under which keys the holder has it.
    keys: BTreeSet<u64>,
    /// The copies.
    files: Vec<OwnedFd>,
    /// What was noted with the last of them.
    note: CopiesNote,
}

impl Inherited {
    /// A client is followed from now on: the keys and the copies that there are of it.
    pub(in crate::driver) fn take(&mut self, process: ProcessKey) -> (BTreeSet<u64>, Vec<OwnedFd>) {
        let InheritedCopies { keys, files, .. } = self.0.remove(&process).unwrap_or_default();
        (keys, files)
    }

    /// Closes what there is of a client, here and with the holder.
    pub(in crate::driver) fn release(&mut self, successor: &Successor, process: ProcessKey) {
        let (keys, files) = self.take(process);
        keys.into_iter().for_each(|key| successor.release(key));
        if !files.is_empty() {
            drop(closing::close(files));
        }
    }

    /// The funeral of a client that has ended, of which there is nothing else.
    fn mourned(&self, process: ProcessKey) -> Option<Mourned> {
        let InheritedCopies { files, note, .. } = self.0.get(&process)?;
        let left = match note.until_ms {
            // It ended while nobody looked.
            0 => Some(Duration::from_millis(note.hold_ms)),
            u64::MAX => None,
            until => Some(Duration::from_millis(until).saturating_sub(since_boot())),
        };
        let (uid, server, is_new) = (note.uid, ServerEpoch(note.server), note.until_ms == 0);
        Some(Mourned { process, uid, server, descriptors: files.len(), left, endless: note.endless, is_new })
    }
}

/// Whether the process of a pidfd has ended.
fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(pidfd, PollFlags::POLLIN)], PollTimeout::ZERO).is_ok_and(|count| count > 0)
}

/// What is noted beside the copies of a client, but for the times.
fn note_of(turn: &Turn<'_>, process: ProcessKey) -> Option<CopiesNote> {
    let (uid, server) = turn.core.home_of(process)?;
    let ProcessKey { pid, start_time } = process;
    Some(CopiesNote { until_ms: 0, hold_ms: 0, pid, start_time, uid, server: server.0, endless: false })
}

impl Following {
    /// Gives the holder what is held of a client, and, if that is dead, until when.
    pub(in crate::driver) fn hold_copies(&mut self, turn: &Turn<'_>, process: ProcessKey) {
        let followed = self.clients.get_mut(&process);
        let (Some(hold), Some(note), Some(followed)) = (turn.core.hold_timeout(), note_of(turn, process), followed)
        else {
            return;
        };
        let note = CopiesNote { hold_ms: milliseconds(hold), ..note }.encode_to_vec();
        for (space, copies) in followed.copies.iter().enumerate() {
            // Out of descriptors, or out of keys: these are the daemon's alone.
            let (Some(key), Ok(files)) = (keys::copies(process.pid, space), copies.duplicates()) else { continue };
            let all = std::iter::once(followed.pidfd.as_fd()).chain(files.iter().map(AsFd::as_fd));
            let all: Vec<BorrowedFd<'_>> = all.take(MAX_DESCRIPTORS).collect();
            turn.successor.hold(key, Kind::COPIES, &note, &all);
            drop(closing::close(files));
            followed.keys.insert(key);
        }
        let mourned = turn.core.mourned().into_iter().find(|(dead, ..)| *dead == process);
        if let Some((_, until, endless)) = mourned {
            self.note_funeral(turn, process, until, endless);
        }
    }

    /// Gives another holder everything.
    pub(in crate::driver) fn hold_all_copies(&mut self, turn: &Turn<'_>) {
        let clients: Vec<ProcessKey> = self.clients.keys().copied().collect();
        clients.into_iter().for_each(|process| self.hold_copies(turn, process));
    }

    /// Tells the holder until when a dead client's copies are kept.
    pub(in crate::driver) fn note_funeral(
        &self,
        turn: &Turn<'_>,
        process: ProcessKey,
        until: Option<Duration>,
        endless: bool,
    ) {
        let Some(note) = note_of(turn, process) else {
            return;
        };
        let until_ms = until.map_or(u64::MAX, |until| milliseconds(since_boot() + until.saturating_sub(turn.now)));
        let note = CopiesNote { until_ms: until_ms.max(1), endless, ..note }.encode_to_vec();
        let own = self.clients.get(&process).map(|followed| &followed.keys);
        let earlier = self.inherited.0.get(&process).map(|earlier| &earlier.keys);
        own.into_iter().chain(earlier).flatten().for_each(|key| turn.successor.update(*key, &note));
    }

    /// Takes over what an earlier daemon left, of the living until their server names them; who of them is dead.
    pub(in crate::driver) fn take_over_copies(&mut self, turn: &Turn<'_>, held: Vec<Held>) -> BTreeSet<ProcessKey> {
        let mut dead = BTreeSet::new();
        for Held { key, state, fds, .. } in held {
            let mut fds = fds.into_iter();
            let (Ok(note), Some(pidfd)) = (CopiesNote::decode(state.as_slice()), fds.next()) else {
                turn.successor.release(key);
                continue;
            };
            let process = ProcessKey { pid: note.pid, start_time: note.start_time };
            if note.until_ms != 0 || has_ended(pidfd.as_fd()) {
                dead.insert(process);
            } else if !self.inherited.0.contains_key(&process) {
                self.watch_unfollowed(process, pidfd);
            }
            let earlier = self.inherited.0.entry(process).or_default();
            earlier.keys.insert(key);
            earlier.files.extend(fds);
            earlier.note = note;
        }
        dead
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
}

impl Driver {
    /// A client has ended. Of one that was not followed yet there is what an earlier daemon left, which is kept for the
    /// rest of its time; what the core has no use for is let go of.
    pub(in crate::driver) fn bury(&mut self, process: ProcessKey) {
        let now = self.now();
        let mourned = self.witnesses.following.inherited.mourned(process);
        if let Some(mourned) = mourned.filter(|_| !self.core.holds_copies_of(process)) {
            let (until, endless) = (mourned.left.map(|left| now + left), mourned.endless);
            if self.core.restore_funeral(now, mourned) {
                self.following(|following, turn| following.note_funeral(turn, process, until, endless));
            }
        }
        self.following(|following, turn| following.forget_unless_held(turn, process));
    }
}
