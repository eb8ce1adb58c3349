//! The last recovery of each client, as it says ([`ClientRecovery`]).
//!
//! A library whose daemon was killed before it had answered says it again to the next one, so one that is known is not
//! counted twice. Whoever is at the door may say it, a client or not: of those who are none only some are remembered.

use super::Clients;
use crate::core::Core;
use crate::core::client_recovery::ClientRecovery;
use crate::core::events::JournalEvent;
use crate::core::evidence::ProcessKey;
use crate::core::ids::{Pid, Uid};
use core::time::Duration;
use std::collections::BTreeMap;

/// Processes of which one is remembered at most, clients and others.
const MOST: usize = 4096;

/// Of each process its last one, and when it was told.
#[derive(Debug, Default)]
pub(in crate::core) struct Recoveries(BTreeMap<ProcessKey, (ClientRecovery, Duration)>);

impl Recoveries {
    pub(super) fn process_gone(&mut self, pid: Pid) {
        self.0.retain(|process, _| process.pid != pid);
    }
}

impl Clients {
    /// A process tells of a recovery; whether it is another one than was told last.
    fn note_recovery(&mut self, now: Duration, process: ProcessKey, recovery: &ClientRecovery) -> bool {
        let last = self.recoveries.0.get(&process);
        if last.is_some_and(|(last, _)| last.number >= recovery.number) {
            return false;
        }
        if last.is_none() && self.recoveries.0.len() >= MOST {
            self.recoveries.0.retain(|other, _| self.processes.contains_key(&other.pid));
            if self.recoveries.0.len() >= MOST {
                self.recoveries.0.pop_first();
            }
        }
        self.recoveries.0.insert(process, (recovery.clone(), now));
        true
    }

    /// The last recovery that a process has told of, and when it did.
    pub(in crate::core) fn last_recovery(&self, process: ProcessKey) -> Option<&(ClientRecovery, Duration)> {
        let of_pid = || self.recoveries.0.iter().find(|(known, _)| known.pid == process.pid).map(|(_, last)| last);
        if process.start_time == 0 { of_pid() } else { self.recoveries.0.get(&process) }
    }
}

impl Core {
    /// A process says how it has gone on after a fault.
    pub(in crate::core) fn client_recovered(&mut self, process: ProcessKey, uid: Uid, recovery: ClientRecovery) {
        if !self.clients.note_recovery(self.turn.now, process, &recovery) {
            return;
        }
        let own = self.clients.known(process).and_then(|known| self.servers.get(known.server));
        let domain = own.map_or_else(|| format!("user {uid}"), |own| self.servers.domain_name(own.domain));
        let server = own.and_then(|own| own.pid);
        self.turn.record(JournalEvent::ClientRecovered { process, uid, domain, server, recovery });
    }
}
