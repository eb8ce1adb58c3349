//! Where each client is: on which GPUs it has contexts.
//!
//! | witness | knows |
//! |---|---|
//! | the UVM driver | which GPUs a client's address spaces have: all that it sees, and so all that it can have contexts on |
//! | a server's own list of devices and the contexts on each | on which GPU each is that it names |
//! | the daemon's own count of a client's connections | how many contexts it can have, and so whether the list is whole |
//! | the patched module | on which GPUs a client has channels, among others |
//!
//! Clients are looked at soon after each of their contexts is made and once more a while later, and until then nobody
//! knows where they are. How many contexts a client has of which an earlier daemon knew, nobody has counted. On a machine
//! with one GPU without instances there is nothing to find out, and nobody is asked.

use super::channels::Channel;
use super::client::{BEFORE_CONTEXTS, Client, Process};
use crate::core::evidence::ProcessKey;
use crate::core::gpu::{Gpu, GpuSet, are_apart};
use crate::core::gpus::GpuPlace;
use crate::core::ids::{Pid, ServerEpoch};
use crate::core::peer::NoReply;
use crate::core::servers::questions::Purpose;
use crate::core::{Core, Effect};
use core::time::Duration;
use remps_proto::mps::client::PROCESS_CONTEXT;
use remps_proto::mps::server::{DeviceClients, Reply, Request};
use std::collections::{BTreeMap, BTreeSet};

/// When a client is looked at after one of its contexts was made: it tells its server of the GPU a moment later, and
/// what it takes of other GPUs may come later still.
const LOOKS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// When a client is looked at next, and how often it was since its last context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    at: Duration,
    since: Duration,
    done: usize,
}

/// When clients are looked at.
#[derive(Debug, Default)]
pub(super) struct Looks {
    due: BTreeMap<Pid, Look>,
    /// Servers whose list of contexts is under way.
    listing: BTreeSet<ServerEpoch>,
}

impl Looks {
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.due.values().map(|look| look.at).min()
    }

    /// A server is gone.
    pub(super) fn forget(&mut self, server: ServerEpoch) {
        self.listing.remove(&server);
    }
}

impl Core {
    /// The GPUs that the machine has.
    pub(in crate::core) fn gpus_found(&mut self, places: Vec<GpuPlace>) {
        if !self.gpus.known_mut().are_found(places) {
            return;
        }
        let connected = self.servers.iter().filter(|server| server.is_connected());
        let connected: Vec<ServerEpoch> = connected.map(|server| server.epoch).collect();
        connected.into_iter().for_each(|server| self.ask_for_devices(server));
        let clients: Vec<Pid> = self.clients.processes().map(|(pid, _)| pid).collect();
        clients.into_iter().for_each(|pid| self.look_at(pid));
    }

    /// A client may have another context than before: where it is has to be found out.
    pub(in crate::core) fn look_at(&mut self, pid: Pid) {
        let now = self.turn.now;
        if !self.gpus.known().are_several() {
            return;
        }
        if let Some(key) = self.clients.process(pid).map(|process| process.key(pid))
            && let Some(own) = self.clients.whereabouts_mut(key)
        {
            own.spaces = None;
            self.clients.looks.due.insert(pid, Look { at: now + LOOKS[0], since: now, done: 0 });
        }
    }

    /// Looks at the clients whose time has come.
    pub(in crate::core) fn advance_whereabouts(&mut self) {
        let due = self.clients.looks.due.iter().filter(|(_, look)| look.at <= self.turn.now).map(|(pid, _)| *pid);
        let due: Vec<Pid> = due.collect();
        for pid in due {
            let Some(mut look) = self.clients.looks.due.remove(&pid) else { continue };
            let Some(process) = self.clients.process(pid) else { continue };
            let (key, server) = (process.key(pid), process.server);
            look.done += 1;
            if let Some(next) = LOOKS.get(look.done) {
                self.clients.looks.due.insert(pid, Look { at: look.since + *next, ..look });
            }
            self.turn.push(Effect::FindGpus { process: key });
            // After a fault the lists of those that it has hit may be short.
            let is_asked = self.servers.get(server).is_some_and(|server| server.is_connected() && !server.is_lost());
            if is_asked && self.clients.looks.listing.insert(server) {
                self.servers.ask(&mut self.turn, server, Request::DeviceClients, Purpose::Contexts);
            }
        }
    }

    /// A server has listed its contexts.
    pub(in crate::core) fn contexts_told(&mut self, server: ServerEpoch, reply: Result<Reply, NoReply>) {
        self.clients.looks.listing.remove(&server);
        let is_sound = self.servers.get(server).is_some_and(|server| !server.is_lost() && !server.is_suspected());
        let (Ok(Reply::DeviceClients(devices)), true) = (reply, is_sound) else {
            return;
        };
        self.contexts_listed(server, &devices);
    }

    /// Notes where a server says that contexts of its clients are; whose.
    pub(in crate::core) fn contexts_listed(&mut self, server: ServerEpoch, devices: &[DeviceClients]) -> BTreeSet<Pid> {
        let mut found: BTreeMap<Pid, Vec<(u32, Option<Gpu>)>> = BTreeMap::new();
        for device in devices {
            let gpu = self.gpus.known().of_context(server, device.uuid);
            for client in device.clients.iter().filter(|client| client.context != PROCESS_CONTEXT) {
                found.entry(client.pid).or_default().push((client.context, gpu.clone()));
            }
        }
        for (pid, gpus) in self.clients.whereabouts_on(server) {
            gpus.is_listed(found.get(&pid).map(Vec::as_slice).unwrap_or_default());
        }
        found.into_keys().collect()
    }

    /// The UVM driver has told which GPUs a client's address spaces have; `None` when it could not.
    pub(in crate::core) fn spaces_found(&mut self, key: ProcessKey, names: Option<&[String]>) {
        // On a GPU that is cut up the UVM driver has names that nobody else has.
        let gpus =
            names.and_then(|names| names.iter().map(|name| self.gpus.known().named(name)).collect::<Option<GpuSet>>());
        if let Some(own) = self.clients.whereabouts_mut(key) {
            own.spaces = gpus;
        }
    }

    /// On which GPUs the patched module knows channels of a client. One whose context is just being made may get others.
    fn gpus_of_channels(&self, pid: Pid) -> GpuSet {
        let hardware = self.clients.channels().channels_of(pid).filter_map(|channel| match channel {
            Channel::Hardware(hardware) => Some(hardware),
            Channel::Context(_) => None,
        });
        hardware.filter_map(|hardware| self.gpus.known().named(&hardware.gpu)).collect()
    }

    /// Connections of a process that it has the end of, and that its server has not accepted yet.
    fn connections_under_way(&self, pid: Pid) -> usize {
        let is_own = |client: &&Client| client.peer.pid == pid && client.spare.is_none() && client.stage.has_end();
        self.clients.iter().filter(is_own).count()
    }

    /// On which GPUs a client can have contexts; `None` when nobody knows, which is all of them.
    pub(in crate::core) fn gpus_of(&self, pid: Pid, process: &Process) -> Option<GpuSet> {
        if self.connections_under_way(pid) > 0 {
            return None;
        }
        let own = process.gpus.places(process.contexts_made())?;
        Some(own.into_iter().chain(self.gpus_of_channels(pid)).collect())
    }

    /// Whether a client is known to have no context on any of these.
    pub(in crate::core) fn is_elsewhere(&self, pid: Pid, process: &Process, gpus: &GpuSet) -> bool {
        !gpus.is_empty()
            && self.gpus.known().are_several()
            && self.gpus_of(pid, process).is_some_and(|own| are_apart(&own, gpus))
    }

    /// Whether a client can have more than one context.
    pub(in crate::core) fn may_have_several_contexts(&self, pid: Pid, process: &Process) -> bool {
        let made = process.connections.saturating_add(self.connections_under_way(pid));
        made.saturating_sub(BEFORE_CONTEXTS) > 1
    }

    /// A witness that can't be wrong has met a client on this GPU.
    pub(in crate::core) fn was_met_on(&mut self, key: ProcessKey, gpu: &Gpu) {
        if let Some(own) = self.clients.whereabouts_mut(key) {
            own.is_spared = false;
            own.met.insert(gpu.clone());
        }
    }

    /// Whether a sign that names a GPU and nobody may be about this server.
    pub(in crate::core) fn may_be_on(&self, server: ServerEpoch, gpu: &Gpu) -> bool {
        if self.gpus.known().lacks(server, gpu) {
            return false;
        }
        let one = GpuSet::from([gpu.clone()]);
        let mut clients = self.clients.on(server).peekable();
        clients.peek().is_none() || clients.any(|(pid, process)| !self.is_elsewhere(pid, process, &one))
    }
}
