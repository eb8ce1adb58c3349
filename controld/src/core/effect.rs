//! Everything that the core can ask for. The driver performs effects in order.

use super::announcement::Announcement;
use super::events::JournalEvent;
use super::evidence::ProcessKey;
use super::gpu::{ManagedMode, ModeChange};
use super::ids::{ConnectionId, JoinId, Pid, RequestId, ServerEpoch, SessionId, Uid};
use super::kept_defaults::KeptDefaults;
use super::peer::{Entrance, Peer};
use super::policy::Policy;
use super::saved::SavedNamed;
use core::time::Duration;
use remps_proto::admin::Report;
use remps_proto::admin::defaults::Defaults;
use remps_proto::admin::module::Format;
use remps_proto::admin::reply::ClientRow;
use remps_proto::mps::server::{Configuration, Request};

/// A signal for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerSignal {
    /// SIGINT, with which the vendor forces a server to end.
    Interrupt,
    /// SIGKILL.
    Kill,
}

/// A line of `ps` of which the kernel still has to tell the namespace and the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PsRow(pub ClientRow);

/// Something to be done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// A line for `control.log`.
    Log(String),
    /// Look at the GPUs; answered by exactly one `GpusSeen`.
    LookAtGpus,
    /// Look at the GPUs' memory; answered by exactly one `MemorySeen` that was asked for.
    LookAtMemory,
    /// Change compute modes where they still are what they are to be changed from; answered by exactly one
    /// `ModesChanged`.
    ChangeModes(Vec<ModeChange>),
    /// Let the holder keep this of the GPUs' compute modes, in place of what it has; nothing is nothing.
    HoldModes(Vec<ManagedMode>),
    /// End a process that uses a GPU outside MPS.
    EndStranger {
        /// Which.
        process: ProcessKey,
        /// Whether with SIGKILL, and not with SIGTERM.
        force: bool,
    },
    /// Make the socket of a namespace; answered by exactly one `EntranceOpened`.
    OpenEntrance(Entrance),
    /// Take the socket of a namespace away.
    CloseEntrance(Entrance),
    /// Make the socket of a joined server in its thin daemon's directory, unless it is there; answered by exactly one
    /// `JoinBound`.
    BindJoined { join: JoinId, entrance: Entrance },
    /// A thin daemon has joined.
    AcceptJoin {
        join: JoinId,
        /// As which server.
        name: String,
    },
    /// A thin daemon is to know what its server's clients may have now.
    TellJoin { join: JoinId, defaults: Defaults },
    /// A thin daemon may not join.
    RefuseJoin {
        join: JoinId,
        /// Why.
        reason: String,
    },
    /// A thin daemon is to end.
    EndJoin {
        join: JoinId,
        /// Why.
        reason: String,
    },
    /// End a session with success.
    EndSession { session: SessionId },
    /// Keep these named servers and defaults, and no others, on disk; answered by exactly one `ServersKept`.
    KeepServers { number: u64, servers: Vec<SavedNamed>, defaults: KeptDefaults },
    /// Start a server process; answered by `ServerSpawned` or `SpawnFailed`.
    SpawnServer {
        /// Its epoch.
        server: ServerEpoch,
        /// The user it runs as.
        uid: Uid,
        /// The group to take when the user database has no entry.
        gid: u32,
        /// Whether it serves all users.
        multi_user: bool,
        /// The GPUs or MIG instances that it may use, with commas between them; `None` is what the daemon may.
        gpu: Option<String>,
    },
    /// Take a connection as this server's control connection and send it its configuration.
    AdoptLink {
        server: ServerEpoch,
        /// The connection on which it said hello.
        connection: ConnectionId,
        /// What it is told.
        configuration: Configuration,
    },
    /// Send a request that is answered by exactly one `Replied`.
    Ask {
        server: ServerEpoch,
        /// Names the answer.
        id: RequestId,
        /// What to ask.
        request: Request,
    },
    /// Send a request that has no answer.
    Tell {
        server: ServerEpoch,
        /// What to tell.
        request: Request,
    },
    /// Hand a waiting client to a server.
    Dispatch { server: ServerEpoch, connection: ConnectionId },
    /// Give a client its end of the connection with the server that has greeted it.
    HandOver { connection: ConnectionId },
    /// Take a client back from a server that was told of it, before it has its end: finish the handshake in its place,
    /// and let it wait.
    Recall { connection: ConnectionId },
    /// Report `ProcessGone` when this client's process ends.
    WatchProcess {
        pid: Pid,
        /// A connection of it, from which the kernel can name the process without a race.
        connection: Option<ConnectionId>,
    },
    /// Close a connection.
    Close {
        /// Which.
        connection: ConnectionId,
    },
    /// Send a signal to a server's process.
    Signal { server: ServerEpoch, signal: ServerSignal },
    /// The whole answer to a session's command; the session may send the next one.
    Answer { session: SessionId, lines: Vec<String> },
    /// The answer to a command that fails without one.
    AnswerFailure {
        /// Whose command.
        session: SessionId,
        /// Why.
        reason: Vec<String>,
    },
    /// The answer to a question of the third interface that the core has put together.
    AnswerRows {
        session: SessionId,
        /// The names of the columns.
        columns: &'static [&'static str],
        rows: Vec<Vec<String>>,
        format: Format,
    },
    /// The answer to `ps`.
    AnswerPs { session: SessionId, rows: Vec<PsRow> },
    /// The answer to one of ReMPS's own commands, from what is known.
    Report {
        session: SessionId,
        peer: Peer,
        /// For what.
        report: Report,
    },
    /// List the machine's devices; answered by `DevicesListed`.
    ListDevices {
        /// Which session asks.
        session: SessionId,
    },
    /// Take no more commands: sessions that have one under way are answered, others are closed.
    CloseSessions,
    /// Something that must survive the daemon has changed.
    Save,
    /// Something for the journal, the metrics and those who follow events.
    Record(Box<JournalEvent>),
    /// Tell whoever looks after the machine and its pods of a verdict.
    Announce(Box<Announcement>),
    /// End a client's process: SIGTERM, or SIGKILL with `force`.
    EndProcess {
        /// Which.
        process: ProcessKey,
        /// Whether it had its chance.
        force: bool,
    },
    /// Find out which GPUs a client's address spaces have; answered by `SpacesFound`, or not at all.
    FindGpus { process: ProcessKey },
    /// Find out what a server costs on the GPU; answered by `ServerMeasured`.
    MeasureServer {
        /// Which.
        server: ServerEpoch,
        pid: Pid,
    },
    /// Note that a dead client's copies are kept, so that a successor goes on with it.
    NoteFuneral {
        process: ProcessKey,
        /// Until when; `None` is as long as others are on its server.
        until: Option<Duration>,
        /// Whether its work counts as endless.
        endless: bool,
    },
    /// Tell everything that has come by now, what this server has said above all; then `CaughtUp`, once.
    CatchUp { server: ServerEpoch },
    /// Tell a process that its spare copy of the driver has no place any more.
    SpareVoid {
        process: ProcessKey,
        /// The grant's token.
        token: u64,
    },
    /// Close the copies of a dead client's UVM descriptors.
    ReleaseCopies { process: ProcessKey },
    /// End the daemon.
    Exit {
        /// With this status, also for the sessions that wait for `quit`.
        status: u8,
    },
}

/// The daemon's own end.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Quit {
    /// Sessions whose `quit` is answered at the end.
    pub(super) sessions: Vec<SessionId>,
    /// When servers are forced.
    pub(super) force_at: Option<Duration>,
    /// The worst status of a server so far.
    pub(super) status: u8,
    /// Whether the daemon was told to exit.
    pub(super) is_over: bool,
}

/// What every decision is made with: the operator's policy, the time of the input that is being handled, whether the
/// daemon itself ends, and what is to be done so far.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) policy: Policy,
    /// Since the daemon's start.
    pub(super) now: Duration,
    /// The daemon's own end, once it has begun.
    pub(super) quit: Option<Quit>,
    effects: Vec<Effect>,
}

impl Turn {
    pub(super) fn new(policy: Policy) -> Self {
        Self { policy, now: Duration::ZERO, quit: None, effects: Vec::new() }
    }

    /// Has something done after all that was asked for before.
    pub(super) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Something that must survive the daemon has changed.
    pub(super) fn save(&mut self) {
        self.push(Effect::Save);
    }

    pub(super) fn record(&mut self, event: JournalEvent) {
        self.push(Effect::Record(Box::new(event)));
    }

    pub(super) fn log(&mut self, line: impl Into<String>) {
        self.push(Effect::Log(line.into()));
    }

    /// All that is to be done.
    pub(super) fn take(&mut self) -> Vec<Effect> {
        core::mem::take(&mut self.effects)
    }
}
