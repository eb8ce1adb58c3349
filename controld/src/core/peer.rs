//! Those with whom the daemon deals: who is at the other end, how one ended, and why one did not answer.

use super::ids::{EntranceId, Pid, Uid};

/// Who is at the other end of a connection, as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Pid in the daemon's namespace; 0 when the namespace hides it.
    pub pid: Pid,
    pub uid: Uid,
    pub gid: u32,
}

/// A namespace of a named server, and the socket by which its clients come.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entrance {
    pub id: EntranceId,
    /// The server's name.
    pub server: String,
    /// The namespace's.
    pub namespace: String,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCause {
    /// It returned this status.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
    /// It is gone and nobody could say how: a server that was taken over from an earlier daemon.
    Unknown,
}

/// Why a request to a server has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoReply {
    /// The server's control connection is closed.
    #[error("the server closed its control connection")]
    Lost,
    /// It did not answer in time.
    #[error("the server did not answer in time")]
    TimedOut,
    /// Its release has no words for the request: servers before 580 know devices by ordinal only.
    #[error("the server's release has no words for this")]
    Unsupported,
}
