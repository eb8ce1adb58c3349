//! What the holder is told: it never answers, but for a barrier, and need not be waited for unless it is behind.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use remps_proto::holder::{
    ADDS_PATHS, ANSWERS_BARRIERS, FEW_UNLINK_PATHS, Kind, MAX_DESCRIPTORS, MAX_STATE_BYTES, MAX_UNLINK_PATHS, Settings,
    ToHolder,
};

use super::HolderLink;
use crate::holder::{HolderError, REFUSED_KEYS};
use crate::io::packets::send;
use crate::patience::patient;

/// How long to wait for a holder that is behind. It does nothing but read what it is told, so it needs microseconds; and
/// what it was not told would stay open for ever.
const ROOM_WAIT: Duration = Duration::from_secs(1);
/// How often to look where nothing tells of room.
const ROOM_LOOK: Duration = Duration::from_millis(1);

impl HolderLink {
    /// Lets the holder keep duplicates of descriptors and a state under a key, in place of what was there.
    ///
    /// Waits at most a second for a holder that is behind. Once it returned `Ok`, the holder has it even if this process dies at once. What the holder itself
    /// refuses comes as [`FromHolder::Failed`].
    ///
    /// # Errors
    /// [`HolderError::Lost`], [`HolderError::Full`], and what exceeds a limit.
    pub fn hold(&self, key: u64, kind: Kind, state: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), HolderError> {
        if fds.len() > MAX_DESCRIPTORS {
            return Err(HolderError::TooManyDescriptors(fds.len()));
        }
        self.send(ToHolder::Hold { key, kind, state: state.to_vec() }, fds)
    }

    /// Replaces the state beside a key; the descriptors stay.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    pub fn update(&self, key: u64, state: &[u8]) -> Result<(), HolderError> {
        self.send(ToHolder::Update { key, state: state.to_vec() }, &[])
    }

    /// Lets the holder close and forget what it keeps under a key.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    pub fn release(&self, key: u64) -> Result<(), HolderError> {
        self.send(ToHolder::Release { key }, &[])
    }

    /// Says what to do when no daemon comes back. Replaces earlier settings, the paths too: a path is remembered
    /// together with the file that it names now, and is unlinked only while it still names that one.
    ///
    /// As many paths as there are, in several messages; to a holder of an earlier release only the first of them
    /// ([`FEW_UNLINK_PATHS`]), because it would refuse the whole otherwise.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    pub fn settings(&self, settings: &Settings) -> Result<(), HolderError> {
        let mut rest = settings.unlink.as_slice();
        let mut next = Settings { unlink: Vec::new(), adds: false, ..settings.clone() };
        loop {
            let (now, later) =
                rest.split_at(if self.adds_paths() { fitting(rest) } else { rest.len().min(FEW_UNLINK_PATHS) });
            next.unlink = now.to_vec();
            self.send(ToHolder::Settings(next), &[])?;
            if later.is_empty() || !self.adds_paths() {
                return Ok(());
            }
            rest = later;
            next = Settings { adds: true, ..Settings::default() };
        }
    }

    /// Whether the holder takes more than [`FEW_UNLINK_PATHS`].
    #[must_use]
    pub fn adds_paths(&self) -> bool {
        self.done.abilities & ADDS_PATHS != 0
    }

    /// Asks the holder to say when it has done everything that it was told before, which comes as
    /// [`FromHolder::Passed`] unless there was no room for the answer: after a while it is asked again.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    pub fn barrier(&self, number: u64) -> Result<(), HolderError> {
        if self.done.abilities & ANSWERS_BARRIERS != 0 {
            return self.send(ToHolder::Barrier { number }, &[]);
        }
        // Of this kind nobody may give a holder anything.
        self.hold(REFUSED_KEYS.start + number, Kind::LOG_BACKLOG, &[], &[])
    }

    pub(super) fn send(&self, request: ToHolder, fds: &[BorrowedFd<'_>]) -> Result<(), HolderError> {
        let packet = request.encode()?;
        let deadline = std::time::Instant::now() + patient(ROOM_WAIT);
        loop {
            let socket = self.socket.get_ref().as_fd();
            let error = match send(socket, &packet, fds) {
                Ok(()) => return Ok(()),
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(HolderError::Lost),
                Err(error @ (Errno::EAGAIN | Errno::ENOBUFS | Errno::ETOOMANYREFS)) => error,
                Err(error) => return Err(HolderError::System { what: "send to the holder", error: error.into() }),
            };
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Err(HolderError::Full);
            }
            // Room for descriptors under way shows nowhere, and comes when the holder has read.
            let (mut room, wait) = if error == Errno::EAGAIN {
                (vec![PollFd::new(socket, PollFlags::POLLOUT)], left)
            } else {
                (Vec::new(), left.min(ROOM_LOOK))
            };
            let timeout = PollTimeout::try_from(wait.max(ROOM_LOOK)).unwrap_or(PollTimeout::MAX);
            // An interrupted wait is one turn more.
            let _ = poll(&mut room, timeout);
        }
    }
}

/// How many of these paths, from the first on, fit into one message; one at least, since a path is far shorter than that.
fn fitting(paths: &[Vec<u8>]) -> usize {
    let ends = paths.iter().scan(0, |bytes, path| {
        // With its tag and length.
        *bytes += path.len() + 8;
        Some(*bytes)
    });
    ends.take_while(|end| *end <= MAX_STATE_BYTES).take(MAX_UNLINK_PATHS).count().max(1).min(paths.len())
}
