//! Clients: where each is in its life, its spare copy of the driver, its channels.

use super::{RecoveryFacts, RefusalFacts, maybe_seconds};
use crate::core::{End, Gpu, Pid, ProcessKey, SuspectIdentity, Uid};
use core::time::Duration;
use serde::Serialize;

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
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
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
    /// Threads that it has in the process, as the program has counted; 0 where it has not.
    pub threads: u32,
    /// Bytes of the host's memory that it takes, as the program has counted; 0 where it has not.
    pub host_bytes: u64,
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
