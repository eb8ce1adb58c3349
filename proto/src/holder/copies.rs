//! What is noted beside copies of a client's UVM descriptors ([`Kind::COPIES`](super::Kind::COPIES)): the one state that
//! the holder reads too, because while there is no daemon it keeps a dead client's copies as long as one would.
//!
//! The first descriptor beside it is a pidfd of the client; the others are the copies.

use prost::Message;

/// The note.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CopiesNote {
    /// When they are closed, in milliseconds since boot, suspended time included; 0 while the client lives, and
    /// `u64::MAX` for no time of their own.
    #[prost(uint64, tag = "1")]
    pub until_ms: u64,
    /// How long they are kept after the client's end, in milliseconds.
    #[prost(uint64, tag = "2")]
    pub hold_ms: u64,
    /// The client's pid.
    #[prost(uint32, tag = "3")]
    pub pid: u32,
    /// Its start time, in clock ticks since boot.
    #[prost(uint64, tag = "4")]
    pub start_time: u64,
    /// Its user.
    #[prost(uint32, tag = "5")]
    pub uid: u32,
    /// The epoch of its server.
    #[prost(uint64, tag = "6")]
    pub server: u64,
    /// Whether its work counts as endless.
    #[prost(bool, tag = "7")]
    pub endless: bool,
}
