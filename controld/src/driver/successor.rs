//! What outlives this daemon: what is told to the holder, and what a daemon finds there that comes after another one.
//!
//! | module | has |
//! |---|---|
//! | [`keys`] | under which key each thing is kept |
//! | [`notes`] | what is noted beside a connection: how far it has come |
//! | [`whole`], [`pieces`], [`saving`] | the state that a successor goes on with, in pieces where it is large |
//! | [`hold`] | what another holder is given, when one is gone |
//! | [`copies`] | copies of clients' UVM descriptors |
//! | [`restore`] | what a daemon finds that starts where the one before stopped |

mod hold;
pub(super) mod keys;
pub(super) mod notes;
mod pieces;
pub(super) mod restore;
mod saving;
mod whole;

use crate::core::{ConnectionId, Peer, Pid, ServerEpoch};
use crate::holder::{FEW_UNLINK_PATHS, FromHolder, HolderError, HolderLink, Kind, RESTORES_MODES, Settings};
use crate::io::folder::Folder;
use nix::sys::signal::{Signal, kill};
use notes::{ConnectionNote, Stage};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};
use whole::Keeping;

/// How long to wait before a holder that can't be started is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How long the holder may take to end.
const FAREWELL: Duration = Duration::from_secs(2);

/// The holder, or the search for another one in its place. Telling it never fails: one that is gone is replaced when its
/// connection breaks, and until then only what a successor would need is missing.
pub(super) struct Successor {
    holder: HolderLink,
    /// While the holder is gone and there is no other yet: nothing can be kept, and nobody connects.
    search: Option<Search>,
    /// Whether to leave everything to a successor as soon as there is a holder.
    leaves: bool,
    /// What it has of the state.
    keeping: Keeping,
    /// Whether it was said that it has not all of that.
    is_trouble_said: bool,
    /// When the holder is asked again whether it has it.
    ask_at: Option<Instant>,
    /// The listening sockets, which another holder accepts from.
    listeners: Vec<(u64, Kind, OwnedFd)>,
}

struct Search {
    /// The attempt that is under way.
    attempt: Pin<Box<dyn Future<Output = Result<HolderLink, HolderError>>>>,
    /// Why the last one failed, as it was said.
    failure: Option<String>,
}

/// What is heard of the holder.
pub(super) enum HolderNews {
    /// It says something.
    Said(FromHolder),
    /// It is gone.
    Lost(HolderError),
    /// What has come of an attempt to replace it.
    Sought(Result<HolderLink, HolderError>),
}

/// What has come of an attempt to replace the holder.
pub(super) enum Sought {
    /// There is another one, which has nothing yet.
    Found { was_missed: bool },
    /// There is none, and why, if that has not been said.
    Missing(Option<String>),
}

impl Successor {
    pub(super) fn new(holder: HolderLink) -> Self {
        let (keeping, is_trouble_said) = (Keeping::default(), false);
        Self { holder, search: None, leaves: false, keeping, is_trouble_said, ask_at: None, listeners: Vec::new() }
    }

    /// The next news. May be dropped at any time.
    pub(super) async fn next(&mut self) -> HolderNews {
        match &mut self.search {
            Some(search) => HolderNews::Sought(search.attempt.as_mut().await),
            None => self.holder.next().await.map_or_else(HolderNews::Lost, HolderNews::Said),
        }
    }

    /// Keeps descriptors and a state under a key, in place of what was there.
    pub(super) fn hold(&self, key: u64, kind: Kind, state: &[u8], fds: &[BorrowedFd<'_>]) {
        self.told(self.holder.hold(key, kind, state, fds));
    }

    /// Replaces the state beside a key.
    pub(super) fn update(&self, key: u64, state: &[u8]) {
        self.told(self.holder.update(key, state));
    }

    /// Closes and forgets what is kept under a key.
    pub(super) fn release(&self, key: u64) {
        self.told(self.holder.release(key));
    }

    /// Notes beside a connection how far it has come.
    pub(super) fn note(&self, connection: ConnectionId, stage: Stage, peer: Peer, server: Option<ServerEpoch>) {
        self.update(connection.0, &ConnectionNote::of(stage, peer, server));
    }

    /// Asks to be told when everything before is done.
    pub(super) fn barrier(&self, number: u64) {
        self.told(self.holder.barrier(number));
    }

    /// Says what to do when no daemon comes back; how many paths it leaves where they are, because the holder is of an
    /// earlier release and takes few.
    pub(super) fn settings(&self, settings: &Settings) -> usize {
        self.told(self.holder.settings(settings));
        if self.holder.adds_paths() { 0 } else { settings.unlink.len().saturating_sub(FEW_UNLINK_PATHS) }
    }

    /// Lets the holder accept from a listening socket: a new one, or one that it has from an earlier daemon.
    ///
    /// # Errors
    /// When it can't be told, without which nobody could connect.
    pub(super) fn listen(&mut self, key: u64, kind: Kind, listener: OwnedFd, is_new: bool) -> Result<(), HolderError> {
        if is_new {
            self.holder.hold(key, kind, &[], &[listener.as_fd()])?;
        }
        self.listeners.push((key, kind, listener));
        Ok(())
    }

    /// Whether it accepts on a listening socket of this key.
    pub(super) fn has_listener(&self, key: u64) -> bool {
        self.listeners.iter().any(|(known, ..)| *known == key)
    }

    /// Lets the holder accept from a listening socket no longer, and closes it.
    pub(super) fn forget_listener(&mut self, key: u64) {
        self.listeners.retain(|(known, ..)| *known != key);
        self.release(key);
    }

    /// One that does not read is ended, so that it is replaced: what it was not told would never be released.
    fn told(&self, result: Result<(), HolderError>) {
        if let Err(error) = result {
            tracing::warn!(%error, "the holder was not told");
            if matches!(error, HolderError::Full) {
                // The connection is open, so the pid is still its own. One that is dead already is as good.
                let _ = kill(self.holder.pid(), Signal::SIGKILL);
            }
        }
    }

    pub(super) fn holder_pid(&self) -> Pid {
        self.holder.pid().as_raw().cast_unsigned()
    }

    /// Whether the holder gives compute modes back when there is no daemon any more.
    pub(super) fn restores_modes(&self) -> bool {
        self.holder.attach_done().abilities & RESTORES_MODES != 0
    }

    /// The holder is gone: begins to start another one in this directory.
    pub(super) fn seek(&mut self, folder: &Arc<Folder>) {
        self.holder.reap();
        self.seek_after(Duration::ZERO, folder, None);
    }

    fn seek_after(&mut self, pause: Duration, folder: &Arc<Folder>, failure: Option<String>) {
        let folder = Arc::clone(folder);
        let attempt = Box::pin(async move {
            sleep_until(Instant::now() + pause).await;
            Ok(HolderLink::attach_in(&folder).await?.0)
        });
        self.search = Some(Search { attempt, failure });
    }

    /// Goes on with another holder, or tries again: nobody can connect meanwhile. What stands in its way is told once.
    pub(super) fn sought(&mut self, result: Result<HolderLink, HolderError>, folder: &Arc<Folder>) -> Sought {
        let told = self.search.take().and_then(|search| search.failure);
        match result {
            Ok(holder) => {
                self.holder = holder;
                self.keeping.begin_anew();
                Sought::Found { was_missed: told.is_some() }
            }
            Err(error) => {
                let failure = error.to_string();
                self.seek_after(RETRY, folder, Some(failure.clone()));
                Sought::Missing(Some(failure).filter(|failure| told.as_ref() != Some(failure)))
            }
        }
    }

    /// Everything is to be left to a successor as soon as it can be; whether there is a holder. Without one there would be
    /// nothing left, so it is waited for.
    pub(super) fn may_leave(&mut self) -> bool {
        self.leaves = true;
        self.search.is_none()
    }

    /// Everything stays with this daemon.
    pub(super) const fn stays(&mut self) {
        self.leaves = false;
        self.ask_at = None;
    }

    /// Whether everything was to be left to a successor when that could not be yet.
    pub(super) const fn is_to_leave(&self) -> bool {
        self.leaves
    }

    /// Ends the holder and with it all that it keeps.
    pub(super) async fn end(self) {
        let holder = match self.search {
            None => Some(self.holder),
            // One that is just being started must not stay behind.
            Some(search) => timeout(FAREWELL, search.attempt).await.ok().and_then(Result::ok),
        };
        if let Some(holder) = holder
            && let Err(error) = holder.leave(FAREWELL).await
        {
            tracing::warn!(%error, "the holder did not end by itself");
        }
    }
}
