//! The clients: their connections and their processes, from the moment at which one comes until nobody asks for it.
//!
//! | part | decides |
//! |---|---|
//! | [`client`] | what is known of a connection and of a process |
//! | [`grouping`] | which domain a newcomer belongs to |
//! | [`stand_in`] | which process a client without a pid here is |
//! | [`handshakes`] | which clients are taken back from a server that they were on their way to |
//! | [`fate`] | what a process, or one that was a client, is told of its server |
//! | [`channels`] | which channel belongs to which client |
//! | [`offenders`] | who is refused or set apart, since his like has caused faults |
//! | [`spares`] | who has a second copy of the driver, on which other server |
//! | [`guests`] | who is on a server with that, as long as the server has it |
//! | [`recoveries`] | what each client says that its last recovery took |
//! | [`whereabouts`] | on which GPUs each client has contexts |
//!
//! # A client's way
//! | [`Stage`](client::Stage) | what is so | what comes next |
//! |---|---|---|
//! | `Waiting` | it is in its domain's queue, on its open connection | a server that can be told of it, or the end of its connection |
//! | `Told` | a server was told of it, and does its part of the handshake; it can be taken back | the server's greeting, and its answer where the client needs one: it has its end. A sign of a fault: it waits again |
//! | `HasEnd` | it has its end of the connection with the server, and is given away | its status, or its end. Where it is too slow the driver finishes in its place, as if it had no end |
//!
//! Who has finished is a process of the server, until it ends or the server does.

pub(super) mod channels;
pub(super) mod client;
pub(super) mod fate;
pub(super) mod grouping;
pub(super) mod guests;
pub(super) mod handshakes;
pub(super) mod offenders;
pub(super) mod recoveries;
pub(super) mod rest;
pub(super) mod spares;
pub(super) mod stand_in;
pub(super) mod whereabouts;

use crate::core::Peer;
use crate::core::evidence::ProcessKey;
use crate::core::gpu::Whereabouts;
use crate::core::identity::Identity;
use crate::core::ids::{ConnectionId, DomainId, Pid, ServerEpoch};
use channels::Channels;
use client::{Client, Process, Stage, UNCOUNTED};
use core::time::Duration;
use fate::FormerHomes;
use guests::Guests;
use offenders::Offenders;
use recoveries::Recoveries;
use spares::Spares;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use whereabouts::Looks;

/// All clients.
#[derive(Debug, Default)]
pub(super) struct Clients {
    connections: BTreeMap<ConnectionId, Client>,
    /// Those of each domain that wait for a server, in turn.
    queues: BTreeMap<DomainId, VecDeque<ConnectionId>>,
    processes: BTreeMap<Pid, Process>,
    former_homes: FormerHomes,
    channels: Channels,
    offenders: Offenders,
    looks: Looks,
    spares: Spares,
    guests: Guests,
    recoveries: Recoveries,
}

impl Clients {
    pub(super) fn get(&self, connection: ConnectionId) -> Option<&Client> {
        self.connections.get(&connection)
    }

    /// Those whose connection is not over.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.connections.values()
    }

    /// The same, each with its number.
    pub(super) fn connections(&self) -> impl Iterator<Item = (ConnectionId, &Client)> {
        self.connections.iter().map(|(connection, client)| (*connection, client))
    }

    /// Whether a process of this pid is a client, or is about to be.
    pub(super) fn is_one(&self, pid: Pid) -> bool {
        self.process(pid).is_some() || self.iter().any(|client| client.peer.pid == pid)
    }

    /// Those of a domain that wait, in turn.
    pub(super) fn queue(&self, domain: DomainId) -> impl ExactSizeIterator<Item = ConnectionId> {
        self.queues.get(&domain).map(VecDeque::iter).unwrap_or_default().copied()
    }

    /// How many wait for a server.
    pub(super) fn all_waiting(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }

    pub(super) fn insert(&mut self, connection: ConnectionId, client: Client) {
        self.connections.insert(connection, client);
    }

    /// A connection is over that nobody has heard of.
    pub(super) fn forget_connection(&mut self, connection: ConnectionId) {
        self.connections.remove(&connection);
    }

    /// A client has come further on its way; who it is.
    pub(super) fn goes_on(&mut self, connection: ConnectionId, stage: Stage) -> Option<(Peer, Arc<Identity>)> {
        let client = self.connections.get_mut(&connection)?;
        client.stage = stage;
        Some((client.peer, Arc::clone(&client.identity)))
    }

    /// Forgets all that wait for a server, and says which that were.
    pub(super) fn take_waiting(&mut self) -> Vec<ConnectionId> {
        let waiting: Vec<ConnectionId> = core::mem::take(&mut self.queues).into_values().flatten().collect();
        for connection in &waiting {
            self.connections.remove(connection);
        }
        waiting
    }

    /// A client of a domain waits, behind all others or before them.
    pub(super) fn enqueue(&mut self, domain: DomainId, connection: ConnectionId, is_first: bool) {
        let queue = self.queues.entry(domain).or_default();
        if is_first { queue.push_front(connection) } else { queue.push_back(connection) }
    }

    /// A client of a domain waits no longer.
    pub(super) fn dequeue(&mut self, domain: DomainId, connection: ConnectionId) {
        if let Some(queue) = self.queues.get_mut(&domain) {
            queue.retain(|&waiting| waiting != connection);
            if queue.is_empty() {
                self.queues.remove(&domain);
            }
        }
    }

    /// The client process of this pid that has a server.
    pub(super) fn process(&self, pid: Pid) -> Option<&Process> {
        self.processes.get(&pid)
    }

    /// The process that is meant, if it is known to be a client now.
    pub(super) fn known(&self, key: ProcessKey) -> Option<&Process> {
        self.process(key.pid).filter(|process| process.is(key))
    }

    fn known_mut(&mut self, key: ProcessKey) -> Option<&mut Process> {
        self.processes.get_mut(&key.pid).filter(|process| process.is(key))
    }

    /// The processes that have a server.
    pub(super) fn processes(&self) -> impl Iterator<Item = (Pid, &Process)> {
        self.processes.iter().map(|(pid, process)| (*pid, process))
    }

    /// The processes of a server.
    pub(super) fn on(&self, server: ServerEpoch) -> impl Iterator<Item = (Pid, &Process)> {
        self.processes().filter(move |(_, process)| process.server == server)
    }

    /// The processes of a server as they are now.
    pub(super) fn processes_of(&self, server: ServerEpoch) -> Vec<(Pid, Process)> {
        self.on(server).map(|(pid, process)| (pid, process.clone())).collect()
    }

    pub(super) fn insert_process(&mut self, pid: Pid, process: Process) {
        let server = process.server;
        self.guests.remove(server, pid);
        if let Some(before) = self.processes.insert(pid, process).filter(|before| before.server != server) {
            self.former_homes.note(pid, &before);
        }
    }

    /// A process that an earlier daemon knew has left its server for this one.
    pub(super) fn is_found_on(&mut self, pid: Pid, server: ServerEpoch, is_spared: bool) {
        if let Some(process) = self.processes.get_mut(&pid) {
            self.former_homes.note(pid, process);
            process.server = server;
            process.connections = UNCOUNTED;
            process.gpus.is_spared = is_spared;
        }
    }

    /// A client's process has ended.
    pub(super) fn process_gone(&mut self, pid: Pid) -> Option<Process> {
        let process = self.processes.remove(&pid)?;
        self.former_homes.note(pid, &process);
        self.channels.remove_process(pid);
        self.recoveries.process_gone(pid);
        Some(process)
    }

    /// More is known of a client than when it came, or than a census told.
    pub(super) fn identity_known(&mut self, pid: Pid, identity: &Arc<Identity>) {
        let of_process = self.processes.get_mut(&pid).map(|process| &mut process.identity);
        let clients = self.connections.values_mut().filter(|client| client.peer.pid == pid);
        for known in clients.map(|client| &mut client.identity).chain(of_process) {
            Identity::complete(known, identity);
        }
        self.guests.identity_known(pid, identity);
    }

    /// A server has ended, which no process has any longer; those that had it.
    pub(super) fn server_gone(&mut self, server: ServerEpoch) -> Vec<(Pid, Process)> {
        self.looks.forget(server);
        let left: Vec<(Pid, Process)> = self.processes.extract_if(.., |_, process| process.server == server).collect();
        for (pid, process) in &left {
            self.former_homes.note(*pid, process);
        }
        left
    }

    /// The driver holds this many copies of a client's UVM descriptors; whether it is known to be a client.
    pub(super) fn copies_held(&mut self, key: ProcessKey, descriptors: usize) -> bool {
        let process = self.known_mut(key);
        process.map(|process| process.copies = descriptors).is_some()
    }

    /// A client's tools queue is read from now on, or no more.
    pub(super) fn tracked(&mut self, key: ProcessKey, tracked: bool) {
        if let Some(process) = self.known_mut(key) {
            process.tracked = tracked;
        }
    }

    /// The patched module has cut a client off from its memory.
    pub(super) fn condemn(&mut self, pid: Pid) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.condemned = true;
        }
    }

    /// Whom the fault of this server has left alone.
    pub(super) fn spared_of(&self, epoch: ServerEpoch) -> impl Iterator<Item = ProcessKey> {
        let own = self.on(epoch).filter(|(_, process)| process.gpus.is_spared);
        own.map(|(pid, process)| process.key(pid))
    }

    /// The clients of a server that its fault has hit.
    pub(super) fn hit_processes(&self, epoch: ServerEpoch) -> Vec<(Pid, Process)> {
        let mut all = self.processes_of(epoch);
        all.retain(|(_, process)| !process.gpus.is_spared);
        all
    }

    /// The fault of a server may have hit each of its clients.
    pub(super) fn spare_nobody(&mut self, server: ServerEpoch) {
        self.whereabouts_on(server).for_each(|(_, gpus)| gpus.is_spared = false);
    }

    /// The fault of a server has left these alone; whether anybody is new among them.
    pub(super) fn spare(&mut self, server: ServerEpoch, pids: &BTreeSet<Pid>) -> bool {
        let own = self.whereabouts_on(server).filter(|(pid, _)| pids.contains(pid));
        own.fold(false, |is_new, (_, gpus)| !core::mem::replace(&mut gpus.is_spared, true) || is_new)
    }

    /// Where the process is that is meant.
    pub(super) fn whereabouts_mut(&mut self, key: ProcessKey) -> Option<&mut Whereabouts> {
        self.known_mut(key).map(|process| &mut process.gpus)
    }

    /// Where each client of a server is.
    pub(super) fn whereabouts_on(&mut self, server: ServerEpoch) -> impl Iterator<Item = (Pid, &mut Whereabouts)> {
        let own = self.processes.iter_mut().filter(move |(_, process)| process.server == server);
        own.map(|(pid, process)| (*pid, &mut process.gpus))
    }

    /// Whose each channel is.
    pub(super) fn channels(&self) -> &Channels {
        &self.channels
    }

    pub(super) fn channels_mut(&mut self) -> &mut Channels {
        &mut self.channels
    }

    /// Whose like has caused faults.
    pub(super) fn offenders(&self) -> &Offenders {
        &self.offenders
    }

    pub(super) fn offenders_mut(&mut self) -> &mut Offenders {
        &mut self.offenders
    }

    /// When something must be done on account of them alone.
    pub(super) fn deadline(&self) -> Option<Duration> {
        [self.offenders.deadline(), self.looks.deadline()].into_iter().flatten().min()
    }
}
