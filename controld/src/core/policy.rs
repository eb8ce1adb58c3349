//! What the operator can choose, as far as the core needs it.
//!
//! | part | holds |
//! |---|---|
//! | this file | the policy of the whole daemon |
//! | `grouping` | which clients are one fault domain: by user, cgroup, label or client |
//! | `gpus` | compute modes, and who passes MPS by |
//! | `domain` | what may differ from domain to domain: limits, faults |
//! | `constants` | what is no setting |
//! | `forms` | how times, sizes and counts stand in the file |
//!
//! The fields are the keys of `mps-control.toml`, which `settings` reads, and their defaults are those of the file. Its
//! man page says what each value means to an operator.

mod constants;
mod domain;
pub(crate) mod forms;
mod gpus;
mod grouping;
#[cfg(test)]
mod tests;

pub(crate) use constants::Constants;
pub(crate) use domain::{
    CulpritAction, DomainPolicies, DomainPolicy, EndTainted, FaultPolicy, FuneralPolicy, GroupPolicy, VictimAction,
};
pub(crate) use gpus::GpuPolicy;
#[cfg(test)]
pub(crate) use gpus::{ComputeModeAction, StrangerAction};
pub(crate) use grouping::Grouping;
pub(crate) use grouping::cgroup_unit;

use super::ids::Uid;
use core::time::Duration;
use remps_proto::admin::personality::Personality;
pub(crate) use remps_proto::who::Match as DomainMatch;

/// Longer than the last of eight that recover at once took on a GPU, and short for those whom it does not help.
pub(crate) const DEFAULT_BURIAL_HOLD: Duration = Duration::from_secs(2);

/// Who shares a server with whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Sharing {
    /// One server for each user, side by side.
    PerUser,
    /// One server at a time, as the vendor's daemon: another user waits until the clients of the first have left.
    Single,
    /// One server, run by the daemon's own user, for all users (`-multiuser-server`).
    MultiUser,
}

/// The operator's choices and what the daemon knows of itself.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Policy {
    /// Who shares a server with whom.
    pub sharing: Sharing,
    /// How long SIGTERM lets clients finish.
    #[serde(with = "forms::seconds")]
    pub drain_timeout: Duration,
    /// How long a server may take to end after SIGINT before it gets SIGKILL.
    #[serde(with = "forms::seconds")]
    pub kill_timeout: Duration,
    /// How long a server may take from its start to its hello.
    #[serde(with = "forms::seconds")]
    pub start_timeout: Duration,
    /// How long a server without clients stays when there are others; `None` is for ever.
    #[serde(with = "forms::seconds_0_for_ever")]
    pub idle_timeout: Option<Duration>,
    /// How many servers may be started for one user's clients, whatever is a domain; `None` is without limit. One that
    /// stands by is started only where there is room for it, and one in the place of a tainted server always; but there
    /// are never more than twice as many, those included that a fault has spoilt.
    #[serde(with = "forms::count_0_unlimited")]
    pub max_servers_per_user: Option<usize>,
    /// What may differ from domain to domain.
    #[serde(flatten)]
    pub domains: DomainPolicies,
    /// What is done for clients that die in the middle of their work.
    pub funerals: FuneralPolicy,
    /// What is done about compute modes and who passes MPS by.
    #[serde(rename = "gpu")]
    pub gpus: GpuPolicy,
    /// Whether servers that exceptions have spoilt are ended early; a key of `[replay]`.
    #[serde(skip)]
    pub end_tainted: EndTainted,
    /// How long nothing of a server that a fault has spoilt is buried on account of clients that recover; zero is not at
    /// all. A key of `[replay]`.
    #[serde(skip)]
    pub burial_hold: Duration,
    /// What is no setting.
    #[serde(skip)]
    pub constants: Constants,
    /// The user who runs the daemon.
    #[serde(skip)]
    pub owner: Uid,
    /// The daemon's group, for servers of its own user.
    #[serde(skip)]
    pub owner_gid: u32,
    /// Which release's answers to give.
    #[serde(skip)]
    pub personality: Personality,
}

impl Policy {
    /// The policy for clients of this user, with this `MPS_DOMAIN` and this cgroup: that of the first override that
    /// fits, else the default.
    pub(crate) fn for_domain(&self, uid: Uid, label: Option<&str>, cgroup: &str) -> &DomainPolicy {
        self.domains.find(uid, label, cgroup)
    }

    /// Which clients are one fault domain, and whether by GPU: the same for all.
    pub(crate) fn grouping(&self) -> &GroupPolicy {
        &self.domains.default.group
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            sharing: Sharing::PerUser,
            owner: 0,
            owner_gid: 0,
            personality: Personality::V580,
            drain_timeout: Duration::from_secs(20),
            kill_timeout: Duration::from_secs(5),
            start_timeout: Duration::from_secs(60),
            idle_timeout: Some(Duration::from_secs(60)),
            max_servers_per_user: Some(64),
            domains: DomainPolicies::default(),
            funerals: FuneralPolicy::default(),
            gpus: GpuPolicy::default(),
            end_tainted: EndTainted::default(),
            burial_hold: DEFAULT_BURIAL_HOLD,
            constants: Constants::default(),
        }
    }
}
