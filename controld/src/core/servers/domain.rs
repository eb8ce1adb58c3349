//! Fault domains: the clients that share a server, and so one fate.
//!
//! Which domain a client belongs to follows from its user and from what the operator groups by; a domain that is full
//! has another part beside it, and a repeat offender has one of its own. Domains are named by a [`DomainId`] and
//! found by a [`DomainKey`].

use super::Servers;
use super::backoff::Backoff;
use super::quarantine::{self, Offender};
use super::standby::SpareUse;
use crate::core::evidence::ProcessKey;
use crate::core::ids::{DomainId, Pid, Uid};
use crate::core::peer::Entrance;
use crate::core::policy::DomainPolicy;
use crate::core::{Policy, Sharing};
use core::fmt;
use core::time::Duration;
use remps_proto::admin::module::DEFAULT_NAMESPACE;
use std::collections::{BTreeMap, VecDeque};

/// What the clients of a domain have in common besides their user.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core) enum Group {
    /// Nothing.
    All,
    /// A pod, container, job or unit, by its cgroup.
    Cgroup(String),
    /// `MPS_DOMAIN`.
    Label(String),
    /// They are one process.
    Process(ProcessKey),
    /// They are the clients of a repeat offender.
    Quarantine(Offender),
}

/// What a domain is found by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core) struct DomainKey {
    /// The user that its servers run as.
    pub(in crate::core) uid: Uid,
    pub(in crate::core) group: Group,
    /// The one GPU or MIG instance that they see, as `CUDA_VISIBLE_DEVICES` names it.
    pub(in crate::core) gpu: Option<String>,
    /// Which of several, where one would have too many clients.
    pub(in crate::core) part: u32,
    /// The namespace of a named server that they have come to.
    pub(in crate::core) entrance: Option<Entrance>,
}

impl DomainKey {
    /// Which it is of those that have everything else in common: the end of a name.
    fn ending(&self) -> String {
        let gpu = self.gpu.as_ref().map(|gpu| format!(", {gpu}")).unwrap_or_default();
        let part = if self.part > 0 { format!(", part {}", self.part + 1) } else { String::new() };
        gpu + &part
    }
}

impl fmt::Display for DomainKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}", self.uid)?;
        if let Some(Entrance { server, namespace, .. }) = &self.entrance {
            write!(f, ", server {server}")?;
            if namespace != DEFAULT_NAMESPACE {
                write!(f, ", namespace {namespace}")?;
            }
        }
        match &self.group {
            Group::All => {}
            Group::Cgroup(path) => write!(f, ", cgroup {path}")?,
            Group::Label(label) => write!(f, ", label {label}")?,
            Group::Process(process) => write!(f, ", process {}", process.pid)?,
            Group::Quarantine(offender) => write!(f, ", quarantine of {offender}")?,
        }
        f.write_str(&self.ending())
    }
}

/// A swap that is not complete: the domain has no sound server yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::core) struct Swap {
    pub(in crate::core) incident: u64,
    pub(in crate::core) from: Pid,
    pub(in crate::core) since: Duration,
}

/// The clients that share one server.
#[derive(Debug)]
pub(in crate::core) struct Domain {
    pub(in crate::core) key: DomainKey,
    /// The number of the quarantine that it is.
    pub(in crate::core) quarantine: Option<u64>,
    pub(in crate::core) policy: DomainPolicy,
    /// The group of its first client, for a server whose user the user database does not know.
    pub(in crate::core) gid: u32,
    /// Whose clients it was made for, by whose number of servers its own is bounded; `None` after a change of daemons
    /// where servers serve all users.
    pub(super) founder: Option<Uid>,
    /// Whether it needs a server and its founder has as many as a user may have.
    pub(super) is_held_up: bool,
    /// `start_server` asked for a server, or a fault did, whether or not a client waits.
    pub(in crate::core) requested: bool,
    pub(in crate::core) starts: Backoff,
    pub(in crate::core) retry_at: Option<Duration>,
    /// The same for the server that stands by, whose failures hold up nobody.
    pub(in crate::core) standby_retry_at: Option<Duration>,
    /// When servers failed lately, for the breaker.
    pub(in crate::core) failures: VecDeque<Duration>,
    pub(in crate::core) breaker_open: bool,
    pub(in crate::core) swap: Option<Swap>,
    /// Whether its programs have spare copies of the driver.
    pub(super) spares: SpareUse,
}

impl Domain {
    fn new(policy: &Policy, key: DomainKey, own: DomainPolicy, gid: u32, founder: Option<Uid>) -> Self {
        Self {
            key,
            quarantine: None,
            policy: own,
            gid,
            founder,
            is_held_up: false,
            requested: false,
            starts: Backoff::new(policy.constants.first_retry, policy.constants.largest_retry),
            retry_at: None,
            standby_retry_at: None,
            failures: VecDeque::new(),
            breaker_open: false,
            swap: None,
            spares: SpareUse::None,
        }
    }

    /// Its name, as the operator reads it. It stays while the domain lives, with a successor of the daemon too.
    pub(in crate::core) fn name(&self) -> String {
        self.quarantine.map_or_else(|| self.key.to_string(), |number| quarantine::name(number) + &self.key.ending())
    }
}

/// All domains, by number and by what they are found by.
#[derive(Debug, Default)]
pub(in crate::core) struct Domains {
    by_id: BTreeMap<DomainId, Domain>,
    by_key: BTreeMap<DomainKey, DomainId>,
    last: u64,
}

impl Domains {
    pub(in crate::core) fn get(&self, id: DomainId) -> Option<&Domain> {
        self.by_id.get(&id)
    }

    pub(in crate::core) fn get_mut(&mut self, id: DomainId) -> Option<&mut Domain> {
        self.by_id.get_mut(&id)
    }

    pub(in crate::core) fn find(&self, key: &DomainKey) -> Option<DomainId> {
        self.by_key.get(key).copied()
    }

    pub(in crate::core) fn iter(&self) -> impl Iterator<Item = (DomainId, &Domain)> {
        self.by_id.iter().map(|(id, domain)| (*id, domain))
    }

    pub(in crate::core) fn iter_mut(&mut self) -> impl Iterator<Item = (DomainId, &mut Domain)> {
        self.by_id.iter_mut().map(|(id, domain)| (*id, domain))
    }

    /// The domain of this key, made if it is new.
    pub(in crate::core) fn intern(
        &mut self,
        policy: &Policy,
        key: DomainKey,
        own: DomainPolicy,
        gid: u32,
        founder: Option<Uid>,
    ) -> DomainId {
        if let Some(id) = self.find(&key) {
            return id;
        }
        self.last += 1;
        let id = DomainId(self.last);
        self.by_key.insert(key.clone(), id);
        self.by_id.insert(id, Domain::new(policy, key, own, gid, founder));
        id
    }

    pub(in crate::core) fn retain(&mut self, mut keep: impl FnMut(DomainId, &Domain) -> bool) {
        let by_key = &mut self.by_key;
        self.by_id.retain(|id, domain| {
            let stays = keep(*id, domain);
            if !stays {
                by_key.remove(&domain.key);
            }
            stays
        });
    }
}

impl Servers {
    /// The user whose servers serve this user's clients.
    pub(in crate::core) fn server_user(&self, policy: &Policy, uid: Uid) -> Uid {
        match policy.sharing {
            Sharing::PerUser | Sharing::Single => uid,
            Sharing::MultiUser => policy.owner,
        }
    }

    /// The domain of a user's clients that have nothing else in common, as `start_server -uid` means it.
    pub(in crate::core) fn domain_of_user(&mut self, policy: &Policy, uid: Uid, gid: u32) -> DomainId {
        let entrance = self.named.of_user(uid);
        self.domain_of_entrance(policy, uid, gid, entrance)
    }

    /// The same of those who have come to a namespace.
    pub(in crate::core) fn domain_of_entrance(
        &mut self,
        policy: &Policy,
        uid: Uid,
        gid: u32,
        entrance: Option<Entrance>,
    ) -> DomainId {
        let gpu = entrance.as_ref().and_then(|entrance| self.named.visible_devices(&entrance.server));
        let founder = Some(uid).filter(|_| entrance.is_none());
        let key = DomainKey { uid: self.server_user(policy, uid), group: Group::All, gpu, part: 0, entrance };
        let own = policy.for_domain(uid, None, "").clone();
        self.domains.intern(policy, key, own, gid, founder)
    }

    /// A domain's name, as the operator reads it.
    pub(in crate::core) fn domain_name(&self, domain: DomainId) -> String {
        self.domains.get(domain).map_or_else(String::new, Domain::name)
    }

    /// A domain's user.
    pub(in crate::core) fn domain_user(&self, policy: &Policy, domain: DomainId) -> Uid {
        self.domains.get(domain).map_or(policy.owner, |domain| domain.key.uid)
    }
}
