//! The holder: a small second process that keeps duplicates of the daemon's descriptors.
//!
//! A server ends when its control connection closes, and a CUDA program that finds no `control` socket runs without
//! MPS. So neither may depend on the daemon's life: the holder keeps a duplicate of every descriptor that matters and
//! a state beside each, and hands all of it to the next daemon. It also is the one that accepts connections, so that
//! none is ever known to the daemon alone. While there is no daemon nothing is accepted: newcomers wait in the backlog.
//!
//! ```text
//!            ┌── SEQPACKET, descriptors beside ───┐
//!  daemon ───┤  Hold, Update, Release, Barrier …  ├──▶ holder ◀── control, control_privileged (accepts)
//!  (link)    │  Held …, AttachDone, Accepted …    │   (process)
//!            └────────────────────────────────────┘
//! ```
//! The descriptor store of systemd is no holder: there is none in containers, and it accepts no connections.
//!
//! The daemon that starts a holder has the other end of a pair of sockets from the beginning. The holder's listening
//! socket in the pipe directory is for successors; both sides look at who the other is before they say a
//! word ([`trust`]).
//!
//! # Keys
//! Everything held has a key. Keys below [`FIRST_HOLDER_KEY`] are the daemon's to choose; the holder gives every
//! accepted connection one from there upwards and never gives one twice in its life. [`LOG_BACKLOG_KEY`] names the log
//! that was read while there was no daemon. After a successor attached to the same holder, the keys go on to be valid.
//!
//! # Rules for the daemon
//! - A connection ends for its peer only when the daemon's descriptor is closed *and* its key is released.
//! - A descriptor is held before its other end is given to anybody.
//! - What was read from a connection is put into the state beside it; what a dead daemon had read and not noted is
//!   lost, so a packet is peeked at, noted and only then taken.
//! - A request that was sent survives the daemon: the holder reads all of them before it sees the end.
//! - What must be safe before a peer is answered is followed by a barrier, and the peer answered when that is passed.
//! - `AttachDone` counts what went wrong before; a failed request is told as [`FromHolder::Failed`].

mod backlog;
mod link;
mod place;
pub mod process;
mod restoring;
mod serve;
mod shelf;
mod start;
mod trust;

pub use link::{FromHolder, Held, HolderLink};
pub(crate) use remps_proto::holder::{
    CopiesNote, FEW_UNLINK_PATHS, MAX_DESCRIPTORS, ModeNote, ModeStage, ModesNote, RESTORES_MODES,
};
pub use remps_proto::holder::{
    FIRST_HOLDER_KEY, Failure, Kind, LOG_BACKLOG_KEY, MAX_STATE_BYTES, SOCKET_NAME, Settings,
};

use remps_proto::holder::DecodeError;

/// Keys under which nothing is ever held: what is asked there is a barrier for a holder of an earlier release, which
/// refuses it when everything before is done.
pub(crate) const REFUSED_KEYS: std::ops::Range<u64> = 1 << 59..1 << 60;
/// Name of the processes in `argv[0]`, the vendor's.
const PROGRAM: &str = "nvidia-cuda-mps-control";
/// The hidden first argument that makes the program a holder; the second is the pipe directory.
pub const ARGUMENT: &str = "--holder";

/// Why something with the holder did not work.
#[derive(Debug, thiserror::Error)]
pub enum HolderError {
    /// The holder is gone; attach again and hold everything again.
    #[error("the holder is gone")]
    Lost,
    /// The holder does not read fast enough; nothing was sent, the same call can be tried later.
    #[error("the holder does not read fast enough")]
    Full,
    /// Another daemon is attached to the holder.
    #[error("another daemon is attached to the holder")]
    Busy,
    /// The holder answers that this user may not attach.
    #[error("the holder belongs to another user")]
    NotPermitted,
    /// The holder did not answer in time.
    #[error("the holder did not answer in time")]
    Timeout,
    /// The holder speaks a later protocol that this program does not know.
    #[error("the holder speaks version {0} of its protocol, this program {supported}", supported = remps_proto::holder::VERSION)]
    Version(u32),
    /// More descriptors than one message carries.
    #[error("{0} descriptors are more than one message carries")]
    TooManyDescriptors(usize),
    /// A message exceeds a limit, or the holder sent something that is no message.
    #[error(transparent)]
    Message(#[from] DecodeError),
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        #[source]
        error: std::io::Error,
    },
}

impl HolderError {
    /// Turns a system error into one that says what was tried.
    fn system<E: Into<std::io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System { what, error: error.into() }
    }
}
