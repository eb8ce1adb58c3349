//! Names of things in the core. None is ever used again for something else.

use core::fmt;

/// A process id.
pub(crate) type Pid = u32;

/// The first number that stands for a process without a pid here ([`stand_in`](super::clients::stand_in)). The kernel
/// gives no pid above 2^22 on any machine, so none of them is ever a pid, and a signal sent to one reaches nobody.
const FIRST_STAND_IN: Pid = (1 << 22) + 1;
/// How many there are: the last one is the largest that a command may name.
const STAND_INS: u64 = (1 << 31) - FIRST_STAND_IN as u64;

/// Whether this stands for a process that has no pid here.
pub(crate) const fn is_stand_in(pid: Pid) -> bool {
    pid >= FIRST_STAND_IN
}

/// Whether this is no pid.
pub(crate) const fn is_hidden(pid: Pid) -> bool {
    pid == 0 || is_stand_in(pid)
}

/// Where the search for a free number begins of a process that the kernel tells apart by these.
pub(crate) fn first_stand_in([more, number]: [u64; 2]) -> Pid {
    let mixed = more.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number) % STAND_INS;
    FIRST_STAND_IN + Pid::try_from(mixed).unwrap_or_default()
}

/// The number behind this one.
pub(crate) const fn next_stand_in(number: Pid) -> Pid {
    if number >= i32::MAX.cast_unsigned() { FIRST_STAND_IN } else { number + 1 }
}

/// Those that are above all pids.
pub(crate) const STAND_IN_RANGE: core::ops::RangeFrom<Pid> = FIRST_STAND_IN..;
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
