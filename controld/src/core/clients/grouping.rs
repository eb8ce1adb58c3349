//! Which domain a newcomer belongs to: that of its user and of what the operator groups by; the next part of it where
//! that is full, and for a repeat offender one of its own.

use super::Clients;
use super::client::{Client, Process, Stage};
use crate::core::evidence::ProcessKey;
use crate::core::identity::Identity;
use crate::core::ids::{DomainId, EntranceId, Pid, Uid};
use crate::core::policy::cgroup_unit;
use crate::core::servers::domain::{DomainKey, Group};
use crate::core::servers::quarantine::Offender;
use crate::core::servers::server::Server;
use crate::core::{Core, Grouping, Peer};
use std::collections::BTreeSet;

impl Clients {
    /// A client's program, as far as it is known.
    pub(in crate::core) fn program_of(&self, pid: Pid) -> String {
        self.process(pid).map_or_else(String::new, |process| process.identity.program.clone())
    }
}

impl Core {
    /// The domain of a client that has just come.
    ///
    /// Who has come to a namespace belongs there and nowhere else, however others are grouped; a repeat offender is set
    /// apart within it, and keeps its limits and devices.
    pub(in crate::core) fn domain_of_client(
        &mut self,
        peer: Peer,
        identity: &Identity,
        entrance: Option<EntranceId>,
    ) -> DomainId {
        let named = self.servers.named();
        let entrance = entrance.and_then(|id| named.find(id)).map(|(entrance, _)| entrance);
        let entrance = entrance.or_else(|| named.of_user(peer.uid));
        let offender = Offender::of(peer.uid, identity);
        let quarantine =
            self.clients.offenders.is_quarantined(self.turn.now, &offender).then(|| self.quarantine_number(&offender));
        let group = if quarantine.is_some() {
            self.servers.quarantine_group(offender)
        } else {
            match self.turn.policy.grouping().by {
                _ if entrance.is_some() => Group::All,
                Grouping::Uid => Group::All,
                Grouping::Cgroup => Group::Cgroup(cgroup_unit(&identity.cgroup).to_owned()),
                Grouping::Label => identity.label.clone().map_or(Group::All, Group::Label),
                Grouping::Client => Group::Process(ProcessKey { pid: peer.pid, start_time: identity.start_time }),
            }
        };
        let own = self.turn.policy.for_domain(peer.uid, identity.label.as_deref(), &identity.cgroup).clone();
        let gpu = identity.visible.as_deref().filter(|_| self.turn.policy.grouping().by_gpu);
        let gpu = gpu.filter(|_| entrance.is_none()).and_then(|names| self.gpus.known().only_visible(names));
        let given = entrance.as_ref().and_then(|entrance| self.servers.named().visible_devices(&entrance.server));
        let founder = Some(peer.uid).filter(|_| entrance.is_none());
        let uid = self.servers.server_user(&self.turn.policy, peer.uid);
        let mut key = DomainKey { uid, group, gpu: given.or(gpu), part: 0, entrance };
        while let Some(id) = self.servers.domain_by(&key) {
            // Where nobody can say which connections of those without a pid are one process's, they are all together and
            // fill no part: a process must not have some on one server and some on another.
            let Some(limit) = own.group.max_clients.filter(|_| peer.pid != 0) else {
                return id;
            };
            let clients = self.processes_of_domain(id);
            if clients.contains(&peer.pid) || clients.len() < limit {
                return id;
            }
            key.part += 1;
        }
        let id = self.servers.intern(&self.turn.policy, key, own, peer.gid, founder);
        self.servers.set_quarantine(id, quarantine);
        id
    }

    /// Why a namespace does not let somebody in: it is gone since he came, or is not for his user.
    pub(in crate::core) fn not_let_in(&self, peer: Peer, entrance: Option<EntranceId>) -> Option<String> {
        let Some((entrance, server)) = self.servers.named().find(entrance?) else {
            return Some("its namespace is gone".to_owned());
        };
        let owner = server.uid.filter(|uid| *uid != peer.uid)?;
        Some(format!("server {} is for user {owner} only", entrance.server))
    }

    /// The client processes of a domain, on a sound server or waiting. Those that a fault has cost their server don't
    /// count.
    fn processes_of_domain(&self, domain: DomainId) -> BTreeSet<Pid> {
        let is_sound = |server: &Server| server.domain == domain && server.tainted().is_none();
        let is_served = |(_, process): &(Pid, &Process)| self.servers.get(process.server).is_some_and(is_sound);
        let served = self.clients.processes().filter(is_served).map(|(pid, _)| pid);
        let waits = |client: &&Client| {
            let is_counted = client.spare.is_none() && client.peer.pid != 0;
            client.domain == domain && client.stage == Stage::Waiting && is_counted
        };
        served.chain(self.clients.iter().filter(waits).map(|client| client.peer.pid)).collect()
    }

    /// The user of a client's process.
    pub(crate) fn process_user(&self, pid: Pid) -> Option<Uid> {
        self.clients.process(pid).map(|process| process.uid)
    }

    /// The client processes that have a server.
    pub(crate) fn client_processes(&self) -> Vec<ProcessKey> {
        self.clients.processes().map(|(pid, process)| process.key(pid)).collect()
    }
}
