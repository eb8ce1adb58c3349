//! What may differ from one fault domain to another.

use super::{Grouping, forms};
use crate::core::ids::Uid;
use core::time::Duration;
use remps_proto::who::Match;
use serde::{Deserialize, Serialize};

/// What is done with the process whose fault it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CulpritAction {
    /// It is named, and that is all. It gets its own error from the driver, as it does with the vendor's daemon.
    Report,
    /// It is ended: terminated at its server first, then SIGTERM, then SIGKILL after `kill_timeout`. For culprits
    /// that a verdict is [`Certain`](crate::core::Confidence::Certain) of, never for others.
    Terminate,
}

/// What is done with the other clients of a server after a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum VictimAction {
    /// They have until `victims_timeout` to leave; then they are listed and their server ends under them.
    Wait,
    /// The same, and those that are still there are ended as a culprit is: for programs that hang after a fault.
    Terminate,
}

/// Whether a server that an exception has spoilt is ended before its clients have left it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EndTainted {
    /// Where each of them has a spare copy that it can go on with.
    #[default]
    WhenSpared,
    /// No: they have `victims_timeout`.
    Never,
    /// Whatever they have.
    Always,
}

/// What follows a fault: the table `[faults]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FaultPolicy {
    /// What is done with the culprit.
    pub culprit: CulpritAction,
    /// What is done with victims that linger.
    pub victims: VictimAction,
    /// After how many faults within `quarantine_window` an offender gets a domain of its own; 0 is never.
    pub quarantine_after: u32,
    /// For how long a fault counts against its offender.
    #[serde(with = "forms::seconds")]
    pub quarantine_window: Duration,
    /// After how many faults within `quarantine_window` an offender's clients are refused; 0 is never.
    pub refuse_after: u32,
    /// For how long they are refused, from the last of these faults on.
    #[serde(with = "forms::seconds")]
    pub refuse_for: Duration,
    /// How long a tainted server may take to drain before it is ended.
    #[serde(with = "forms::seconds")]
    pub victims_timeout: Duration,
}

impl Default for FaultPolicy {
    fn default() -> Self {
        Self {
            culprit: CulpritAction::Report,
            victims: VictimAction::Wait,
            quarantine_after: 3,
            quarantine_window: Duration::from_secs(600),
            refuse_after: 0,
            refuse_for: Duration::from_secs(60),
            victims_timeout: Duration::from_secs(30),
        }
    }
}

/// What is done for clients that die in the middle of their work, which would kill the others of their server:
/// the table `[funerals]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FuneralPolicy {
    /// Whether copies of clients' UVM descriptors are held at all.
    pub hold: bool,
    /// How long the copies of a client that died suddenly are kept. Others that are on its server then may share it
    /// with endless work, and the domain gets another server.
    #[serde(with = "forms::seconds")]
    pub hold_timeout: Duration,
    /// How much longer the copies are kept for those others; zero is not at all, `None` is until they have left.
    #[serde(with = "forms::seconds_inf_for_ever")]
    pub endless_hold: Option<Duration>,
    /// Most GPU memory that the dead of all users hold, in bytes; `None` is without limit.
    #[serde(with = "forms::gib_0_unlimited")]
    pub hold_memory: Option<u64>,
    /// Most that those of one user hold.
    #[serde(with = "forms::gib_0_unlimited")]
    pub hold_memory_per_user: Option<u64>,
}

/// What the dead may hold, all together and of one user, in bytes: as many of one as newcomers join on a server.
const HELD: [u64; 2] = [32 << 30, 16 << 30];

impl Default for FuneralPolicy {
    fn default() -> Self {
        Self {
            hold: true,
            hold_timeout: Duration::from_secs(10),
            endless_hold: Some(Duration::from_secs(300)),
            hold_memory: Some(HELD[0]),
            hold_memory_per_user: Some(HELD[1]),
        }
    }
}

/// Who is a domain, and what it may have: the table `[domains]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GroupPolicy {
    /// What clients must have in common to be a domain; the same for all.
    pub by: Grouping,
    /// Whether clients that see one GPU or MIG instance only have a server of their own for it; the same for all.
    pub by_gpu: bool,
    /// How many clients a domain may have; one more gets another domain of the same kind. `None` is without limit.
    #[serde(with = "forms::count_0_unlimited")]
    pub max_clients: Option<usize>,
    /// By how many clients what a domain may have, of memory and threads, is shared: each has an equal part, and one more
    /// is refused. `None` is by nobody: each may have it all.
    #[serde(with = "forms::count_0_unlimited")]
    pub shared_by: Option<usize>,
    /// Whether a second server, initialised and idle, stands beside the active one.
    pub standby: bool,
    /// Whether programs may have a spare copy of the driver on that server, which is started for them where `standby` is
    /// false.
    pub spares: bool,
}

impl Default for GroupPolicy {
    fn default() -> Self {
        Self { by: Grouping::Uid, by_gpu: false, max_clients: None, shared_by: None, standby: false, spares: true }
    }
}

/// All that may differ from one domain to another.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DomainPolicy {
    /// Who it is, and what it may have.
    #[serde(rename = "domains")]
    pub group: GroupPolicy,
    /// What follows a fault.
    pub faults: FaultPolicy,
}

/// The default policy and its overrides.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DomainPolicies {
    /// For every domain that no override fits.
    #[serde(flatten)]
    pub default: DomainPolicy,
    /// The tables `[[domain]]`, complete, in the order of the file.
    #[serde(skip)]
    pub overrides: Vec<(Match, DomainPolicy)>,
}

impl DomainPolicies {
    /// The policy of the first override that fits, else the default.
    pub(crate) fn find(&self, uid: Uid, label: Option<&str>, cgroup: &str) -> &DomainPolicy {
        let fitting = self.overrides.iter().find(|(wanted, _)| wanted.fits(uid, label, cgroup));
        fitting.map_or(&self.default, |(_, policy)| policy)
    }
}
