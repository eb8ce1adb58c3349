//! The daemon's decisions, without any I/O: inputs and the time go in, effects come out.
//!
//! One task feeds [`Core::handle`] and performs the effects in order. Nothing here reads a clock, a file or a socket,
//! so the hard part of the daemon is tested in virtual time with random events (`tests.rs`).
//!
//! | part | decides |
//! |---|---|
//! | [`server`], `lifecycle` | when a server starts, drains, is forced, is given up and started again |
//! | `admission` | which server a client goes to, and who waits |
//! | `commands`, `questions` | what the command line is answered |
//! | [`saved`] | what a successor must know to go on where a killed daemon stopped |
//!
//! # Invariants
//! A domain has at most one active server. A client is in exactly one of: waiting, dispatched, forgotten. Every
//! request to a server has one purpose and is answered once. After `quit` nothing is spawned. Nothing is routed to a
//! server that has decided to end. An input that names a server of an earlier epoch is dropped.

mod admission;
mod backoff;
mod commands;
mod effect;
mod ids;
mod input;
mod lifecycle;
mod policy;
mod questions;
pub mod saved;
mod server;
#[cfg(test)]
mod tests;

pub use backoff::Backoff;
pub use effect::{Effect, PsRow, ServerSignal};
pub use ids::{ConnectionId, Pid, RequestId, ServerEpoch, SessionId, Uid};
pub use input::{ExitCause, Input, NoReply, Peer};
pub use policy::{Policy, Sharing};
pub use server::{Drain, Server, ServerState};

use admission::{Client, Domain, Process};
use commands::Deferred;
use core::time::Duration;
use lifecycle::Quit;
use questions::{Gather, Question};
use remps_proto::admin::defaults::Defaults;
use slab::Slab;
use std::collections::BTreeMap;

/// The daemon's whole state that decides anything.
#[derive(Debug)]
pub struct Core {
    policy: Policy,
    defaults: Defaults,
    servers: BTreeMap<ServerEpoch, Server>,
    domains: BTreeMap<Uid, Domain>,
    clients: BTreeMap<ConnectionId, Client>,
    processes: BTreeMap<Pid, Process>,
    questions: BTreeMap<RequestId, Question>,
    gathers: Slab<Gather>,
    deferred: Vec<Deferred>,
    quit: Option<Quit>,
    exited: bool,
    next_epoch: u64,
    next_request: u64,
    effects: Vec<Effect>,
}

impl Core {
    /// A core without servers and clients.
    #[must_use]
    pub fn new(policy: Policy, defaults: Defaults) -> Self {
        Self {
            policy,
            defaults,
            servers: BTreeMap::new(),
            domains: BTreeMap::new(),
            clients: BTreeMap::new(),
            processes: BTreeMap::new(),
            questions: BTreeMap::new(),
            gathers: Slab::new(),
            deferred: Vec::new(),
            quit: None,
            exited: false,
            next_epoch: 1,
            next_request: 1,
            effects: Vec::new(),
        }
    }

    /// Takes in what happened at `now`, the time since the daemon's start, and says what is to be done.
    #[must_use]
    pub fn handle(&mut self, now: Duration, input: Input) -> Vec<Effect> {
        match input {
            Input::ClientArrived { connection, peer } => self.client_arrived(connection, peer),
            Input::ClientDone { connection, status } => self.client_done(connection, status),
            Input::ProcessGone { pid } => self.process_gone(now, pid),
            Input::ServerSpawned { server, pid } => self.server_spawned(server, pid),
            Input::SpawnFailed { server, reason } => self.spawn_failed(now, server, &reason),
            Input::ServerHello { connection, peer } => self.server_hello(now, connection, peer),
            Input::ServerLinkLost { server, reason } => self.server_link_lost(now, server, &reason),
            Input::ServerExited { server, cause } => self.server_exited(now, server, cause),
            Input::Replied { request, reply } => self.replied(now, request, reply),
            Input::DevicesListed { session, devices } => self.devices_listed(session, devices),
            Input::Command { session, peer, line } => self.command(now, session, peer, &line),
            Input::Terminate => self.terminate(now),
            Input::Tick => {}
        }
        self.advance(now);
        core::mem::take(&mut self.effects)
    }

    /// When [`Input::Tick`] is due, if nothing else happens; `None` is never.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let servers = self.servers.values().filter_map(Server::deadline);
        let retries = self.domains.values().filter(|domain| self.wants_server(domain)).filter_map(Domain::retry_at);
        let commands = self.deferred.iter().map(|deferred| deferred.deadline);
        servers.chain(retries).chain(commands).chain(self.quit_deadline()).chain(self.idle_deadline()).min()
    }

    /// The values that servers to come start with.
    #[must_use]
    pub fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// The servers that there are, oldest first.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.values()
    }

    /// Whether a server is still to be started, or starting.
    #[must_use]
    pub fn is_starting(&self, server: ServerEpoch) -> bool {
        self.servers.get(&server).is_some_and(|server| matches!(server.state, ServerState::Starting { .. }))
    }

    /// How many clients wait for a server.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.domains.values().map(Domain::waiting).sum()
    }

    /// Everything that follows from the state and the time and not from one input alone.
    fn advance(&mut self, now: Duration) {
        if self.exited {
            return;
        }
        self.advance_idle(now);
        self.advance_domains(now);
        self.advance_servers(now);
        self.advance_deferred(now);
        self.advance_quit(now);
    }

    fn log(&mut self, line: impl Into<String>) {
        self.effects.push(Effect::Log(line.into()));
    }
}
