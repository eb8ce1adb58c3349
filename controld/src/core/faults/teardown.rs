//! The teardown of a client whose fault was isolated: the daemon ends it, and then waits until its address space is gone.
//!
//! Its funeral needs no copies of its descriptors: its work has pages that can't fault, and was terminated before its
//! process. So the copies go with the process, and from then on the module's own records say when the client's page
//! tables, channels and memory are gone. Copies that were kept would hold that record back for as long as themselves.
//!
//! Until then the isolation is not over: work that runs into missing page tables still ends everybody, and the module
//! says so ([`Evidence::ZombieFault`](crate::core::Evidence::ZombieFault)). Where the record does not come in time, somebody
//! else has the client's descriptors, a process that it forked for example, and its memory stays in use; that is said.

use super::Faults;
use crate::core::Core;
use crate::core::clients::client::Process;
use crate::core::effect::Turn;
use crate::core::events::{FuneralEnd, JournalEvent};
use crate::core::evidence::ProcessKey;
use crate::core::ids::{Pid, ServerEpoch, Uid};
use core::time::Duration;
use std::collections::BTreeMap;

/// How long the last record is waited for. The module keeps a dead client's page tables for 60 s at most
/// (uvm-fault-isolation(4)), and its end takes the driver milliseconds.
const PATIENCE: Duration = Duration::from_secs(70);
/// Address spaces that are known. The module has no limit; MPS has 60 clients on a GPU.
const MAX_SPACES: usize = 4096;
/// Dead clients that are waited for at one time; the oldest makes room.
const MAX_TEARDOWNS: usize = 256;

/// The address spaces that the module has told of, by its numbers.
#[derive(Debug, Default)]
pub(in crate::core) struct AddressSpaces {
    owners: BTreeMap<u64, ProcessKey>,
    /// Whether all that there are are known: the module is read, and its snapshot is complete.
    is_complete: bool,
}

impl AddressSpaces {
    fn add(&mut self, va_space: u64, owner: ProcessKey) {
        if self.owners.len() < MAX_SPACES {
            self.owners.insert(va_space, owner);
        } else {
            self.is_complete = false;
        }
    }

    /// Whether nothing of this process is left. One whose start nobody could read may be any of its pid.
    fn has_none_of(&self, key: ProcessKey) -> bool {
        let is_own = |owner: &ProcessKey| {
            owner.pid == key.pid && (owner.start_time == key.start_time || owner.start_time == 0 || key.start_time == 0)
        };
        self.is_complete && !self.owners.values().any(is_own)
    }
}

/// A dead client of which something may be left.
#[derive(Debug, Clone)]
pub(in crate::core) struct Teardown {
    pub(super) server: ServerEpoch,
    uid: Uid,
    domain: String,
    since: Duration,
}

impl Faults {
    /// The module has told of everything that there is.
    pub(in crate::core) fn hardware_known(&mut self, turn: &mut Turn) {
        self.spaces.is_complete = true;
        self.settle_teardowns(turn);
    }

    /// A client whose fault was isolated is dead, and copies of its descriptors are closed.
    pub(super) fn await_last_trace(&mut self, turn: &mut Turn, pid: Pid, process: &Process, domain: String) {
        let now = turn.now;
        let oldest = self.teardowns.iter().min_by_key(|(_, teardown)| teardown.since).map(|(key, _)| *key);
        if let Some(oldest) = oldest.filter(|_| self.teardowns.len() >= MAX_TEARDOWNS) {
            self.end_waiting(turn, oldest, false);
        }
        let (server, uid) = (process.server, process.uid);
        self.teardowns.insert(process.key(pid), Teardown { server, uid, domain, since: now });
        self.settle_teardowns(turn);
    }

    /// Tells of those of whom nothing is left.
    fn settle_teardowns(&mut self, turn: &mut Turn) {
        let gone: Vec<ProcessKey> =
            self.teardowns.keys().filter(|key| self.spaces.has_none_of(**key)).copied().collect();
        for key in gone {
            self.end_waiting(turn, key, true);
        }
    }

    fn end_waiting(&mut self, turn: &mut Turn, process: ProcessKey, complete: bool) {
        let now = turn.now;
        if let Some(Teardown { uid, domain, since, .. }) = self.teardowns.remove(&process) {
            let after = now.saturating_sub(since);
            turn.record(JournalEvent::CulpritGone { process, uid, domain, complete, after });
        }
    }

    pub(super) fn teardowns_deadline(&self) -> Option<Duration> {
        self.teardowns.values().map(|teardown| teardown.since + PATIENCE).min()
    }

    pub(in crate::core) fn advance_teardowns(&mut self, turn: &mut Turn) {
        let now = turn.now;
        let due = self.teardowns.iter().filter(|(_, teardown)| teardown.since + PATIENCE <= now);
        let due: Vec<ProcessKey> = due.map(|(key, _)| *key).collect();
        for key in due {
            let what = if self.spaces.is_complete {
                "something of it is left: another process may have its descriptors"
            } else {
                "the patched module does not say what is left of it"
            };
            let (pid, seconds) = (key.pid, PATIENCE.as_secs());
            turn.log(format!("Client {pid} ended {seconds} s ago after a fault that was isolated, and {what}"));
            self.end_waiting(turn, key, false);
        }
    }
}

impl Core {
    /// The module knows of an address space. One whose client it has cut off from its memory is of a client that is to
    /// be ended, even if the record of the fault never came here: it was lost, or told to an earlier daemon.
    pub(in crate::core) fn address_space_added(&mut self, va_space: u64, key: ProcessKey, condemned: bool) {
        self.faults.spaces.add(va_space, key);
        let known = self.clients.known(key).filter(|process| condemned && !process.condemned);
        if let Some(process) = known.cloned() {
            self.clients.condemn(key.pid);
            self.turn.log(format!("Client {} has had a fault that the patched module isolated", key.pid));
            self.end_client(key, &process);
        }
    }

    /// The module says that nothing is left of an address space.
    pub(in crate::core) fn address_space_gone(&mut self, va_space: u64, process: Option<ProcessKey>) {
        self.clients.channels_mut().remove_va_space(va_space);
        self.faults.spaces.owners.remove(&va_space);
        if let Some(key) = process.filter(|key| self.clients.known(*key).is_none()) {
            self.faults.end_funeral(&mut self.turn, key, FuneralEnd::Drained);
        }
        self.faults.settle_teardowns(&mut self.turn);
    }

    /// What the module told is void; all of it follows, or it is no longer read.
    pub(in crate::core) fn hardware_forgotten(&mut self) {
        self.clients.channels_mut().forget_hardware();
        self.faults.spaces = AddressSpaces::default();
    }
}
