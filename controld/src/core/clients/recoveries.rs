//! Which clients would go on after a fault, and the last recovery of each, as they say ([`ClientRecovery`]), or why there was
//! none ([`ClientRefusal`]).
//!
//! A library whose daemon was killed before it had answered says it again to the next one, so one that is known is not
//! counted twice. Whoever is at the door may say it, a client or not: of those who are none only some are remembered.

use super::Clients;
use super::client::Process;
use crate::core::Core;
use crate::core::client_recovery::{ClientRecovery, ClientRefusal};
use crate::core::events::JournalEvent;
use crate::core::evidence::ProcessKey;
use crate::core::ids::{Pid, ServerEpoch, Uid};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

/// Processes of which one is remembered at most, clients and others.
const MOST: usize = 4096;

/// Of each process its last one, and when it was told.
#[derive(Debug, Default)]
pub(in crate::core) struct Recoveries {
    last: BTreeMap<ProcessKey, (ClientRecovery, Duration)>,
    /// The same of its last refusal, unless it was recovered since.
    refused: BTreeMap<ProcessKey, (ClientRefusal, Duration)>,
    /// The number of that one, also then.
    refusals: BTreeMap<ProcessKey, u64>,
    /// Who would recover from a fault.
    able: BTreeSet<ProcessKey>,
}

impl Recoveries {
    pub(super) fn process_gone(&mut self, pid: Pid) {
        self.last.retain(|process, _| process.pid != pid);
        self.refused.retain(|process, _| process.pid != pid);
        self.refusals.retain(|process, _| process.pid != pid);
        self.able.retain(|process| process.pid != pid);
    }
}

impl Clients {
    /// A process tells of a recovery; whether it is another one than was told last.
    fn note_recovery(&mut self, now: Duration, process: ProcessKey, recovery: &ClientRecovery) -> bool {
        let last = self.recoveries.last.get(&process);
        if last.is_some_and(|(last, _)| last.number >= recovery.number) {
            return false;
        }
        make_room(&mut self.recoveries.last, process, |pid| self.processes.contains_key(&pid));
        self.recoveries.last.insert(process, (recovery.clone(), now));
        self.recoveries.refused.remove(&process);
        true
    }

    /// A process tells why it was not recovered; whether it is another refusal than was told last.
    fn note_refusal(&mut self, now: Duration, process: ProcessKey, refusal: &ClientRefusal) -> bool {
        if self.recoveries.refusals.get(&process).is_some_and(|last| *last >= refusal.number) {
            return false;
        }
        make_room(&mut self.recoveries.refusals, process, |pid| self.processes.contains_key(&pid));
        make_room(&mut self.recoveries.refused, process, |pid| self.processes.contains_key(&pid));
        self.recoveries.refusals.insert(process, refusal.number);
        self.recoveries.refused.insert(process, (refusal.clone(), now));
        true
    }

    /// A process says whether it would recover from a fault. After a change of daemons it may say so before its server has
    /// named it.
    pub(in crate::core) fn note_able(&mut self, process: ProcessKey, is_able: bool) {
        if !is_able {
            self.recoveries.able.remove(&process);
            return;
        }
        if self.recoveries.able.len() >= MOST {
            self.recoveries.able.retain(|other| self.processes.contains_key(&other.pid));
        }
        if self.recoveries.able.len() < MOST || self.known(process).is_some() {
            self.recoveries.able.insert(process);
        }
    }

    /// The clients of a server that a fault of it has hit, and that would recover from one.
    pub(in crate::core) fn able_to_recover(&self, server: ServerEpoch) -> BTreeSet<ProcessKey> {
        let is_hit = |process: &Process| process.server == server && !process.gpus.is_spared;
        let is_meant = |process: &&ProcessKey| self.known(**process).is_some_and(is_hit);
        self.recoveries.able.iter().filter(is_meant).copied().collect()
    }

    /// Whether a process has said that it would go on after a fault, and not since that it doesn't.
    pub(in crate::core) fn may_recover(&self, process: ProcessKey) -> bool {
        self.recoveries.able.contains(&process)
    }

    /// The last recovery that a process has told of, and when it did.
    pub(in crate::core) fn last_recovery(&self, process: ProcessKey) -> Option<&(ClientRecovery, Duration)> {
        let of_pid = || self.recoveries.last.iter().find(|(known, _)| known.pid == process.pid).map(|(_, last)| last);
        if process.start_time == 0 { of_pid() } else { self.recoveries.last.get(&process) }
    }

    /// The last refusal that a process has told of since its last recovery, and when it did.
    pub(in crate::core) fn last_refusal(&self, process: ProcessKey) -> Option<&(ClientRefusal, Duration)> {
        let all = &self.recoveries.refused;
        let of_pid = || all.iter().find(|(known, _)| known.pid == process.pid).map(|(_, last)| last);
        if process.start_time == 0 { of_pid() } else { all.get(&process) }
    }
}

/// Makes room for a process of which nothing is remembered yet: those that are no clients go first.
fn make_room<T>(remembered: &mut BTreeMap<ProcessKey, T>, process: ProcessKey, is_client: impl Fn(Pid) -> bool) {
    if remembered.len() < MOST || remembered.contains_key(&process) {
        return;
    }
    remembered.retain(|other, _| is_client(other.pid));
    if remembered.len() >= MOST {
        remembered.pop_first();
    }
}

impl Core {
    /// A process says how it has gone on after a fault.
    pub(in crate::core) fn client_recovered(&mut self, process: ProcessKey, uid: Uid, recovery: ClientRecovery) {
        if !self.clients.note_recovery(self.turn.now, process, &recovery) {
            return;
        }
        let (domain, server) = self.told_at(process, uid);
        self.turn.record(JournalEvent::ClientRecovered { process, uid, domain, server, recovery });
    }

    /// A process says why it does not go on after a fault.
    pub(in crate::core) fn client_unrecovered(&mut self, process: ProcessKey, uid: Uid, refusal: ClientRefusal) {
        if !self.clients.note_refusal(self.turn.now, process, &refusal) {
            return;
        }
        let (domain, server) = self.told_at(process, uid);
        self.turn.record(JournalEvent::ClientUnrecovered { process, uid, domain, server, refusal });
    }

    /// In which domain, and at which server, a process says something.
    fn told_at(&self, process: ProcessKey, uid: Uid) -> (String, Option<Pid>) {
        let own = self.clients.known(process).and_then(|known| self.servers.get(known.server));
        let domain = own.map_or_else(|| format!("user {uid}"), |own| self.servers.domain_name(own.domain));
        (domain, own.and_then(|own| own.pid))
    }
}
