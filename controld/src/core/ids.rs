//! Names of things in the core. None is ever used again for something else.

use core::fmt;

/// A process id.
pub(crate) type Pid = u32;
/// A user id.
pub(crate) type Uid = u32;

macro_rules! ids {
    ($($(#[$meta:meta])* $visibility:vis $name:ident;)+) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
            $visibility struct $name(pub(crate) u64);

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    self.0.fmt(f)
                }
            }
        )+
    };
}

ids! {
    /// One start of one server. A later server of the same users has a later epoch, so that an event of an earlier one
    /// is recognised and dropped.
    pub ServerEpoch;
    /// A connection on the control socket, by the holder's key.
    pub(crate) ConnectionId;
    /// A session of the command line.
    pub(crate) SessionId;
    /// A request to a server.
    pub(crate) RequestId;
    /// The socket of a namespace of a named server. One that is made anew has another number.
    pub(crate) EntranceId;
    /// A thin daemon's conversation with this one. Another one has another number.
    pub(crate) JoinId;
    /// A fault domain. One that was forgotten and comes again has another number.
    pub(crate) DomainId;
}
