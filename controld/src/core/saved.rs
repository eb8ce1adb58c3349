//! What a successor must know to go on where a killed daemon stopped.
//!
//! The holder process keeps it as one blob beside the descriptors. Requests that were under way are not in it: their
//! answers are recognised and dropped when the successor takes a server's connection over.

use super::admission::{Client, Domain, Process};
use super::ids::{ServerEpoch, Uid};
use super::questions::Purpose;
use super::server::{Drain, Server, ServerState};
use super::{Core, Effect, NoReply, Policy};
use core::time::Duration;
use prost::Message;
use remps_proto::admin::defaults::Defaults;
use remps_proto::admin::limits::{DeviceKey, MemLimit, Percentage, Priority};
use remps_proto::mps::server::{Reply, Request};

/// A memory limit by default.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SavedLimit {
    /// The device, as typed.
    #[prost(string, tag = "1")]
    pub device: String,
    /// Bytes.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
}

/// A server.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SavedServer {
    /// Its epoch.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    /// Its pid.
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    /// The domain it serves.
    #[prost(uint32, tag = "3")]
    pub domain: u32,
    /// The user it runs as.
    #[prost(uint32, tag = "4")]
    pub uid: u32,
    /// Whether it has said hello.
    #[prost(bool, tag = "5")]
    pub ready: bool,
    /// Whether `shutdown_server` asked for its end.
    #[prost(bool, tag = "6")]
    pub draining: bool,
    /// Whether it has decided to end, or has a signal.
    #[prost(bool, tag = "7")]
    pub ending: bool,
    /// The group for a server of a user that the user database does not know.
    #[prost(uint32, tag = "8")]
    pub gid: u32,
}

/// The daemon.
#[derive(Clone, PartialEq, Message)]
pub struct Saved {
    /// Default share of threads, in percent.
    #[prost(double, tag = "1")]
    pub thread_percentage: f64,
    /// Default client priority.
    #[prost(uint32, tag = "2")]
    pub priority: u32,
    /// Default memory limits, oldest first.
    #[prost(message, repeated, tag = "3")]
    pub limits: Vec<SavedLimit>,
    /// The next server's epoch.
    #[prost(uint64, tag = "4")]
    pub next_epoch: u64,
    /// The servers.
    #[prost(message, repeated, tag = "5")]
    pub servers: Vec<SavedServer>,
}

impl Saved {
    /// The defaults in it; what can't be read is left at the vendor's default.
    #[must_use]
    pub fn defaults(&self) -> Defaults {
        let mut defaults = Defaults::default();
        if let Ok(percentage) = Percentage::new(self.thread_percentage) {
            defaults.set_percentage(percentage);
        }
        if let Ok(priority) = Priority::parse(self.priority.to_string().as_bytes()) {
            defaults.set_priority(priority);
        }
        for limit in &self.limits {
            if let Ok(device) = DeviceKey::parse(limit.device.as_bytes()) {
                defaults.set_limit(device, MemLimit(limit.bytes));
            }
        }
        defaults
    }
}

impl Core {
    /// What a successor must know.
    #[must_use]
    pub fn saved(&self) -> Saved {
        let servers = self
            .servers
            .values()
            .map(|server| SavedServer {
                epoch: server.epoch.0,
                pid: server.pid.unwrap_or_default(),
                domain: server.domain,
                uid: server.uid,
                ready: server.ready_at.is_some(),
                // A quit dies with the daemon that was told to; who starts a successor wants servers to serve.
                // And one that was only to go because it was idle may as well stay.
                draining: matches!(&server.state, ServerState::Draining(drain) if !drain.because_idle)
                    && self.quit.is_none(),
                ending: matches!(server.state, ServerState::Ending { .. }),
                gid: self.domains.get(&server.domain).map_or(server.uid, |domain| domain.gid),
            })
            .collect();
        Saved {
            thread_percentage: self.defaults.percentage().get(),
            priority: self.defaults.priority().get(),
            limits: self
                .defaults
                .limits()
                .iter()
                .map(|(device, limit)| SavedLimit { device: device.to_string(), bytes: limit.0 })
                .collect(),
            next_epoch: self.next_epoch,
            servers,
        }
    }

    /// A core that goes on where another stopped, with those of its servers that are alive and connected, and what is
    /// to be done first.
    ///
    /// Each server is asked for its clients, since a process must stay with its server; until it has answered, no
    /// client is sent to it.
    #[must_use]
    pub fn restored(now: Duration, policy: Policy, saved: &Saved, alive: &[SavedServer]) -> (Self, Vec<Effect>) {
        let mut core = Self::new(policy, saved.defaults());
        core.next_epoch = saved.next_epoch.max(1);
        for old in alive {
            let epoch = ServerEpoch(old.epoch);
            core.next_epoch = core.next_epoch.max(old.epoch.saturating_add(1));
            let state = if old.ending {
                ServerState::Ending { kill_at: Some(now + core.policy.kill_timeout) }
            } else if old.draining {
                ServerState::Draining(Drain::starting(now, None, false))
            } else {
                ServerState::Serving
            };
            let server = Server {
                epoch,
                domain: old.domain,
                uid: old.uid,
                pid: Some(old.pid),
                end_wanted: !matches!(state, ServerState::Serving),
                state,
                ready_at: Some(now),
                idle_since: None,
                census_due: true,
                handshakes: 0,
            };
            core.servers.insert(epoch, server);
            core.domains.entry(old.domain).or_insert_with(|| Domain::new(&core.policy, old.gid));
            core.log(format!("Server {} is taken over from an earlier daemon", old.pid));
            core.ask(epoch, Request::Clients, Purpose::Census);
        }
        let effects = core::mem::take(&mut core.effects);
        (core, effects)
    }

    pub(super) fn census_answered(&mut self, epoch: ServerEpoch, reply: Result<Reply, NoReply>) {
        let Some(server) = self.servers.get_mut(&epoch) else {
            return;
        };
        // One that does not answer holds nobody up: its processes are taken for newcomers.
        server.census_due = false;
        let uid: Uid = server.uid;
        let Ok(Reply::Clients(pids)) = reply else {
            return;
        };
        for pid in pids {
            if let std::collections::btree_map::Entry::Vacant(entry) = self.processes.entry(pid) {
                entry.insert(Process { server: epoch, uid });
                self.effects.push(Effect::WatchProcess { pid, connection: None });
            }
        }
    }

    /// A client that an earlier daemon had handed to a server when it was killed, and what is to be done about it.
    #[must_use]
    pub fn restore_dispatched(
        &mut self,
        connection: super::ConnectionId,
        client: super::Peer,
        server: ServerEpoch,
    ) -> Option<Effect> {
        let known = self.servers.get_mut(&server)?;
        known.handshakes += 1;
        let domain = known.domain;
        let place = super::admission::Place::Dispatched(server);
        self.clients.insert(connection, Client { peer: client, domain, place });
        if client.pid == 0 || self.processes.contains_key(&client.pid) {
            return None;
        }
        self.processes.insert(client.pid, Process { server, uid: client.uid });
        Some(Effect::WatchProcess { pid: client.pid, connection: Some(connection) })
    }
}
