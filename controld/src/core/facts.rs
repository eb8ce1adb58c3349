//! The picture of the daemon that reports and gauges are made from.
//!
//! It is filled by whoever knows: the core its domains, servers and clients, the driver whether the holder is there and
//! what witnesses and held descriptors there are. What nobody knows is `None` or absent, and never 0.

#[cfg(test)]
mod blank;
mod clients;
mod named;
mod recovery;
mod rights;
mod servers;
mod snapshot;

use crate::core::{ComputeMode, Pid, ProcessKey, Uid};
pub(crate) use clients::{ChannelFacts, ClientFacts, ClientPhase, SpareFacts};
use core::time::Duration;
pub(crate) use named::{NamedFacts, NamespaceFacts};
pub(crate) use recovery::{RecoveryFacts, RefusalFacts};
pub(crate) use rights::{CAP_KILL, CAP_SYS_PTRACE, CAP_SYSLOG, Lacking, RightsFacts};
use serde::Serialize;
pub(crate) use servers::{DomainFacts, DomainPhase, ServerFacts, ServerPhase};
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
    /// What it may do, and what it doesn't for want of a right.
    pub rights: RightsFacts,
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
