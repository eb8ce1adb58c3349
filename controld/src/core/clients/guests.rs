//! Guests: processes that a server has as clients for their spare copy of the driver ([`spares`](super::spares)), while they
//! are clients of another one.
//!
//! A guest can do on that server what a client can. So all is known of it that is known of a client, from the word to the
//! server to the moment at which the server no longer names it: a fault there can be its doing, and what ends a client ends
//! it there, too. It is a guest longer than it has a place, since the end of a place ends no connection.

use super::Clients;
use super::client::Process;
use crate::core::evidence::ProcessKey;
use crate::core::identity::Identity;
use crate::core::ids::{Pid, ServerEpoch};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One that has no place any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) struct Leave {
    /// Since when.
    pub(in crate::core) since: Duration,
    /// When the server is asked for its clients.
    pub(in crate::core) ask_at: Duration,
    /// Whether the server was told to end its work there.
    pub(in crate::core) is_ended: bool,
}

/// A process on a server that is not its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::core) struct Guest {
    pub(in crate::core) process: Process,
    /// `None` while it has a place.
    pub(in crate::core) leaves: Option<Leave>,
}

/// All of them.
#[derive(Debug, Default)]
pub(in crate::core) struct Guests {
    all: BTreeMap<(ServerEpoch, Pid), Guest>,
}

impl Guests {
    /// A server is told of a spare copy's connection.
    pub(in crate::core) fn comes(&mut self, pid: Pid, process: Process) {
        let guest = Guest { leaves: None, process };
        self.all.entry((guest.process.server, pid)).or_insert(guest).leaves = None;
    }

    /// A server has accepted a connection.
    pub(in crate::core) fn is_accepted(&mut self, server: ServerEpoch, pid: Pid) {
        if let Some(guest) = self.all.get_mut(&(server, pid)) {
            guest.process.connections = guest.process.connections.saturating_add(1);
        }
    }

    /// It is none on this server, or no more.
    pub(in crate::core) fn remove(&mut self, server: ServerEpoch, pid: Pid) -> Option<Guest> {
        self.all.remove(&(server, pid))
    }

    pub(in crate::core) fn get(&self, server: ServerEpoch, pid: Pid) -> Option<&Guest> {
        self.all.get(&(server, pid))
    }

    pub(in crate::core) fn get_mut(&mut self, server: ServerEpoch, pid: Pid) -> Option<&mut Guest> {
        self.all.get_mut(&(server, pid))
    }

    pub(in crate::core) fn iter(&self) -> impl Iterator<Item = (ServerEpoch, Pid, &Guest)> {
        self.all.iter().map(|((server, pid), guest)| (*server, *pid, guest))
    }

    /// Those of a server.
    pub(in crate::core) fn on(&self, server: ServerEpoch) -> impl Iterator<Item = (Pid, &Process)> {
        let own = self.all.range((server, Pid::MIN)..=(server, Pid::MAX));
        own.map(|((_, pid), guest)| (*pid, &guest.process))
    }

    /// Where a process is one.
    pub(in crate::core) fn of(&self, process: ProcessKey) -> impl Iterator<Item = (ServerEpoch, &Guest)> {
        // One whose start nobody knows yet is taken for it.
        let is_it = move |(_, pid, guest): &(ServerEpoch, Pid, &Guest)| {
            *pid == process.pid && (process.start_time == 0 || guest.process.is(process))
        };
        self.iter().filter(is_it).map(|(server, _, guest)| (server, guest))
    }

    /// The servers that have any.
    pub(in crate::core) fn hosts(&self) -> BTreeSet<ServerEpoch> {
        self.all.keys().map(|(server, _)| *server).collect()
    }

    /// A process has ended; what it was where.
    pub(in crate::core) fn process_gone(&mut self, pid: Pid) -> Vec<Process> {
        self.all.extract_if(.., |(_, guest), _| *guest == pid).map(|(_, guest)| guest.process).collect()
    }

    pub(in crate::core) fn server_gone(&mut self, server: ServerEpoch) {
        self.all.retain(|(host, _), _| *host != server);
    }

    /// More is known of a process.
    pub(in crate::core) fn identity_known(&mut self, pid: Pid, identity: &Arc<Identity>) {
        let own = self.all.iter_mut().filter(|((_, guest), _)| *guest == pid).map(|(_, guest)| guest);
        own.for_each(|guest| Identity::complete(&mut guest.process.identity, identity));
    }

    /// When a server is to be asked for one that leaves.
    pub(in crate::core) fn deadline(&self) -> Option<Duration> {
        self.all.values().filter_map(|guest| Some(guest.leaves?.ask_at)).min()
    }
}

impl Clients {
    pub(in crate::core) fn guests(&self) -> &Guests {
        &self.guests
    }

    pub(in crate::core) fn guests_mut(&mut self) -> &mut Guests {
        &mut self.guests
    }

    /// The process that is meant as what it is on this server: its client, or a guest.
    pub(in crate::core) fn known_on(&self, server: ServerEpoch, key: ProcessKey) -> Option<&Process> {
        let own = self.known(key).filter(|process| process.server == server);
        own.or_else(|| Some(&self.guests.get(server, key.pid)?.process).filter(|process| process.is(key)))
    }

    /// The servers on which a process can do anything, its own first.
    pub(in crate::core) fn servers_of(&self, key: ProcessKey) -> Vec<ServerEpoch> {
        let own = self.known(key).map(|process| process.server);
        own.into_iter().chain(self.guests.of(key).map(|(server, _)| server)).collect()
    }
}
