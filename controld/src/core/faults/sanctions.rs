//! What becomes of culprits: ended, put into a domain of their own, or refused for a while.
//!
//! Only a verdict that is certain counts.
//!
//! Whom the daemon ends it first has terminated by the server, which takes the client's work off the GPU, and then asks
//! its process to end, and kills after `kill_timeout`: a client that is killed at work takes the others along.

use super::Faults;
use crate::core::clients::client::Process;
use crate::core::effect::Turn;
use crate::core::events::{JournalEvent, Sanction};
use crate::core::evidence::ProcessKey;
use crate::core::ids::is_stand_in;
use crate::core::policy::{CulpritAction, FaultPolicy};
use crate::core::servers::quarantine::{self, Offender};
use crate::core::servers::questions::Purpose;
use crate::core::servers::server::Server;
use crate::core::verdict::Verdict;
use crate::core::{Core, Effect};
use core::time::Duration;
use remps_proto::mps::server::Request;

impl Faults {
    /// The server has ended the client's work, or can't; now its process.
    pub(in crate::core) fn client_terminated(&mut self, turn: &mut Turn, key: ProcessKey) {
        if let Some(ending) = self.endings.get_mut(&key)
            && ending.due > 0
        {
            ending.due -= 1;
            if ending.due > 0 {
                return;
            }
            turn.push(Effect::EndProcess { process: key, force: false });
        }
    }

    /// Kills those that did not end.
    pub(in crate::core) fn advance_endings(&mut self, turn: &mut Turn) {
        let now = turn.now;
        let due: Vec<ProcessKey> =
            self.endings.iter().filter(|(_, ending)| ending.kill_at <= now).map(|(key, _)| *key).collect();
        for key in due {
            self.endings.remove(&key);
            turn.push(Effect::EndProcess { process: key, force: true });
        }
    }

    /// Whether a client is being ended.
    pub(in crate::core) fn is_ended(&self, key: ProcessKey) -> bool {
        self.endings.contains_key(&key)
    }

    pub(super) fn endings_deadline(&self) -> Option<Duration> {
        self.endings.values().map(|ending| ending.kill_at).min()
    }
}

impl Core {
    /// Does what the policy says to the culprit of a verdict that is certain.
    pub(in crate::core) fn sanction(&mut self, verdict: &Verdict, process: &Process, policy: &FaultPolicy) {
        let Some(culprit) = &verdict.culprit else {
            return;
        };
        let key = culprit.process;
        let (number, uid, domain) = (verdict.number, culprit.uid, verdict.domain.clone());
        let mut sanctions = vec![];
        match policy.culprit {
            CulpritAction::Report => sanctions.push((Sanction::Report, None)),
            CulpritAction::Terminate => {
                sanctions.push((Sanction::Terminate, None));
                self.end_client(key, process);
            }
        }
        let offender = Offender::of(uid, &process.identity);
        let counted = self.clients.offenders_mut().count(self.turn.now, offender.clone(), policy);
        sanctions.extend(counted.into_iter().map(|(sanction, lasts)| (sanction, Some(lasts))));
        for (sanction, lasts) in sanctions {
            let domain = domain.clone();
            let is_quarantine = sanction == Sanction::Quarantine;
            let quarantine = is_quarantine.then(|| quarantine::name(self.quarantine_number(&offender)));
            self.turn.record(JournalEvent::CulpritSanctioned {
                verdict: number,
                process: key,
                uid,
                domain,
                sanction,
                lasts,
                quarantine,
                offender: is_quarantine.then(|| offender.to_string()),
            });
        }
    }

    /// Ends a client: its work on the GPU first, since a client that dies in a kernel takes the others along, then its
    /// process, politely and after `kill_timeout` not.
    pub(super) fn end_client(&mut self, key: ProcessKey, process: &Process) {
        if self.faults.endings.contains_key(&key) {
            return;
        }
        self.turn.log(format!("Client {} is ended", key.pid));
        let kill_at = self.turn.now + self.turn.policy.kill_timeout;
        // Wherever it can do anything.
        let mut servers = self.clients.servers_of(key);
        if !servers.contains(&process.server) {
            servers.push(process.server);
        }
        servers.retain(|server| self.servers.get(*server).is_some_and(Server::is_connected));
        // Servers know those without a pid here by pid 0, which may be others as well.
        let hidden = is_stand_in(key.pid);
        servers.retain(|server| !hidden || self.is_only_hidden(*server, key.pid));
        let pid = if hidden { 0 } else { key.pid };
        self.faults.endings.insert(key, Ending { kill_at, due: servers.len().max(1) });
        for server in &servers {
            self.servers.ask(&mut self.turn, *server, Request::TerminateClient(pid), Purpose::EndClient(key));
        }
        if servers.is_empty() {
            self.faults.client_terminated(&mut self.turn, key);
        }
    }
}

/// A client that the daemon ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) struct Ending {
    /// When it is killed, if it is still there.
    kill_at: Duration,
    /// How many servers have still to say that they have ended its work; it has had its SIGTERM when there is none.
    due: usize,
}
