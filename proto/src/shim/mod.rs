//! Messages between the preload library and the control daemon: what keeps GPU memory beyond a process's end.
//!
//! ```text
//! library -> daemon   Hello, Escrow, Release, List, HandBack, Adopt, Discard, Report, Where,
//!                     Commit, Succeed, Fate, Watch, Subscribe, Renewed, Follow,
//!                     Spare, SpareStands, SpareLives, SpareGone, Recovered, Recovery, Unrecovered    FromShim
//! daemon -> library   Welcome, Inherited, Region …, Spare, Done or Failed; Epoch, SpareVoid          ToShim
//! ```
//! One message is one packet on the socket [`SOCKET_NAME`]; a descriptor travels beside an Escrow and a Follow, and beside each Region
//! that answers a HandBack or an Adopt. Every request gets exactly one last answer ([`Answer::is_last`]), in order. Who
//! asks is what the kernel says of the sender, never what a message says.
//!
//! # Keys and names
//! A key names a region within its process and a name a group of regions of one process, within its user. At any time a
//! name has one owner. A named region outlives its owner for a while, and the first process of the same user that asks
//! adopts all regions of the name at once. To adopt first and escrow then keeps keys from meeting.
//!
//! # Commits and succession
//! The owner of a name notes with a Commit how far it has come: a number, some bytes, and where what it has lies. A
//! Succeed adopts the name when its owner has ended *and* its work is at rest; it is answered when that is so, or with
//! [`Failure::NOT_YET`] when its time is over, and may be asked again. What is known of the predecessor's work then is a
//! [`Rest`], and never less than was asked for. A standby waits with it while the name's owner lives.
//!
//! As soon as the owner is known to be about to end, a caller that says that it can is *offered* the memory: an Offered and the
//! regions, with their descriptors. It maps them, uses nothing of it, and asks again with the offer's number; what is then
//! given is mapped already. [`Failure::WITHDRAWN`] in place of that says that the owner lives on, or has freed something, or that
//! the daemon is another one: who has mapped the offer unmaps it, closes the descriptors, and asks as before.
//!
//! # The daemon's word
//! A client that waits for nothing learns from the daemon that it has lost its context. After a Subscribe the daemon
//! sends an Epoch, and another one whenever the server of the process is another one, or otherwise, than it was told
//! last: each with request number 0, before, between and after the answers to whatever else the connection asks.
//! [`ServerState::GONE`] says that the server's process is reaped, so that none of its channels is left. A Renewed tells
//! the daemon to look which of the descriptors that it holds for a process that process still has; it closes the others.
//!
//! A Watch is answered with one Epoch, at once where its time is 0. An earlier library waits with it for the next news on
//! a connection that is for that alone, since one connection has its requests answered one after the other.
//!
//! # Following
//! A daemon without the right to look into its clients can neither hear of their memory faults nor keep what makes their
//! sudden death harmless. It says so ([`Capabilities::FOLLOWS`]), and the library of such a client gives it its UVM
//! descriptors, each with a Follow, at most [`MOST_FOLLOWED`] at a time.
//!
//! # Spare copies
//! A second copy of the driver may stand by in a process, on another server than the one that the program works with. A
//! Spare asks for that server; it is answered when it serves, or with [`Failure::NOT_YET`] when the time is over, or at once
//! with [`Failure::NO_SPARE_SERVER`]. A process has one grant at most: who asks again gets the one that it has. The spare
//! copy's connections to the socket `control` show the grant's token as the address that they are bound to
//! ([`SpareName`]), and those that come when it is the program's own copy go on to do so.
//!
//! A SpareVoid ends a grant, as SpareGone and SpareLives do. The daemon sends it with request number 0 on each connection
//! on which the process has sent a Spare or a SpareStands. Who has lost such a connection sends a SpareStands on the next
//! one, which fails with [`Failure::NOT_FOUND`] when the grant is over.
//!
//! # What a recovery took
//! A program that has gone on with another copy of the driver says with a Recovered which way it took and how long each
//! step was ([`Recovered`]), one that is not recovered with an Unrecovered why. It is a claim about the program alone: nothing
//! is decided by it.
//!
//! # Before that
//! A Recovery says how far a program is with going on ([`RecoveryStage`]): that it would after a fault, on each connection
//! anew, and then that it has its contexts again or never will. Meanwhile the daemon buries nothing of the server that the
//! fault has spoilt, since that holds the driver up; not for longer than it wants to wait, so nobody need be believed.
//!
//! # What programs get that say nothing
//! A file beside the socket has what the daemon's configuration says of that ([`ProgramDefaults`]): the library decides
//! before it may wait for an answer.
//!
//! # After a lost connection
//! The daemon may be killed between doing and answering. Each request may be sent again: an escrow alike replaces, a
//! release of what is not there fails with [`Failure::NOT_FOUND`], and who adopts what it has already gets it again.

mod codec;
mod defaults;
mod message;
mod recovered;
mod spare;
mod unrecovered;

/// The types generated from `shim.proto`; `proto/tests/bootstrap.rs` keeps them equal to it.
pub mod wire {
    include!("gen/remps.shim.v1.rs");
}

pub use codec::DecodeError;
pub use defaults::{DEFAULTS_NAME, DefaultsFile, Found, Keep, MAX_DEFAULTS_BYTES, Program, ProgramDefaults, Recover};
pub use message::{Answer, Ask, Commit, FromShim, Inherited, Range, Region, ToShim, Welcome};
pub use recovered::{MOST_STEPS, RECOVERY_STEPS, Recovered, SWITCH_STEPS, Way};
pub use spare::{SpareName, SpareTakes};
pub use unrecovered::{MAX_REASON_BYTES, Unrecovered};

/// Version of the protocol that this code speaks. Both sides go on with the lower one.
pub const VERSION: u32 = 1;
/// Name of the socket in the pipe directory.
pub const SOCKET_NAME: &str = "shim";
/// Largest message in bytes; a longer packet is not a message. A commit with all that it may have fits.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024;
/// Most of the program's own bytes in a commit.
pub const MAX_COMMIT_BYTES: usize = 4096;
/// Most descriptors that are followed together. A process has two for each copy of the driver's library in it.
pub const MOST_FOLLOWED: usize = 16;
/// Most ranges in a commit.
pub const MAX_RANGES: usize = 64;
/// Longest label of a range, in bytes.
pub const MAX_LABEL_BYTES: usize = 64;
/// Longest name of a group of regions, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// Longest name of a GPU, in bytes: `GPU-` or `MIG-` and a UUID have 40.
pub const MAX_GPU_BYTES: usize = 64;

/// Bits of what one side can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Regions: Escrow, Release, List, HandBack, Adopt and Discard.
    pub const VAULT: Self = Self(1);
    /// Errors are heard: Report.
    pub const REPORTS: Self = Self(1 << 1);
    /// The server of a process is told to who asks: Where.
    pub const EPOCHS: Self = Self(1 << 2);
    /// It is told when it is asked for, and to whom the blame goes: Watch and Renewed.
    pub const NEWS: Self = Self(1 << 3);
    /// Commit, Succeed and Fate.
    pub const STATE: Self = Self(1 << 4);
    /// It may not take descriptors out of processes, and wants to be given those of the UVM driver: Follow.
    pub const FOLLOWS: Self = Self(1 << 5);
    /// It is told unasked whenever it changes: Subscribe.
    pub const SUBSCRIPTIONS: Self = Self(1 << 6);
    /// It lets a spare copy of the driver stand by on another server: Spare, SpareStands, SpareLives and SpareGone.
    pub const SPARES: Self = Self(1 << 7);
    /// It hears what a recovery took: Recovered.
    pub const RECOVERIES: Self = Self(1 << 8);
    /// It lets programs recover before it buries the server that they were on: Recovery.
    pub const BURIALS: Self = Self(1 << 9);
    /// It hears why a program is not recovered: Unrecovered.
    pub const REFUSALS: Self = Self(1 << 10);

    /// Whether all of these are among them.
    #[must_use]
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Both.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

crate::open_enum! {
    /// Why a request is not done.
    pub struct Failure: u32 {
        /// The packet is no message, or one with a value that can't be.
        MALFORMED = 1,
        /// The daemon does not know this request.
        UNKNOWN_REQUEST = 2,
        /// The first request must be a hello, and no other may be.
        NOT_GREETED = 3,
        /// The daemon keeps nothing.
        SWITCHED_OFF = 4,
        /// An escrow and a follow need exactly one descriptor, and any other request none.
        DESCRIPTORS = 5,
        /// The descriptor is not one of GPU memory.
        WRONG_DESCRIPTOR = 6,
        /// The user has as many bytes or regions as it may, or all users together have.
        QUOTA = 7,
        /// The process has another region with this key.
        KEY_IN_USE = 8,
        /// The name has another owner, or what a dead owner left: adopt or discard that first.
        NAME_IN_USE = 9,
        /// There is no such region or name.
        NOT_FOUND = 10,
        /// The owner of the name lives.
        OWNER_LIVES = 11,
        /// Who asks could not be told, or is not who connected, as a forked child.
        IDENTITY = 12,
        /// What is kept could not be made safe against the daemon's own end; nothing was kept.
        NOT_SAFE = 13,
        /// Too many connections of this user, or of all.
        TOO_MANY_CONNECTIONS = 14,
        /// The daemon ends.
        QUITTING = 15,
        /// The owner of the name lives, or its work is not known to be at rest, and the time is over: ask again.
        NOT_YET = 16,
        /// Another process waits for the same name, or succeeded first.
        NAME_TAKEN = 17,
        /// The caller is itself on the server that must be gone before the name is given: end, and come again.
        OWN_SERVER_LOST = 18,
        /// There is no server on which a spare copy of this process could stand, and none is on its way.
        NO_SPARE_SERVER = 19,
        /// What was offered is not any more: it must be unmapped and closed. Then ask again.
        WITHDRAWN = 20,
    }
}

crate::open_enum! {
    /// How the server of a process is.
    pub struct ServerState: u32 {
        /// The process has no server.
        NONE = 0,
        /// It serves.
        HEALTHY = 1,
        /// It has met a fault that its clients share.
        TAINTED = 2,
        /// It is gone.
        GONE = 3,
    }
}

crate::open_enum! {
    /// How far a program is with going on after a fault.
    pub struct RecoveryStage: u32 {
        /// It would go on: with another copy of the driver, in the same process.
        ABLE = 1,
        /// It has its contexts again, in another copy of the driver.
        BACK = 2,
        /// It does not go on after any fault.
        GIVEN_UP = 3,
        /// There is no GPU memory for its contexts or for an allocation, which it tries again.
        SHORT = 4,
    }
}

crate::open_enum! {
    /// What a process has to do with the fault that its server has met.
    pub struct Part: u32 {
        /// There was none, or nobody can say.
        UNKNOWN = 0,
        /// It is lost with the others: the daemon holds another one for the culprit.
        BYSTANDER = 1,
        /// It is the culprit by several signs, none of which is proof.
        LIKELY_CULPRIT = 2,
        /// It is the culprit: a witness that cannot be wrong has named it.
        CULPRIT = 3,
    }
}

impl Default for Part {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

crate::open_enum! {
    /// What is known of the work that the last owner of a name had given to the GPU.
    pub struct Rest: u32 {
        /// Nothing, as nobody had the name before.
        NONE = 0,
        /// Its process is reaped. If it was a client of a server that lives, a kernel that it had launched may still run.
        PROCESS = 1,
        /// Its process is reaped, and the server that it was on is reaped too or it was on none: no channel is left.
        SERVER = 2,
    }
}

impl Default for Rest {
    fn default() -> Self {
        Self::NONE
    }
}
