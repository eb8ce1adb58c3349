//! The picture of the daemon that reports and gauges are made from.
//!
//! It is filled by whoever knows: the core its domains, servers and clients, the driver whether the holder is there and
//! what witnesses and held descriptors there are. What nobody knows is `None` or absent, and never 0.

#[cfg(test)]
mod blank;
mod named;
mod recovery;
mod snapshot;

use crate::core::events::EarlyEnd;
use crate::core::{ComputeMode, End, Entrance, Gpu, Pid, ProcessKey, ServerEpoch, SuspectIdentity, Uid};
use core::time::Duration;
pub(crate) use named::{NamedFacts, NamespaceFacts};
pub(crate) use recovery::{RecoveryFacts, RefusalFacts};
use serde::Serialize;
pub(crate) use snapshot::Snapshot;

/// Something that the daemon does without, or does otherwise than it should, and serves clients all the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Degradation {
    /// What it is about: `server`, `personality`, `metrics`, `journal` or `log`.
    pub part: &'static str,
    /// What is wrong.
    pub text: String,
}

/// The daemon itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct DaemonFacts {
    pub pid: Pid,
    pub version: &'static str,
    /// The release whose answers it gives, as `580`.
    pub personality: String,
    /// The user who runs it.
    pub owner: Uid,
    /// Since its start.
    #[serde(serialize_with = "seconds", rename = "uptime_s")]
    pub uptime: Duration,
    /// Whether it is about to end.
    pub quitting: bool,
    /// What else keeps it from admitting a client now: no holder, no server program.
    pub obstacles: Vec<String>,
    /// What it does without; `status` has it in a list of its own.
    #[serde(skip)]
    pub degraded: Vec<Degradation>,
    /// Version of the driver, where it is known.
    pub driver: Option<String>,
    /// Why no client's GPU memory is known, when that was asked and could not be had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_unknown: Option<String>,
    /// What is kept of programs that have the preload library and say nothing, and how they are recovered, where that is
    /// not nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayFacts>,
    /// Where clients connect; `status` says it nowhere, since who asks has found it.
    #[serde(skip)]
    pub pipe_directory: String,
}

/// What programs get that have the preload library and say nothing: the words of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct ReplayFacts {
    pub keep: &'static str,
    pub recover: &'static str,
    /// How many tables `[[domain]]` have values of their own.
    pub tables: usize,
}

/// What a domain does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DomainPhase {
    /// It has no server and needs none.
    Idle,
    /// Its server is starting.
    Starting,
    /// Its server takes clients.
    Serving,
    /// Its server is tainted by a fault, and no other is ready yet.
    Recovering,
    /// Its servers kept failing, and none is started for a while.
    Broken,
}

/// A fault domain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct DomainFacts {
    /// Its name, as verdicts and events have it.
    pub name: String,
    /// The user whose server it is.
    pub uid: Uid,
    /// The namespace of a named server that its clients have come to.
    #[serde(skip)]
    pub entrance: Option<Entrance>,
    /// What it does.
    pub phase: DomainPhase,
    /// Its active server.
    pub server: Option<Pid>,
    /// The server that stands by.
    pub standby: Option<Pid>,
    /// Client processes on its servers.
    pub clients: usize,
    /// How many clients it may have; `None` is without limit.
    pub max_clients: Option<usize>,
    /// Clients that wait.
    pub waiting: usize,
    /// Whether it is a repeat offender's own.
    pub quarantined: bool,
    /// Who is in quarantine there, as `PROGRAM of user UID in CGROUP`.
    pub quarantine_of: Option<String>,
    /// When a server is started again, from now.
    #[serde(serialize_with = "maybe_seconds", rename = "retry_s")]
    pub retry: Option<Duration>,
}

/// What a server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ServerPhase {
    /// It has not said that it serves.
    Initializing,
    /// It takes clients.
    Active,
    /// It is ready and waits for the active one's end.
    Standby,
    /// It ends when its clients have left.
    Draining,
    /// A fault has tainted it; nobody is sent to it.
    Fault,
    /// It has been told to end, or has said that it does.
    Ending,
}

impl ServerPhase {
    /// All of them.
    pub(crate) const ALL: [Self; 6] =
        [Self::Initializing, Self::Active, Self::Standby, Self::Draining, Self::Fault, Self::Ending];

    /// The word for it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Initializing => "initializing",
            Self::Active => "active",
            Self::Standby => "standby",
            Self::Draining => "draining",
            Self::Fault => "fault",
            Self::Ending => "ending",
        }
    }
}

/// A server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ServerFacts {
    pub epoch: ServerEpoch,
    /// Its pid; `None` until it is spawned.
    pub pid: Option<Pid>,
    /// The user it runs as.
    pub uid: Uid,
    pub domain: String,
    /// The namespace of a named server whose clients it serves.
    #[serde(skip)]
    pub entrance: Option<Entrance>,
    /// What it does.
    pub phase: ServerPhase,
    /// Client processes on it.
    pub clients: usize,
    /// Since it said that it serves; `None` until then.
    #[serde(serialize_with = "maybe_seconds", rename = "ready_s")]
    pub ready: Option<Duration>,
    /// What it costs on the GPU without clients, in bytes, where that is known.
    pub memory_bytes: Option<u64>,
    /// The share of its GPU's threads that each of its clients may have, in percent; `None` when nobody knows, since an
    /// earlier daemon that did not note it has set it.
    pub threads: Option<f64>,
    /// The GPUs that it has, where that is known and the machine has several.
    pub gpus: Vec<Gpu>,
    /// Those of them that a fault has spoilt; none is all that it has, when a fault has tainted it.
    pub spoilt_gpus: Vec<Gpu>,
    /// Why it was killed after an exception before its clients had left, as long as its process is there.
    pub early_end: Option<EarlyEnd>,
}

/// Where a client is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ClientPhase {
    /// It waits for a server.
    Waiting,
    /// It does its handshake with a server.
    Handshake,
    /// It has contexts on a sound server.
    Live,
    /// Its server is tainted: its contexts are lost.
    Lost,
    /// Its process is gone.
    Gone,
}

impl ClientPhase {
    /// The word for it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Handshake => "handshake",
            Self::Live => "live",
            Self::Lost => "lost",
            Self::Gone => "gone",
        }
    }
}

/// A spare copy of the driver in a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct SpareFacts {
    /// The server that it stands on.
    pub server: Option<Pid>,
    /// Whether the program could go on with it, as it says; else it is being made.
    pub ready: bool,
    /// Whether it has no place any more, and its server still has it as a client.
    pub leaves: bool,
    /// Its connections that the server has accepted; the first is its process's own, the others are contexts.
    pub connections: usize,
    /// How many things that the program has it lacks, as the program says.
    pub behind: u64,
}

impl SpareFacts {
    /// The word for how far it is.
    pub(crate) const fn word(&self) -> &'static str {
        if self.leaves {
            "leaving"
        } else if self.ready {
            "ready"
        } else {
            "making"
        }
    }
}

/// A client's process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ClientFacts {
    /// Which; in place of a pid it has a number above all pids where it has none here, and 0 where nobody tells it apart.
    pub process: ProcessKey,
    /// Its pid in the `/proc` of another namespace, where it has none here and was found there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen_as: Option<Pid>,
    pub uid: Uid,
    pub domain: String,
    /// Where it is in its life.
    pub phase: ClientPhase,
    /// Its server; `None` while it waits.
    pub server: Option<Pid>,
    /// The CUDA contexts that it has made on its server; of who came to an earlier daemon those since this one began.
    pub contexts: usize,
    /// How long its connection that came first has waited, if any does.
    #[serde(serialize_with = "maybe_seconds", rename = "waited_s")]
    pub waited: Option<Duration>,
    /// What is known of it from `/proc`.
    pub identity: SuspectIdentity,
    /// `MPS_DOMAIN` of its environment.
    pub label: Option<String>,
    /// Whether its fault events are followed.
    pub tracked: bool,
    /// Copies of its UVM descriptors that are held.
    pub descriptors: usize,
    /// The verdicts that name it as culprit, oldest first.
    pub verdicts: Vec<u64>,
    pub end: Option<End>,
    /// The GPUs that it can have contexts on; `None` when nobody knows, which is all of its server's.
    pub gpus: Option<Vec<Gpu>>,
    /// The share of the GPU's threads that it may have, in percent: its server's, or less where its own environment says
    /// so; `None` when nobody knows.
    pub threads: Option<f64>,
    /// Its GPU memory in bytes by the driver's account; `None` when it was not asked, or does not know.
    pub memory_bytes: Option<u64>,
    /// The second copy of the driver that stands by in it, if one does or is to.
    pub spare: Option<SpareFacts>,
    /// The last recovery that it has told of.
    pub recovery: Option<RecoveryFacts>,
    /// The last refusal of one, if it has told of none since.
    pub unrecovered: Option<RefusalFacts>,
    /// The inode number of its PID namespace, where that was asked for and can be told.
    #[serde(skip)]
    pub pid_namespace: Option<u64>,
}

/// One channel or context of a client.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ChannelFacts {
    /// The hardware channel; `None` when only the context is known.
    pub channel: Option<u32>,
    /// The GPU, as `GPU-…`, where it is known.
    pub gpu: Option<String>,
    /// Which of its process's contexts it is, from 1 in the order of their making; `None` for a hardware channel, and for
    /// the process's own connection, which is before all contexts.
    pub context: Option<u64>,
    pub process: ProcessKey,
    pub uid: Uid,
    pub server: Option<Pid>,
    /// Who says so: `connection`, or the name of a witness.
    pub source: &'static str,
}

/// Copies of a dead client's descriptors that are kept.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct FuneralFacts {
    pub process: ProcessKey,
    pub uid: Uid,
    pub domain: String,
    pub descriptors: usize,
    /// GPU memory that they pin, in bytes, where that is known.
    pub pinned_bytes: Option<u64>,
    /// Since the client's end.
    #[serde(serialize_with = "seconds", rename = "held_s")]
    pub held: Duration,
    /// Whether its work seems to be endless.
    pub endless: bool,
}

/// GPU memory that is kept for a program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RegionFacts {
    /// Whose it is, or was.
    pub process: ProcessKey,
    pub uid: Uid,
    pub cgroup: String,
    /// Names it within its process.
    pub key: u64,
    /// Under which another process may adopt it.
    pub name: String,
    pub gpu: String,
    pub bytes: u64,
    /// Where its owner has it mapped; 0 when it has not.
    pub address: u64,
    /// Whether the GPU's device file is held with it.
    pub device_held: bool,
    /// How much longer it is kept; `None` while its owner lives.
    #[serde(serialize_with = "maybe_seconds", rename = "left_s")]
    pub left: Option<Duration>,
}

/// A source of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct WitnessFacts {
    /// Its name, as verdicts have it.
    pub name: &'static str,
    /// Why it can't be heard at all; `None` when it can.
    pub missing: Option<String>,
    /// Processes that it follows, for a witness that follows each.
    pub attached: Option<usize>,
    /// Processes that it should follow and can't.
    pub refused: usize,
}

/// A GPU that servers see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct GpuFacts {
    /// The number that `nvidia-smi` gives it.
    pub index: usize,
    /// `GPU-…`.
    pub uuid: String,
    /// Its address on the bus, where that is known, as `0000:3b:00`.
    #[serde(skip)]
    pub bus: Option<String>,
    /// Its compute mode, where it has one.
    pub compute_mode: Option<ComputeMode>,
    /// The one that it gets back when the daemon ends, where that is another.
    pub restored: Option<ComputeMode>,
}

/// A process with contexts outside MPS.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct StrangerFacts {
    pub process: ProcessKey,
    pub uid: Uid,
    /// Its name, as the kernel has it.
    pub command: String,
    /// Whether it seems to be a server of another daemon.
    pub server: bool,
    pub gpus: Vec<String>,
    /// GPU instance and compute instance, on a GPU that is divided.
    pub instance: Option<(u32, u32)>,
    /// Its memory there, in bytes, where that is known.
    pub bytes: Option<u64>,
    /// Since it was found.
    #[serde(serialize_with = "seconds", rename = "since_s")]
    pub since: Duration,
}

/// Seconds with their fraction.
fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

fn maybe_seconds<S: serde::Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => seconds(time, serializer),
        None => serializer.serialize_none(),
    }
}
