//! What `mps-control.toml` can hold, with the defaults.
//!
//! The keys are the fields, in the order of the man page `mps-control.toml(5)`. Times are in seconds, fractions
//! allowed. Every field has a value, so that the defaults, written out, name every key there is; where a feature can be
//! off, 0 or an empty text says so.

use crate::core::vault::{Reach, VaultPolicy};
use crate::core::{ComputeModeAction, DomainPolicy, GpuPolicy, StrangerAction, VictimAction};
use crate::core::{CulpritAction, DomainMatch, FaultPolicy, FuneralPolicy, Grouping, Policy, Sharing};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The configuration file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConfigFile {
    /// `per-user` (default) or `single`, the vendor's rule. `multi-user` is the option `-M`.
    pub sharing: Sharing,
    /// How long SIGTERM lets clients finish.
    pub drain_timeout: f64,
    /// How long a server may take to end before it is killed.
    pub kill_timeout: f64,
    /// How long a server may take to become ready.
    pub start_timeout: f64,
    /// How long a server without clients stays beside others; 0 is for ever.
    pub idle_timeout: f64,
    /// How many servers one user's clients may have; 0 is without limit.
    pub max_servers_per_user: usize,
    /// How long the holder process waits for a new daemon after this one was killed.
    pub successor_wait: f64,
    /// Largest size of each log file, in MiB; 0 is without limit.
    pub log_size_mib: u64,
    /// Which clients share a server.
    pub domains: Domains,
    /// What follows a fault.
    pub faults: Faults,
    /// What is done for clients that die in the middle of their work.
    pub funerals: Funerals,
    /// Whose GPU memory is kept, and how much of it.
    pub vault: VaultTable,
    /// What is done about the GPUs' compute modes.
    pub gpu: GpuTable,
    /// Who tells of faults.
    pub witness: Witness,
    /// What others can see of the daemon.
    pub observe: Observe,
    /// The tables `[[domain]]`, resolved: each is complete.
    #[serde(skip)]
    pub overrides: Vec<Override>,
}

/// The table `[domains]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Domains {
    /// What clients must have in common to share a server.
    pub by: Grouping,
    /// Whether clients that see one GPU only have a server of their own for it.
    pub by_gpu: bool,
    /// How many clients a domain may have; 0 is without limit.
    pub max_clients: usize,
    /// Whether a second server stands beside the active one.
    pub standby: bool,
}

/// The table `[faults]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Faults {
    /// What is done with the culprit.
    pub culprit: CulpritAction,
    /// What is done with victims that linger.
    pub victims: VictimAction,
    /// How long the victims of a fault may take to leave.
    pub victims_timeout: f64,
    /// After how many faults an offender gets a domain of its own; 0 is never.
    pub quarantine_after: u32,
    /// For how long a fault counts.
    pub quarantine_window: f64,
    /// After how many faults an offender's clients are refused; 0 is never.
    pub refuse_after: u32,
    /// For how long they are.
    pub refuse_for: f64,
}

/// The table `[funerals]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Funerals {
    /// Whether copies of clients' UVM descriptors are held.
    pub hold: bool,
    /// How long the copies of a client that died suddenly are kept.
    pub hold_timeout: f64,
    /// How much longer they are kept while others are on its server; `inf` is until these have left.
    pub endless_hold: f64,
    /// Most GPU memory that the dead of all users hold, in GiB; 0 is without limit.
    pub hold_memory: u64,
    /// Most that those of one user hold, in GiB; 0 is without limit.
    pub hold_memory_per_user: u64,
}

/// The table `[vault]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VaultTable {
    /// Whether programs can give their GPU memory's descriptors into the daemon's keeping.
    pub enabled: bool,
    /// Most memory that is kept for one user, in GiB; 0 is without limit.
    pub gib_per_user: u64,
    /// Most memory of all users, in GiB; 0 is without limit.
    pub gib: u64,
    /// How long a named region is kept after its owner's end.
    pub ttl: f64,
    /// How far a name reaches.
    pub scope: Reach,
}

/// The table `[gpu]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GpuTable {
    /// What is done about GPUs in an exclusive compute mode.
    pub compute_mode: ComputeModeAction,
    /// What is done about processes that use a GPU outside MPS.
    pub strangers: StrangerAction,
    /// How often GPUs are looked at whose compute mode is managed.
    pub interval: f64,
    /// The machine's folder of records of changed compute modes; empty is none.
    pub records: String,
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

/// One table `[[domain]]`, with the values of the other tables for the keys that it does not name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Override {
    /// Which clients are meant.
    pub matching: DomainMatch,
    /// `[domains]` as these clients have it. What concerns the grouping itself is the same for all.
    pub domains: Domains,
    /// `[faults]` as these clients have it.
    pub faults: Faults,
}

impl Default for ConfigFile {
    fn default() -> Self {
        let policy = Policy::default();
        Self {
            sharing: policy.sharing,
            drain_timeout: policy.drain_timeout.as_secs_f64(),
            kill_timeout: policy.kill_timeout.as_secs_f64(),
            start_timeout: policy.start_timeout.as_secs_f64(),
            idle_timeout: policy.idle_timeout.unwrap_or_default().as_secs_f64(),
            max_servers_per_user: policy.max_servers_per_user.unwrap_or(0),
            successor_wait: 600.0,
            log_size_mib: 64,
            domains: Domains::default(),
            faults: Faults::default(),
            funerals: Funerals::default(),
            vault: VaultTable::default(),
            gpu: GpuTable::default(),
            witness: Witness::default(),
            observe: Observe::default(),
            overrides: Vec::new(),
        }
    }
}

impl Default for Domains {
    fn default() -> Self {
        let policy = Policy::default();
        Self {
            by: policy.grouping,
            by_gpu: policy.by_gpu,
            max_clients: policy.domains.default.max_clients.unwrap_or(0),
            standby: policy.domains.default.standby,
        }
    }
}

impl Default for Faults {
    fn default() -> Self {
        let policy = FaultPolicy::default();
        Self {
            culprit: policy.culprit,
            victims: policy.victims,
            victims_timeout: policy.victims_timeout.as_secs_f64(),
            quarantine_after: policy.quarantine_after,
            quarantine_window: policy.quarantine_window.as_secs_f64(),
            refuse_after: policy.refuse_after,
            refuse_for: policy.refuse_for.as_secs_f64(),
        }
    }
}

impl Default for Funerals {
    fn default() -> Self {
        let policy = FuneralPolicy::default();
        Self {
            hold: policy.hold,
            hold_timeout: policy.hold_timeout.as_secs_f64(),
            endless_hold: policy.endless_hold.map_or(f64::INFINITY, |hold| hold.as_secs_f64()),
            hold_memory: policy.memory.map_or(0, |bytes| bytes / GIB),
            hold_memory_per_user: policy.memory_per_user.map_or(0, |bytes| bytes / GIB),
        }
    }
}

/// Bytes in a GiB.
const GIB: u64 = 1 << 30;

impl Default for VaultTable {
    fn default() -> Self {
        let policy = VaultPolicy::default();
        let gib = |bytes: u64| if bytes == u64::MAX { 0 } else { bytes / GIB };
        Self {
            enabled: policy.enabled,
            gib_per_user: gib(policy.user_bytes),
            gib: gib(policy.bytes),
            ttl: policy.ttl.as_secs_f64(),
            scope: policy.scope,
        }
    }
}

impl Default for GpuTable {
    fn default() -> Self {
        let interval = GpuPolicy::default().interval.as_secs_f64();
        Self {
            compute_mode: ComputeModeAction::Leave,
            strangers: StrangerAction::Tell,
            interval,
            records: "/run/nvidia-cuda-mps-modes".into(),
        }
    }
}

impl Default for Witness {
    fn default() -> Self {
        Self {
            uvm: true,
            kmsg: "/dev/kmsg".into(),
            notices: "/dev/nvidia-uvm-mps".into(),
            gpus: "/proc/driver/nvidia".into(),
        }
    }
}

impl Default for Observe {
    fn default() -> Self {
        Self { journal: true, journal_size_mib: 16, listen: String::new(), per_process_metrics: false }
    }
}

impl Override {
    /// The policy of the clients meant.
    #[must_use]
    pub(crate) fn policy(&self) -> DomainPolicy {
        domain_policy(&self.domains, &self.faults)
    }
}

impl ConfigFile {
    /// The policy of the domains that no override is for.
    #[must_use]
    pub(crate) fn domain_policy(&self) -> DomainPolicy {
        domain_policy(&self.domains, &self.faults)
    }

    /// What is done for clients that die in the middle of their work.
    #[must_use]
    pub(crate) fn funeral_policy(&self) -> FuneralPolicy {
        let Funerals { hold, hold_timeout, endless_hold, hold_memory, hold_memory_per_user } = self.funerals;
        let bytes = |gib: u64| (gib != 0).then(|| gib.saturating_mul(GIB));
        FuneralPolicy {
            hold,
            memory: bytes(hold_memory),
            memory_per_user: bytes(hold_memory_per_user),
            hold_timeout: seconds(hold_timeout),
            endless_hold: (endless_hold != f64::INFINITY).then(|| seconds(endless_hold)),
        }
    }

    /// What is done about compute modes and who passes MPS by.
    #[must_use]
    pub(crate) fn gpu_policy(&self) -> GpuPolicy {
        let GpuTable { compute_mode, strangers, interval, records: _ } = self.gpu;
        GpuPolicy {
            manage: compute_mode == ComputeModeAction::Manage,
            end_strangers: strangers == StrangerAction::End,
            interval: seconds(interval),
        }
    }

    /// The machine's folder of records of changed compute modes, if there is to be one.
    #[must_use]
    pub(crate) fn mode_records(&self) -> Option<PathBuf> {
        (!self.gpu.records.is_empty()).then(|| PathBuf::from(&self.gpu.records))
    }

    /// Whose GPU memory is kept, and how much of it.
    #[must_use]
    pub(crate) fn vault_policy(&self) -> VaultPolicy {
        let VaultTable { enabled, gib_per_user, gib, ttl, scope } = self.vault;
        let bytes = |gib: u64| if gib == 0 { u64::MAX } else { gib.saturating_mul(GIB) };
        VaultPolicy {
            enabled,
            user_bytes: bytes(gib_per_user),
            bytes: bytes(gib),
            ttl: seconds(ttl),
            scope,
            ..VaultPolicy::default()
        }
    }
}

fn domain_policy(domains: &Domains, faults: &Faults) -> DomainPolicy {
    DomainPolicy {
        max_clients: Some(domains.max_clients).filter(|count| *count != 0),
        standby: domains.standby,
        faults: FaultPolicy {
            culprit: faults.culprit,
            victims: faults.victims,
            quarantine_after: faults.quarantine_after,
            quarantine_window: seconds(faults.quarantine_window),
            refuse_after: faults.refuse_after,
            refuse_for: seconds(faults.refuse_for),
            victims_timeout: seconds(faults.victims_timeout),
        },
    }
}

/// A time of the file. Those that are none have been refused when it was read; a file made by hand in a program may
/// hold one, and gets the longest time.
pub(super) fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or(Duration::MAX)
}
