//! A tainted server: one that a fault has spoilt, or in which the work of a dead client may still run, or that says
//! nothing, or gives newcomers no context.
//!
//! It never gets another client. It drains, its domain gets another one at once, and after a fault it is ended after
//! `victims_timeout`, unless it has clients that the fault has left alone ([`spared`](super::spared)). Who was on the way
//! to it and has no end of the connection yet is taken back.

use super::statement::Statement;
use crate::core::Core;
use crate::core::clients::client::Process;
use crate::core::events::JournalEvent;
use crate::core::ids::{Pid, ServerEpoch};
use crate::core::policy::VictimAction;
use crate::core::servers::Clientele as _;
use crate::core::servers::domain::Swap;
use crate::core::servers::server::Role;

/// Why a server gets no newcomers any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) enum Cause {
    /// A fault, in the incident of this number: its clients are lost.
    Fault(u64),
    /// The work of a client that died suddenly may still run there.
    DeadClient,
    /// It says nothing, and nothing else is known.
    Silence,
    /// It gives a newcomer no context.
    NoContexts,
}

impl Cause {
    /// As in [`Taint`](crate::core::servers::health::Taint).
    fn incident(self) -> u64 {
        match self {
            Self::Fault(incident) => incident,
            Self::DeadClient | Self::Silence | Self::NoContexts => 0,
        }
    }
}

impl Core {
    pub(super) fn confirmed_by_status(&mut self, epoch: ServerEpoch) {
        if self.servers.get(epoch).is_some() {
            let incident = self.testify(epoch, Statement::new("server-status", None, "FAULT".to_owned()));
            self.taint(epoch, Cause::Fault(incident));
            self.faults.admits_fault(epoch);
            self.faults.relapses(self.turn.now, epoch);
            self.has_its_time(epoch);
        }
    }

    /// A server in a fault is ended after `victims_timeout`, also when it has said otherwise before.
    fn has_its_time(&mut self, epoch: ServerEpoch) {
        let draining = self.servers.get(epoch).filter(|server| server.forced_at().is_none());
        let domain = draining.and_then(|server| self.servers.domain(server.domain));
        if let Some(patience) = domain.map(|domain| domain.policy.faults.victims_timeout) {
            self.servers.hurry(epoch, self.turn.now + patience);
        }
    }

    /// Nobody is sent to this server any more, and its domain gets another one.
    pub(in crate::core) fn taint(&mut self, epoch: ServerEpoch, cause: Cause) {
        let now = self.turn.now;
        let incident = cause.incident();
        let Some(server) = self.servers.get(epoch) else {
            return;
        };
        // One that only got no newcomers may meet a fault all the same.
        if server.tainted().is_some_and(|taint| taint.incident != 0 || incident == 0) {
            return;
        }
        let (domain, uid, pid, role) = (server.domain, server.uid, server.pid.unwrap_or_default(), server.role);
        self.servers.is_tainted(epoch, now, incident);
        let gpus = self.faults.incidents.get(&epoch).filter(|_| incident != 0);
        let gpus = gpus.map(|known| self.faults.with_unanswered(epoch, &known.gpus)).unwrap_or_default();
        self.spoil(epoch, &gpus);
        let clients = self.clients.hit_processes(epoch).len();
        let spared = self.clients.processes_of(epoch).len() - clients;
        let name = self.servers.domain_name(domain);
        let on = gpus.iter().cloned().collect();
        self.turn.record(JournalEvent::ServerTainted {
            epoch,
            server: pid,
            uid,
            domain: name,
            incident,
            clients,
            gpus: on,
            spared,
        });
        let patience =
            self.servers.domain(domain).map(|domain| domain.policy.faults.victims_timeout).unwrap_or_default();
        // Work of a dead client that never ends harms nobody as long as its descriptors are held.
        let force_at = (incident != 0).then_some(now + patience);
        self.turn.log(format!(
            "Server {pid} takes no new clients: {}",
            match cause {
                Cause::Fault(_) => format!("a fault on the GPU, incident {incident}, {clients} clients"),
                Cause::DeadClient => "the work of a client that died may still run there".to_owned(),
                Cause::Silence => "it does not answer".to_owned(),
                Cause::NoContexts => "a newcomer got no context there (CUDA error 401)".to_owned(),
            }
        ));
        if spared == 0 {
            self.servers.drain_after_fault(&mut self.turn, epoch, force_at);
        }
        if incident != 0 {
            self.hold_burial(epoch, incident);
            self.confirm_incident(epoch);
        }
        self.recall_all(epoch);
        if role == Role::Active && self.turn.quit.is_none() && self.servers.active(domain).is_none() {
            self.servers.needs_another(domain, Swap { incident, from: pid, since: now });
            self.servers.promote(&mut self.turn, domain);
        }
        self.turn.save();
    }

    /// A tainted server's time is over: those who linger are named, and ended if the operator wants that.
    pub(in crate::core) fn list_victims(&mut self, epoch: ServerEpoch) {
        let Some((taint, id)) = self.servers.get(epoch).and_then(|server| Some((server.tainted()?, server.domain)))
        else {
            return;
        };
        let victims: Vec<(Pid, Process)> = self.clients.hit_processes(epoch);
        if victims.is_empty() {
            return;
        }
        let pids: Vec<String> = victims.iter().map(|(pid, _)| pid.to_string()).collect();
        let server = self.servers.get(epoch).and_then(|server| server.pid).unwrap_or_default();
        let is_ended = if self.clients.has_spared(epoch) { "" } else { " and is ended" };
        self.turn.log(format!("Server {server} still has clients after a fault{is_ended}: {}", pids.join(" ")));
        let action = self.servers.domain(id).map_or(VictimAction::Wait, |domain| domain.policy.faults.victims);
        if action == VictimAction::Terminate {
            let domain = self.servers.domain_name(id);
            for (pid, process) in victims {
                let key = process.key(pid);
                let (uid, domain) = (process.uid, domain.clone());
                self.turn.record(JournalEvent::VictimTerminated {
                    incident: taint.incident,
                    process: key,
                    uid,
                    domain,
                });
                self.end_client(key, &process);
            }
        }
    }
}
