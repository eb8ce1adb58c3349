//! What the tasks that wait for peers and processes tell the driver.

use super::joins::Asked;
use super::usage::Memory;
use crate::core::Device;
use crate::core::{
    ConnectionId, End, EntranceId, ExitCause, GpuMemory, GpuPlace, JoinId, MemoryFault, ModeOutcome, Peer, Pid,
    ProcessKey, ServerEpoch, SessionId,
};
use crate::devices::gpus::ProbedGpu;
use crate::door::ReplyTo;
use crate::io::seqpacket::{Packet, SeqPacket};
use crate::sys::child::Identity;
use crate::witness::identity::Found;
use crate::witness::uvm::{AttachError, Attached, OpenFiles};
use remps_proto::admin::reply::ClientRow;
use remps_proto::join::ToThin;
use remps_proto::mps::handshake::Role;
use remps_proto::mps::server::Hello;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Events that may wait for the driver before their tasks do.
const QUEUE: usize = 1024;

/// What a connection did not give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It closed, or sent something else than credentials: `libcuda`'s probe does that before every real connection.
    Credentials,
    /// It gave credentials, but no role.
    Role,
    /// A server gave no hello.
    Hello,
}

impl Refusal {
    /// The vendor's log line.
    pub(super) fn line(self) -> &'static str {
        match self {
            Self::Credentials => "User did not send valid credentials",
            Self::Role => "Unable to read new connection type information",
            Self::Hello => "Unable to read server information",
        }
    }
}

/// For whom a server is.
#[derive(Debug, Clone)]
pub(super) struct Extent {
    /// Whether it serves all users.
    pub(super) multi_user: bool,
    /// The GPU or MIG instance that it may use, if not all that the daemon may.
    pub(super) gpu: Option<String>,
}

/// Something that a task has seen.
#[derive(Debug)]
pub(super) enum Event {
    /// A connection has said its role; the role's packet is still in the socket.
    Role { connection: ConnectionId, role: Role, peer: Peer },
    /// A thin daemon says what it wants.
    JoinAsked { join: JoinId, asked: Box<Asked>, tell: mpsc::UnboundedSender<ToThin> },
    /// The devices that one of its server's may have.
    JoinListed { join: JoinId, devices: Result<Vec<Device>, String> },
    /// The socket in a thin daemon's directory is made, unless it was there; or can't be.
    JoinBound { join: JoinId, entrance: EntranceId, result: Result<Option<OwnedFd>, String> },
    /// A thin daemon hands a command line over.
    JoinVisited { join: JoinId, socket: Arc<SeqPacket>, peer: Peer, is_owner: bool },
    /// A thin daemon ends.
    JoinLeaves { join: JoinId },
    /// A thin daemon has closed its connection.
    JoinGone { join: JoinId },
    /// A connection is of no use.
    Refused { connection: ConnectionId, refusal: Refusal },
    /// A server has said hello; the packet is still in the socket.
    Hello { connection: ConnectionId, peer: Peer, hello: Hello },
    /// A client has reported its status, or closed.
    ClientDone { connection: ConnectionId, status: Option<u32> },
    /// A server has greeted a client on the pair of sockets that was made for them.
    ServerHasEnd { connection: ConnectionId },
    /// A server has closed its end of a pair without a word, and goes on.
    ServerClosedEnd { connection: ConnectionId },
    /// The handshake of a client that left has been finished for it.
    HandshakeFinished { connection: ConnectionId, is_answered: bool },
    /// A session has sent a command.
    Command { session: SessionId, line: Vec<u8> },
    /// A session is over.
    SessionEnded { session: SessionId },
    /// A packet from a server.
    LinkPacket { server: ServerEpoch, packet: Packet },
    /// A server's connection is over.
    LinkEnded { server: ServerEpoch, reason: String },
    /// What had come when it was asked for is before this in the queue.
    CaughtUp { server: ServerEpoch },
    /// The same, when the time for an answer of this server seemed to be over.
    AnswersOverdue { server: ServerEpoch },
    /// A server's socket has room again.
    LinkWritable { server: ServerEpoch },
    /// Which group and groups a server's user has.
    IdentityKnown { server: ServerEpoch, identity: Identity, extent: Extent },
    /// A server has written to its standard error.
    ServerSaid { pid: Pid, lines: Vec<Vec<u8>>, dropped: u32 },
    /// A server's process is gone.
    ServerExited { server: ServerEpoch, cause: ExitCause },
    /// The same, when all that its clients' tools queues had to say has been told.
    ServerHeard { server: ServerEpoch, cause: ExitCause },
    /// A client's process is gone.
    ProcessGone { process: ProcessKey, end: End },
    /// A client's process that could not be watched may be tried again.
    WatchAgain { pid: Pid, connection: Option<ConnectionId> },
    /// The same, when all that its tools queues had to say has been told.
    ProcessHeard { process: ProcessKey, end: End },
    /// A client that had to be known before its domain could be.
    Known { connection: ConnectionId, peer: Peer, found: Box<Found> },
    /// Who a client's process is.
    Identified { process: ProcessKey, found: Box<Found> },
    /// A client's address space is followed, or why not.
    Attached { process: ProcessKey, is_first: bool, result: Result<Box<Attached>, AttachError> },
    /// A client's descriptors were looked through, and who wants to know what came of it.
    Sifted { process: ProcessKey, open: Result<OpenFiles, AttachError>, reply: ReplyTo },
    /// A client has ended whose copies an earlier daemon left, and which no server has named since.
    UnfollowedEnded { process: ProcessKey },
    /// A client's connection has waited long enough for the client to be looked at.
    LookOverdue { process: ProcessKey, connection: ConnectionId },
    /// What a client's own library has handed over has been looked at.
    Given { process: ProcessKey, result: Result<Box<Attached>, AttachError>, reply: ReplyTo },
    /// A client's tools queue has a fatal fault, and this many more were dropped.
    Fault { process: ProcessKey, fault: MemoryFault, lost: u64, is_of_own_server: bool },
    /// A client's tools queue can't be read any longer.
    Unheard { process: ProcessKey, error: std::io::Error },
    /// Which GPUs the machine has.
    GpusFound(Vec<GpuPlace>),
    /// Which GPUs a client's address spaces have.
    SpacesFound { process: ProcessKey, gpus: Option<Vec<String>> },
    /// What a server costs on the GPU.
    Measured { server: ServerEpoch, memory_bytes: Option<u64> },
    /// The rows of `ps` have their programs, as far as those can be known.
    Described { session: SessionId, rows: Vec<ClientRow> },
    /// The GPUs were looked at, or why nothing can be told of them.
    GpusSeen(Result<Vec<ProbedGpu>, String>),
    /// Their memory was, or why nothing can be told of it.
    MemorySeen(Result<Vec<GpuMemory>, String>),
    /// How much GPU memory each process has, or why nothing can be told of it.
    UsageSeen(Memory),
    /// What came of changes of compute modes.
    ModesChanged(Result<Vec<ModeOutcome>, String>),
    /// The devices are listed, for a session or in advance.
    Devices { devices: Result<Vec<Device>, String> },
    /// Named servers are kept on disk, or why not.
    ServersKept { number: u64, result: Result<(), String> },
}

/// The way to the driver.
#[derive(Debug, Clone)]
pub(super) struct Events(mpsc::Sender<Event>);

impl Events {
    /// src --events--> driver
    pub(super) fn channel() -> (Self, mpsc::Receiver<Event>) {
        let (events_tx, events_rx) = mpsc::channel(QUEUE);
        (Self(events_tx), events_rx)
    }

    /// Tells the driver. When the driver has ended nobody needs to know any more.
    pub(super) async fn send(&self, event: Event) {
        let _ = self.0.send(event).await;
    }
}
