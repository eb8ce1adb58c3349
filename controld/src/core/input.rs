//! Everything that can happen to the core.

use super::client_recovery::{ClientRecovery, ClientRefusal};
use super::clients::channels::{Channel, Facts};
use super::clients::spares::Standing;
use super::evidence::{End, Evidence, ProcessKey};
use super::faults::held::GpuMemory;
use super::gpu::{ManagedMode, ModeOutcome};
use super::gpus::GpuPlace;
use super::gpus::GpuSeen;
use super::identity::Identity;
use super::ids::{ConnectionId, EntranceId, JoinId, Pid, RequestId, ServerEpoch, SessionId, Uid};
use super::peer::{ExitCause, NoReply, Peer};
use super::place::Rights;
use crate::core::Device;
use core::time::Duration;
use remps_proto::admin::defaults::Defaults;
use remps_proto::admin::limits::DeviceKey;
use remps_proto::mps::server::Reply;
use remps_proto::shim::RecoveryStage;
use std::sync::Arc;

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Input {
    /// A client has said its role and waits for a server.
    ClientArrived {
        connection: ConnectionId,
        peer: Peer,
        /// What is known of its process at once; the rest may follow with [`Input::IdentityKnown`].
        identity: Arc<Identity>,
        /// The socket of a namespace by which it came.
        entrance: Option<EntranceId>,
    },
    /// The same of a connection that shows a token, as a spare copy's do.
    SpareArrived {
        connection: ConnectionId,
        peer: Peer,
        identity: Arc<Identity>,
        token: u64,
        /// The socket of a namespace by which it came.
        entrance: Option<EntranceId>,
    },
    /// What has come of [`Effect::OpenEntrance`](super::Effect::OpenEntrance).
    EntranceOpened {
        entrance: EntranceId,
        /// Why there is no socket.
        result: Result<(), String>,
    },
    /// A thin daemon wants to join.
    JoinWanted {
        join: JoinId,
        /// As which server.
        name: String,
        /// The devices that it wants for that; none is all.
        devices: Vec<DeviceKey>,
        /// What an earlier daemon has told it that its clients may have; heard where this one knows nothing of its server.
        limits: Option<Defaults>,
        /// Those that there are, of which a server that is known already needs nothing.
        listed: Result<Vec<Device>, String>,
        /// Whether its directory is that of the one that stands for this server now.
        is_same_place: bool,
    },
    /// What has come of [`Effect::BindJoined`](super::Effect::BindJoined).
    JoinBound {
        join: JoinId,
        entrance: EntranceId,
        /// Why there is no socket.
        result: Result<(), String>,
    },
    /// A thin daemon says that it ends.
    JoinLeaves { join: JoinId },
    /// A thin daemon has closed its connection.
    JoinGone { join: JoinId },
    /// What has come of [`Effect::KeepServers`](super::Effect::KeepServers).
    ServersKept {
        number: u64,
        /// Why they are not kept.
        result: Result<(), String>,
    },
    /// A process wants a place for a spare copy of the driver.
    SpareWanted {
        process: ProcessKey,
        /// Random, and not 0: what the copy's connections are to show.
        token: u64,
        /// For how long it waits for that, from now.
        patience: Duration,
    },
    /// A program says how far its spare copy is.
    SpareStands { process: ProcessKey, token: u64, standing: Standing },
    /// A program goes on with its spare copy.
    SpareLives { process: ProcessKey, token: u64 },
    /// A program has given its spare copy up.
    SpareGone { process: ProcessKey, token: u64 },
    /// A program says how far it is with going on after a fault.
    RecoveryStands { process: ProcessKey, stage: RecoveryStage },
    /// A program says how it has gone on after a fault.
    ClientRecovered { process: ProcessKey, uid: Uid, recovery: ClientRecovery },
    /// A program says why it does not go on after a fault.
    ClientUnrecovered { process: ProcessKey, uid: Uid, refusal: ClientRefusal },
    /// More is known of a client's process than when it came.
    IdentityKnown {
        pid: Pid,
        /// All that is known; of the same start time, else it is dropped.
        identity: Arc<Identity>,
    },
    /// A witness says something.
    Evidence(Evidence),
    /// How many copies of a client's UVM descriptors the driver holds.
    CopiesHeld { process: ProcessKey, descriptors: usize },
    /// Whether a client's UVM tools queue is read.
    Tracked { process: ProcessKey, tracked: bool },
    /// The GPUs that the machine has.
    GpusFound(Vec<GpuPlace>),
    /// Which GPUs a client's address spaces have, for [`Effect::FindGpus`](super::Effect::FindGpus).
    SpacesFound {
        process: ProcessKey,
        /// Their names, as `GPU-…`; `None` when nobody can tell.
        gpus: Option<Vec<String>>,
    },
    /// The patched module knows of a channel.
    ChannelAdded {
        process: ProcessKey,
        /// Its name.
        channel: Channel,
        facts: Facts,
    },
    /// A channel is gone.
    ChannelRemoved {
        /// Its name.
        channel: Channel,
    },
    /// The patched module knows of an address space.
    AddressSpaceAdded {
        /// The module's number of it.
        va_space: u64,
        process: ProcessKey,
        /// Whether the module has cut the client off from its memory.
        condemned: bool,
    },
    /// The last trace of a client is gone: its page tables, its channels, its memory.
    AddressSpaceGone {
        /// The module's number of it.
        va_space: u64,
        process: Option<ProcessKey>,
    },
    /// What the patched module told of channels and address spaces is void.
    HardwareForgotten,
    /// It has told of all that there are.
    HardwareKnown,
    /// A server has greeted a client that it was told of: the client can get its end of the connection.
    ServerGreeted { connection: ConnectionId },
    /// A client has left, or was too slow, in its handshake with a server, which is now finished in its place.
    EndTakenBack { connection: ConnectionId },
    /// A server has ended a handshake that was finished in a client's place.
    RestAnswered {
        /// The client's connection, which is over afterwards.
        connection: ConnectionId,
    },
    /// A client's connection is over: it has reported its status, or it has closed.
    ClientDone {
        connection: ConnectionId,
        /// The `CUresult` it reported; `None` when it closed without one.
        status: Option<u32>,
    },
    /// The process of a client is gone. Of one whose start nobody could read the start time is 0.
    ProcessGone { process: ProcessKey, end: End },
    /// A program's successor waits for the end of the server that its predecessor was on: nothing else proves that the
    /// predecessor's work is at rest.
    EndAwaited {
        server: ServerEpoch,
        /// Who has not ended yet and is past doing anything else, and how.
        ending: Option<(ProcessKey, End)>,
    },
    /// A server process has been started, as [`Effect::SpawnServer`](super::Effect::SpawnServer) asked.
    ServerSpawned { server: ServerEpoch, pid: Pid },
    /// It could not be started.
    SpawnFailed {
        server: ServerEpoch,
        /// Why, for the log.
        reason: String,
    },
    /// A process has come to the control socket as a server and said hello.
    ServerHello { connection: ConnectionId, peer: Peer },
    /// A server's control connection has closed or can't be followed any longer.
    ServerLinkLost {
        server: ServerEpoch,
        /// Why, for the log.
        reason: String,
    },
    /// A server's process is gone.
    ServerExited { server: ServerEpoch, cause: ExitCause },
    /// What a server costs on the GPU, for [`Effect::MeasureServer`](super::Effect::MeasureServer).
    ServerMeasured {
        /// Which.
        server: ServerEpoch,
        /// Bytes; `None` when nobody can tell.
        memory_bytes: Option<u64>,
    },
    /// All that had come when [`Effect::CatchUp`](super::Effect::CatchUp) asked for it has been told.
    CaughtUp {
        /// On account of which server.
        server: ServerEpoch,
    },
    /// The one answer to an [`Effect::Ask`](super::Effect::Ask).
    Replied {
        request: RequestId,
        /// The answer.
        reply: Result<Reply, NoReply>,
    },
    /// The devices that this machine has, for [`Effect::ListDevices`](super::Effect::ListDevices).
    DevicesListed {
        /// Which session asked.
        session: SessionId,
        /// The devices, or why they can't be listed.
        devices: Result<Vec<Device>, String>,
    },
    /// A line of the command line.
    Command {
        session: SessionId,
        /// Who typed it.
        peer: Peer,
        /// What he may do.
        rights: Rights,
        line: Vec<u8>,
    },
    /// The GPUs can be looked at from now on.
    GpusWatched {
        /// What an earlier daemon has noted of their compute modes.
        modes: Vec<ManagedMode>,
        /// Whether strangers can be ended.
        may_end: bool,
    },
    /// The GPUs, for [`Effect::LookAtGpus`](super::Effect::LookAtGpus), or why nothing can be told of them.
    GpusSeen(Result<Vec<GpuSeen>, String>),
    /// The GPUs' memory, or why nothing can be told of it.
    MemorySeen {
        /// Of each GPU.
        memory: Result<Vec<GpuMemory>, String>,
        /// Whether it is the answer to [`Effect::LookAtMemory`](super::Effect::LookAtMemory), and was not just seen
        /// when the GPUs were looked at.
        asked: bool,
    },
    /// What came of [`Effect::ChangeModes`](super::Effect::ChangeModes), or why that is not known.
    ModesChanged(Result<Vec<ModeOutcome>, String>),
    /// The daemon was asked by a signal to end.
    Terminate,
    /// A deadline named by [`Core::next_deadline`](super::Core::next_deadline) has come.
    Tick,
}
