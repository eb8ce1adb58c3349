//! Messages between the control daemon and the holder, the small process that keeps duplicates of its descriptors.
//!
//! ```text
//! daemon -> holder   Hold, Update, Release, Settings, Barrier, Leave          ToHolder
//! holder -> daemon   Held …, AttachDone, then Accepted, Failed and Passed    FromHolder
//! ```
//! One message is one packet; descriptors travel beside it. The generated types live in [`wire`]; the two enums here
//! are what both sides work with, and their `decode` is where sizes are limited and missing parts are refused.

mod copies;
mod message;
mod modes;

/// The types generated from `holder.proto`; `proto/tests/bootstrap.rs` keeps them equal to it.
pub mod wire {
    include!("gen/remps.holder.v1.rs");
}

pub use copies::CopiesNote;
pub use message::{AttachDone, DecodeError, FromHolder, Held, Settings, ToHolder};
pub use modes::{ModeNote, ModeStage, ModesNote};

/// Version of the protocol that this code speaks, told in [`AttachDone`].
pub const VERSION: u32 = 1;
/// Largest state beside a key, and largest piece of a log backlog, in bytes.
pub const MAX_STATE_BYTES: usize = 32 * 1024;
/// Largest message in bytes; a longer packet is not a message.
pub const MAX_MESSAGE_BYTES: usize = MAX_STATE_BYTES + 8 * 1024;
/// Most descriptors beside one message.
pub const MAX_DESCRIPTORS: usize = 8;
/// Most paths in one [`Settings`] for a holder that says [`ADDS_PATHS`].
pub const MAX_UNLINK_PATHS: usize = 1024;
/// Most paths in one [`Settings`] for a holder that does not.
pub const FEW_UNLINK_PATHS: usize = 16;
/// Most paths that a holder remembers, of all [`Settings`] that add to each other.
pub const MAX_REMEMBERED_PATHS: usize = 16 * 1024;
/// Most bytes of log that [`Settings`] can ask to be kept.
pub const MAX_LOG_BUFFER_BYTES: u64 = 16 * 1024 * 1024;
/// First of the keys that only the holder gives out. Every key below is the daemon's.
pub const FIRST_HOLDER_KEY: u64 = 1 << 63;
/// The key of the log backlog; to release it says that the backlog has been written.
pub const LOG_BACKLOG_KEY: u64 = u64::MAX;
/// Bit of [`AttachDone::abilities`]: the holder restores compute modes.
pub const RESTORES_MODES: u32 = 1;
/// Bit of [`AttachDone::abilities`]: the holder answers [`ToHolder::Barrier`].
pub const ANSWERS_BARRIERS: u32 = 2;
/// Bit of [`AttachDone::abilities`]: the holder takes more than [`FEW_UNLINK_PATHS`], and [`Settings`] that add to earlier
/// ones.
pub const ADDS_PATHS: u32 = 4;
/// Name of the attach socket in the pipe directory.
pub const SOCKET_NAME: &str = ".nvidia-cuda-mps-control.holder";

crate::open_enum! {
    /// What is held under a key; the holder treats each a little differently while no daemon is attached.
    pub struct Kind: u32 {
        /// The listening socket `control`: accepted from while a daemon is attached.
        LISTENER_PUBLIC = 1,
        /// The listening socket `control_privileged`: accepted from while a daemon is attached.
        LISTENER_PRIVILEGED = 2,
        /// The log FIFO, opened for reading and writing: kept, drained, the latest bytes remembered.
        LOG_FIFO = 3,
        /// The reading end of a server's standard error: drained, dropped at its end.
        SERVER_STDERR = 4,
        /// A connection that is not a server's: dropped when its peer hangs up.
        CONNECTION = 5,
        /// One end of a socket pair on its way to a server and a client: kept.
        CLIENT_END = 6,
        /// A state, with or without descriptors: kept.
        STATE = 7,
        /// A server's control connection: outlives giving up, dropped when the server hangs up.
        SERVER_CONNECTION = 8,
        /// A piece of the log that was read while there was no daemon; made by the holder only.
        LOG_BACKLOG = 9,
        /// A region of GPU memory, its note and its GPU's device file: kept until giving up.
        REGION = 10,
        /// The listening socket `shim`, from which the daemon itself accepts: kept until giving up.
        LISTENER_SHIM = 11,
        /// What is noted of a name in the vault, without descriptors: kept until giving up.
        NAME = 12,
        /// A pidfd of a client and copies of its UVM descriptors, with a [`CopiesNote`]: while there is no daemon, closed
        /// when its time is over, which begins with the client's end.
        COPIES = 13,
        /// A [`ModesNote`], without descriptors: when the holder gives up it restores the modes and forgets the note.
        COMPUTE_MODES = 14,
        /// A user namespace, held open so that no other gets its number: kept until giving up.
        NAMESPACE = 15,
        /// A daemon's part in the machine's record of a GPU's compute mode, a locked file with the GPU's UUID for a state:
        /// kept until giving up, which restores no mode of a GPU whose file others have locked too.
        MODE_RECORD = 16,
        /// A piece of a state that is too large for one message, without descriptors: kept. A kind of its own, because a
        /// daemon of an earlier release takes whatever is a [`STATE`](Self::STATE) for the whole of it.
        STATE_PIECE = 17,
    }
}

crate::open_enum! {
    /// Why the holder refuses a connection.
    pub struct Refusal: u32 {
        /// Another daemon is attached.
        BUSY = 1,
        /// The peer is neither root nor of the holder's user.
        NOT_PERMITTED = 2,
    }
}

crate::open_enum! {
    /// Why a request could not be done.
    pub struct Failure: u32 {
        /// The message made no sense.
        MALFORMED = 1,
        /// Too many keys are held.
        TOO_MANY = 2,
        /// Descriptors were lost on the way because the holder has too many open.
        DESCRIPTORS = 3,
        /// The descriptors do not fit the kind.
        WRONG_DESCRIPTORS = 4,
    }
}

impl Kind {
    /// Whether it is one of the two listening sockets.
    #[must_use]
    pub const fn is_listener(self) -> bool {
        matches!(self, Self::LISTENER_PUBLIC | Self::LISTENER_PRIVILEGED)
    }
}
