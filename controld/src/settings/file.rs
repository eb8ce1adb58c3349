//! What `mps-control.toml` can hold, with the defaults.
//!
//! The keys are the fields, in the order of the man page `mps-control.toml(5)`; those that decide something are the
//! fields of the core's policies. Times are in seconds, fractions allowed. Every field has a value, so that the
//! defaults, written out, name every key there is; where a feature can be off, 0 or an empty text says so.

use super::replay::{self, DomainReplays, Replay};
use crate::core::vault::VaultPolicy;
use crate::core::{Policy, forms};
use crate::sys::proc;
use remps_proto::shim::ProgramDefaults;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The configuration file. Keys that are not known are refused when its text is read: a struct with flattened ones
/// cannot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ConfigFile {
    /// What the core goes by: most keys without a table, `[domains]`, `[faults]`, `[funerals]`, `[gpu]`, and the tables
    /// `[[domain]]`, resolved.
    #[serde(flatten)]
    pub policy: Policy,
    /// How long the holder process waits for a new daemon after this one was killed.
    #[serde(with = "forms::seconds")]
    pub successor_wait: Duration,
    /// Where named servers are kept over the daemon's end: [`AUTOMATIC`](super::AUTOMATIC), or a directory; empty is
    /// nowhere.
    pub state_directory: String,
    /// Largest size of each log file, in MiB; 0 is without limit.
    pub log_size_mib: u64,
    /// What programs get that have the preload library and say nothing.
    pub replay: Replay,
    /// What those of the tables `[[domain]]` get in its place.
    #[serde(skip)]
    pub domain_replays: DomainReplays,
    /// Whose GPU memory is kept, and how much of it.
    pub vault: VaultPolicy,
    /// Who tells of faults.
    pub witness: Witness,
    /// What others can see of the daemon.
    pub observe: Observe,
    /// What a cluster is told that the machine is a node of.
    pub cluster: Cluster,
    /// Who may join.
    pub join: Join,
}

/// The table `[witness]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Witness {
    /// Whether to listen to the UVM tools queue of each client.
    pub uvm: bool,
    /// Where Xid lines are read; empty is nowhere.
    pub kmsg: String,
    /// Where the patched module's notices are read; empty is nowhere.
    pub notices: String,
    /// Where the driver tells which GPUs there are; empty is nowhere.
    pub gpus: String,
    /// Where clients of other PID namespaces are found, which have no pid here; empty is nowhere.
    pub proc: String,
}

/// The table `[observe]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Observe {
    /// Whether to write the event journal.
    pub journal: bool,
    /// Largest size of the journal, in MiB.
    pub journal_size_mib: u64,
    /// Where metrics and health are served: `unix:/path` or `127.0.0.1:port`; empty is nowhere.
    pub listen: String,
    /// Whether metrics have series for single processes.
    pub per_process_metrics: bool,
}

/// The table `[cluster]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Cluster {
    /// The machine's name there; empty is `NODE_NAME`, and else the name of the host.
    pub node: String,
    /// Whether to make Kubernetes Events on the pods of a verdict.
    pub events: bool,
    /// Where the API server is, as `https://host:port`; empty is where Kubernetes' variables say, and else the name that
    /// it has in every cluster.
    pub api_server: String,
    /// The file with the service account's token.
    pub token: String,
    /// The file with the cluster's certificates.
    pub ca: String,
    /// NVSentinel's socket: `unix:/path`; empty is nobody.
    pub nvsentinel: String,
    /// Where the kubelet keeps the links to containers' logs, which have their names; empty is nowhere.
    pub containers: String,
}

/// The table `[join]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Join {
    /// Whether thin daemons may join that are in other containers than this one.
    pub containers: bool,
}

impl ConfigFile {
    /// What is told to programs that have the preload library and say nothing; `None` where they get what they would have
    /// had without this. Users' numbers and cgroups' paths are of the namespaces that are given.
    /// Those of a claim have in place of `[replay]` what its daemon says.
    pub(crate) fn told_to_programs(
        &self,
        claim: Option<ProgramDefaults>,
        users: Option<u64>,
        cgroups: Option<u64>,
    ) -> Option<String> {
        replay::told(self, claim, users, cgroups).map(|file| file.to_string())
    }
}

impl Default for ConfigFile {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            successor_wait: Duration::from_secs(600),
            state_directory: super::AUTOMATIC.into(),
            log_size_mib: 64,
            replay: Replay::default(),
            domain_replays: DomainReplays::default(),
            vault: VaultPolicy::default(),
            witness: Witness::default(),
            observe: Observe::default(),
            cluster: Cluster::default(),
            join: Join::default(),
        }
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            node: String::new(),
            events: false,
            api_server: String::new(),
            token: "/var/run/secrets/kubernetes.io/serviceaccount/token".into(),
            ca: "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt".into(),
            nvsentinel: String::new(),
            containers: "/var/log/containers".into(),
        }
    }
}

impl Default for Witness {
    fn default() -> Self {
        let (kmsg, notices) = ("/dev/kmsg".into(), "/dev/nvidia-uvm-mps".into());
        Self { uvm: true, kmsg, notices, gpus: proc::NVIDIA.into(), proc: String::new() }
    }
}

impl Default for Observe {
    fn default() -> Self {
        Self { journal: true, journal_size_mib: 16, listen: String::new(), per_process_metrics: false }
    }
}
