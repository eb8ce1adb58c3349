//! Fault domains and their servers, and what each of them does.

use super::maybe_seconds;
use crate::core::events::EarlyEnd;
use crate::core::{Entrance, Gpu, Pid, ServerEpoch, Uid};
use core::time::Duration;
use serde::Serialize;

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
