//! The picture of the core that reports and gauges are made from ([`Snapshot`]): `status`, metrics and readiness all come
//! from it, so they can't disagree about what is now.

use super::clients::client::{Client, Process};
use super::evidence::{End, ProcessKey};
#[cfg(test)]
pub(crate) use super::facts::FuneralFacts;
pub(crate) use super::facts::{CAP_KILL, CAP_SYS_PTRACE, CAP_SYSLOG, Lacking, RightsFacts};
pub(crate) use super::facts::{
    ChannelFacts, ClientFacts, ClientPhase, DaemonFacts, Degradation, DomainFacts, DomainPhase, GpuFacts, NamedFacts,
    NamespaceFacts, RecoveryFacts, RefusalFacts, RegionFacts, ReplayFacts, ServerFacts, ServerPhase, Snapshot,
    SpareFacts, WitnessFacts,
};
use super::identity::{Identity, Threads};
use super::ids::{DomainId, Pid, ServerEpoch, Uid};
use super::servers::domain::Domain;
use super::servers::server::{Role, Server, ServerState};
use super::verdict::SuspectIdentity;
use super::{Channel, ChannelFacts as Facts, Core, Entrance};
use crate::core::servers::Clientele as _;
use core::time::Duration;
use remps_proto::admin::limits::{Percentage, Priority};
use remps_proto::admin::module::Limits;
use std::collections::{BTreeMap, BTreeSet};

/// How channels are called whose source is the daemon itself.
const BY_CONNECTION: &str = "connection";
/// And those that the patched module tells of, as in verdicts.
const BY_NOTICE: &str = "notice";

impl Core {
    /// What there is at `now`. The driver knows what the daemon and its witnesses are like.
    pub(crate) fn picture(&self, now: Duration, daemon: DaemonFacts, witnesses: Vec<WitnessFacts>) -> Snapshot {
        // Counted once, since there may be thousands of each.
        let mut on_server = BTreeMap::new();
        for (_, process) in self.clients.processes() {
            *on_server.entry(process.server).or_default() += 1;
        }
        Snapshot {
            daemon,
            domains: self
                .servers
                .domains()
                .map(|(id, domain)| self.domain_facts(now, id, domain, &on_server))
                .collect(),
            servers: self.servers.iter().map(|server| self.server_facts(now, server, &on_server)).collect(),
            named: self.named_facts(),
            clients: self.client_facts(now),
            channels: self.channel_facts(),
            regions: Vec::new(),
            funerals: self.faults.funeral_facts(now),
            witnesses,
            gpus: self.gpus.gpu_facts(),
            suspicions: self.suspicions(),
            strangers: self.gpus.stranger_facts(now),
        }
    }

    fn named_facts(&self) -> Vec<NamedFacts> {
        let namespace = |entrance: Entrance| {
            let Limits { memory, percentage, priority } = self.limits_in_force(&entrance);
            NamespaceFacts {
                name: entrance.namespace,
                memory_bytes: memory.map(|limit| limit.0),
                thread_percentage: percentage.map_or(100.0, Percentage::get),
                priority: priority.map_or(0, Priority::get),
            }
        };
        let open = self.servers.named().iter().filter(|(_, server)| server.is_open());
        open.map(|(name, server)| {
            let of_it = self.servers.named().entrances().filter(|entrance| entrance.server == name);
            let is_open = |entrance: &Entrance| self.servers.named().find(entrance.id).is_some();
            NamedFacts {
                name: name.to_owned(),
                uid: server.uid,
                devices: server.devices.iter().map(|device| device.uuid.clone()).collect(),
                namespaces: of_it.filter(is_open).map(namespace).collect(),
            }
        })
        .collect()
    }

    fn domain_facts(
        &self,
        now: Duration,
        id: DomainId,
        domain: &Domain,
        on_server: &BTreeMap<ServerEpoch, usize>,
    ) -> DomainFacts {
        let active = self.servers.active(id);
        let standby =
            self.servers.iter().find(|server| server.domain == id && server.role == Role::Standby && server.is_up());
        let of_domain = self.servers.iter().filter(|server| server.domain == id);
        let phase = match active {
            _ if domain.breaker_open => DomainPhase::Broken,
            _ if domain.swap.is_some() => DomainPhase::Recovering,
            Some(server) if server.is_starting() => DomainPhase::Starting,
            Some(_) => DomainPhase::Serving,
            None if self.clients.wants_server(&self.servers, id) => DomainPhase::Starting,
            None => DomainPhase::Idle,
        };
        DomainFacts {
            name: domain.name(),
            uid: domain.key.uid,
            entrance: domain.key.entrance.clone(),
            phase,
            server: active.and_then(|server| server.pid),
            standby: standby.and_then(|server| server.pid),
            clients: of_domain.filter_map(|server| on_server.get(&server.epoch)).sum(),
            max_clients: domain.policy.group.max_clients,
            waiting: self.clients.queue(id).len(),
            quarantined: domain.quarantine.is_some(),
            quarantine_of: domain.offender(),
            retry: domain.retry_at.and_then(|at| at.checked_sub(now)).filter(|pause| !pause.is_zero()),
        }
    }

    fn server_facts(&self, now: Duration, server: &Server, on_server: &BTreeMap<ServerEpoch, usize>) -> ServerFacts {
        let phase = match &server.state {
            ServerState::Ending { .. } => ServerPhase::Ending,
            _ if server.is_lost() => ServerPhase::Fault,
            ServerState::Draining(_) => ServerPhase::Draining,
            // It keeps its clients and gets no others, since a dead client's work may never end there.
            ServerState::Serving if server.tainted().is_some() => ServerPhase::Draining,
            ServerState::Starting { .. } => ServerPhase::Initializing,
            ServerState::Serving if server.role == Role::Standby => ServerPhase::Standby,
            ServerState::Serving => ServerPhase::Active,
        };
        ServerFacts {
            epoch: server.epoch,
            pid: server.pid,
            uid: server.uid,
            domain: self.servers.domain_name(server.domain),
            entrance: self.servers.domain(server.domain).and_then(|domain| domain.key.entrance.clone()),
            phase,
            clients: on_server.get(&server.epoch).copied().unwrap_or_default(),
            ready: server.ready_at.map(|at| now.saturating_sub(at)),
            memory_bytes: server.memory_bytes,
            threads: server.threads,
            gpus: self.gpus.known().of_server(server.epoch).into_iter().collect(),
            early_end: server.early_end(),
            spoilt_gpus: self.faults.spoilt_gpus(server.epoch).cloned().collect(),
        }
    }

    /// The living by pid, then the dead that are remembered.
    fn client_facts(&self, now: Duration) -> Vec<ClientFacts> {
        let mut of_process: BTreeMap<Pid, Vec<&Client>> = BTreeMap::new();
        for client in self.clients.iter().filter(|client| client.spare.is_none()) {
            of_process.entry(client.peer.pid).or_default().push(client);
        }
        let mut all = Vec::new();
        for (pid, process) in self.clients.processes() {
            let connections = of_process.remove(&pid).unwrap_or_default();
            let accepted = self.accepted(pid);
            // The first connection is the process's own. Who came to an earlier daemon has those since that are known.
            let contexts = process.contexts_made().unwrap_or(accepted);
            let is_in_handshake = connections.iter().any(|client| client.stage.server().is_some());
            let phase = if process.is_hit(&self.servers) {
                ClientPhase::Lost
            } else if is_in_handshake && accepted == 0 {
                ClientPhase::Handshake
            } else {
                ClientPhase::Live
            };
            let waited = connections.iter().map(|client| now.saturating_sub(client.came_at)).max();
            let facts = self.process_facts(process.key(pid), process, phase, None);
            let gpus = self.gpus_of(pid, process).map(|gpus| gpus.into_iter().collect());
            let spare = self.spare_facts(process.key(pid));
            let last = self.clients.last_recovery(process.key(pid));
            let recovery = last.map(|(recovery, at)| {
                let (recovery, ago) = (recovery.clone(), now.saturating_sub(*at));
                RecoveryFacts { recovery, ago }
            });
            let refused = self.clients.last_refusal(process.key(pid));
            let unrecovered = refused.map(|(refusal, at)| {
                let (refusal, ago) = (refusal.clone(), now.saturating_sub(*at));
                RefusalFacts { refusal, ago }
            });
            all.push(ClientFacts { contexts, waited, gpus, spare, recovery, unrecovered, ..facts });
        }
        for connections in of_process.into_values() {
            let Some(client) = connections.iter().min_by_key(|client| client.came_at) else { continue };
            let domain = self.servers.domain_name(client.domain);
            let facts = facts(client.process(), client.peer.uid, domain, &client.identity, ClientPhase::Waiting);
            all.push(ClientFacts { waited: Some(now.saturating_sub(client.came_at)), ..facts });
        }
        let mut dead = BTreeSet::new();
        // Who was on several servers has died on each, on its own first.
        for death in self.faults.deaths().filter(|death| dead.insert(death.key)) {
            all.push(self.process_facts(death.key, &death.process, ClientPhase::Gone, Some(death.end)));
        }
        all
    }

    /// The share of threads that a process has on a server.
    fn threads_of(&self, server: Option<&Server>, identity: &Identity) -> Option<f64> {
        let own = identity.threads.map(Threads::percent);
        server.and_then(|server| server.threads).map(|most| own.map_or(most, |own| own.min(most)))
    }

    /// The spare copy of a process, also one that has no place any more.
    fn spare_facts(&self, process: ProcessKey) -> Option<SpareFacts> {
        let pid_of = |server: ServerEpoch| self.servers.get(server).and_then(|server| server.pid);
        let connections_on = |server: ServerEpoch| {
            self.clients.guests().get(server, process.pid).map_or(0, |guest| guest.process.connections)
        };
        let place = self.clients.spares().shown_of(process).map(|grant| SpareFacts {
            server: pid_of(grant.server),
            ready: grant.standing.is_ready,
            leaves: false,
            connections: connections_on(grant.server),
            behind: grant.standing.behind,
            threads: grant.standing.takes.threads,
            host_bytes: grant.standing.takes.host_bytes,
        });
        place.or_else(|| {
            let (server, _) = self.clients.guests().of(process).next()?;
            let connections = connections_on(server);
            Some(SpareFacts { server: pid_of(server), leaves: true, connections, ..SpareFacts::default() })
        })
    }

    fn process_facts(&self, key: ProcessKey, process: &Process, phase: ClientPhase, end: Option<End>) -> ClientFacts {
        let server = self.servers.get(process.server);
        // The domain of one whose server is gone, too, is known by its user alone.
        let domain =
            server.map_or_else(|| format!("user {}", process.uid), |server| self.servers.domain_name(server.domain));
        let facts = facts(key, process.uid, domain, &process.identity, phase);
        // What is held for the dead is told with their funerals.
        let descriptors = if end.is_none() { process.copies } else { 0 };
        let tracked = process.tracked && end.is_none();
        let threads = self.threads_of(server, &process.identity);
        ClientFacts { server: server.and_then(|server| server.pid), tracked, descriptors, threads, end, ..facts }
    }

    /// The contexts of a process that are known one by one.
    fn accepted(&self, pid: Pid) -> usize {
        self.clients.channels().channels_of(pid).filter(|channel| matches!(channel, Channel::Context(_))).count()
    }

    /// How many connections a process has made before those that are known one by one. Where nobody has counted, it came
    /// to an earlier daemon, and its own connection with it.
    fn before_accepted(&self, pid: Pid, process: &Process) -> u64 {
        let made = process.contexts_made().map(|_| process.connections.saturating_sub(self.accepted(pid)));
        made.map_or(1, |count| count as u64)
    }

    fn channel_facts(&self) -> Vec<ChannelFacts> {
        // How many connections of the process that the rows are of came before the row at hand; 0 is its own.
        let mut before: Option<(Pid, u64)> = None;
        let rows = self.clients.channels().rows(None).filter_map(|row| {
            let pid = row.process.pid;
            let process = self.clients.process(pid)?;
            let pid_of = |epoch: ServerEpoch| self.servers.get(epoch).and_then(|server| server.pid);
            let (server, source) = match row.facts {
                Facts::Context(epoch) => (pid_of(epoch), BY_CONNECTION),
                Facts::Hardware(_) => (pid_of(process.server), BY_NOTICE),
            };
            let (channel, gpu, context) = match row.channel {
                Channel::Context(_) => {
                    let of_earlier = before.filter(|(of, _)| *of == pid).map(|(_, number)| number);
                    let number = of_earlier.unwrap_or_else(|| self.before_accepted(pid, process));
                    before = Some((pid, number + 1));
                    (None, None, Some(number).filter(|number| *number > 0))
                }
                Channel::Hardware(hardware) => {
                    (Some(hardware.channel), Some(hardware.gpu).filter(|gpu| !gpu.is_empty()), None)
                }
            };
            let (process, uid) = (row.process, process.uid);
            Some(ChannelFacts { channel, gpu, context, process, uid, server, source })
        });
        rows.collect()
    }
}

/// What is known of every client.
fn facts(process: ProcessKey, uid: Uid, domain: String, identity: &Identity, phase: ClientPhase) -> ClientFacts {
    let (label, identity) = (identity.label.clone(), SuspectIdentity::of(identity));
    ClientFacts {
        process,
        seen_as: identity.seen_as,
        uid,
        domain,
        phase,
        server: None,
        contexts: 0,
        waited: None,
        identity,
        label,
        tracked: false,
        descriptors: 0,
        verdicts: Vec::new(),
        end: None,
        gpus: None,
        threads: None,
        memory_bytes: None,
        spare: None,
        recovery: None,
        unrecovered: None,
        pid_namespace: None,
    }
}
