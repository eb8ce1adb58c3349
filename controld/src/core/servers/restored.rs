//! Servers and domains as an earlier daemon has left them.

use super::Servers;
use super::domain::{Domain, DomainKey, Group};
use super::health::{Health, Taint};
use super::named::Named;
use super::quarantine;
use super::server::{Drain, Leaving, Role, Server, ServerState};
use crate::core::Sharing;
use crate::core::ids::{DomainId, EntranceId, ServerEpoch};
use crate::core::peer::Entrance;
use crate::core::policy::Policy;
use crate::core::saved::{Saved, SavedGroup, SavedServer, read, written};
use core::time::Duration;

impl Servers {
    /// Gives servers to come epochs from this one on.
    pub(in crate::core) fn begin_at(&mut self, epoch: u64) {
        self.next_epoch = self.next_epoch.max(epoch);
    }

    /// Goes on with the named servers of an earlier daemon.
    pub(in crate::core) fn restore_named(&mut self, saved: &Saved) {
        self.named = Named::restored(saved);
    }

    /// Goes on with a server of an earlier daemon, of a domain that may be new here.
    pub(in crate::core) fn restore(&mut self, now: Duration, policy: &Policy, old: &SavedServer) -> DomainId {
        let epoch = ServerEpoch(old.epoch);
        self.begin_at(old.epoch.saturating_add(1));
        let group = old.group.as_ref().map_or(Group::All, SavedGroup::group);
        let label = if let Group::Label(label) = &group { Some(label.as_str()) } else { None };
        let cgroup = if let Group::Cgroup(path) = &group { path.as_str() } else { "" };
        let own = policy.for_domain(old.domain, label, cgroup).clone();
        let part = old.group.as_ref().map_or(0, |group| group.part);
        let gpu = old.group.as_ref().map(|group| group.gpu.clone()).filter(|gpu| !gpu.is_empty());
        let entrance = old.group.as_ref().and_then(SavedGroup::entrance);
        let key = DomainKey { uid: old.domain, group, gpu, part, entrance };
        let patience = own.faults.victims_timeout;
        let is_users = policy.sharing != Sharing::MultiUser && key.entrance.is_none();
        let founder = Some(old.domain).filter(|_| is_users);
        let domain = self.intern(policy, key, own, old.gid, founder);
        let state = if old.ending {
            ServerState::Ending { kill_at: Some(now + policy.kill_timeout), leaving: Leaving::Drained }
        } else if old.draining {
            ServerState::Draining(Drain::starting(now, old.tainted.then_some(now + patience), false))
        } else {
            ServerState::Serving
        };
        let server = Server {
            role: if old.standby { Role::Standby } else { Role::Active },
            health: if old.tainted { Health::Tainted(Taint::new(now, old.incident)) } else { Health::Sound },
            pid: Some(old.pid),
            ready_at: Some(now),
            census_due: true,
            has_served: !old.standby,
            // Those of an earlier daemon.
            has_hidden_clients: true,
            has_unknown_clients: !old.tells_apart,
            threads: old.threads,
            has_own_limits: old.limited,
            ..Server::new(epoch, domain, old.uid, now, state)
        };
        self.all.insert(epoch, server);
        domain
    }
}

impl SavedGroup {
    pub(in crate::core) fn of(domain: &Domain) -> Option<Self> {
        let key = &domain.key;
        let (kind, name) = match &key.group {
            Group::All => (0, String::new()),
            Group::Cgroup(path) => (1, path.clone()),
            Group::Label(label) => (2, label.clone()),
            Group::Process(process) => (3, written(*process)),
            Group::Quarantine(offender) => (2, quarantine::label(offender)),
        };
        let gpu = key.gpu.clone().unwrap_or_default();
        let quarantine = domain.quarantine.unwrap_or_default();
        let is_special = kind != 0 || key.part != 0 || !gpu.is_empty() || key.entrance.is_some();
        let Entrance { id, server, namespace } = key.entrance.clone().unwrap_or_else(|| Entrance {
            id: EntranceId(0),
            server: String::new(),
            namespace: String::new(),
        });
        let entrance = id.0;
        let group = Self { kind, name, part: key.part, gpu, quarantine, entrance, server, namespace };
        is_special.then_some(group)
    }

    fn entrance(&self) -> Option<Entrance> {
        let (server, namespace) = (self.server.clone(), self.namespace.clone());
        (self.entrance != 0).then_some(Entrance { id: EntranceId(self.entrance), server, namespace })
    }

    fn group(&self) -> Group {
        match self.kind {
            1 => Group::Cgroup(self.name.clone()),
            2 => Group::Label(self.name.clone()),
            3 => Group::Process(read(&self.name)),
            _ => Group::All,
        }
    }
}
