//! What is noted with the holder beside a connection.

use crate::core::{Peer, ServerEpoch};
use prost::Message;

/// How far a connection has come. A successor acts on it as `restore` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ::prost::Enumeration)]
#[repr(i32)]
pub(in crate::driver) enum Stage {
    /// Nothing is known: its next packet says what it is.
    Unknown = 0,
    /// A client that waits for a server.
    Waiting = 1,
    /// A client for whom a server is being told; the server may or may not have its descriptor.
    Dispatching = 2,
    /// A client whose server has its descriptor; the client may or may not have its own.
    HandedOver = 3,
    /// A server that has said hello; it may or may not have its configuration.
    Configuring = 4,
    /// A server's control connection.
    Link = 5,
    /// A server that has said its role.
    Server = 6,
}

/// What is noted of a client process without a pid here, beside its process descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(in crate::driver) struct HiddenNote {
    /// Its user.
    #[prost(uint32, tag = "1")]
    pub(in crate::driver) uid: u32,
    /// Its group.
    #[prost(uint32, tag = "2")]
    pub(in crate::driver) gid: u32,
    /// Its server.
    #[prost(uint64, tag = "3")]
    pub(in crate::driver) server: u64,
    /// The first number that it is told apart by.
    #[prost(uint64, tag = "4")]
    pub(in crate::driver) more: u64,
    /// The second.
    #[prost(uint64, tag = "5")]
    pub(in crate::driver) number: u64,
    /// Its pid on the machine; 0 is not known.
    #[prost(uint32, tag = "6")]
    pub(in crate::driver) seen_as: u32,
    /// Its start time, in clock ticks since boot; 0 is not known.
    #[prost(uint64, tag = "7")]
    pub(in crate::driver) start_time: u64,
}

impl HiddenNote {
    pub(in crate::driver) fn encoded(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

/// What is noted beside a connection.
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::driver) struct ConnectionNote {
    /// A [`Stage`].
    #[prost(enumeration = "Stage", tag = "1")]
    pub(in crate::driver) stage: i32,
    /// The peer's pid.
    #[prost(uint32, tag = "2")]
    pub(in crate::driver) pid: u32,
    /// The peer's user.
    #[prost(uint32, tag = "3")]
    pub(in crate::driver) uid: u32,
    /// The peer's group.
    #[prost(uint32, tag = "4")]
    pub(in crate::driver) gid: u32,
    /// The server.
    #[prost(uint64, tag = "5")]
    pub(in crate::driver) server: u64,
}

impl ConnectionNote {
    pub(in crate::driver) fn of(stage: Stage, peer: Peer, server: Option<ServerEpoch>) -> Vec<u8> {
        let server = server.map_or(0, |server| server.0);
        Self { stage: stage.into(), pid: peer.pid, uid: peer.uid, gid: peer.gid, server }.encode_to_vec()
    }

    pub(in crate::driver) fn peer(&self) -> Peer {
        Peer { pid: self.pid, uid: self.uid, gid: self.gid }
    }
}
