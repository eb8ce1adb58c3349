//! Which GPUs the machine has, which of them a server has, and where each client is.
//!
//! | witness | knows |
//! |---|---|
//! | the driver's files in `/proc` | the machine's GPUs: UUID, address on the bus, MIG instances |
//! | a server's own list of devices | what its numbers of GPUs mean, and UUIDs of MIG instances |
//! | the UVM driver | which GPUs a client's address spaces have: all that it sees, and so all that it can have contexts on |
//! | a server's own list of devices and the contexts on each | on which GPU each is that it names |
//! | the daemon's own count of a client's connections | how many contexts it can have, and so whether the list is whole |
//! | the patched module | on which GPUs a client has channels, among others |
//!
//! Clients are looked at soon after each of their contexts is made and once more a while later, and until then nobody
//! knows where they are. How many contexts a client has of which an earlier daemon knew, nobody has counted. On a machine with one GPU without instances there is nothing to find out, and nobody is asked.

use super::Gpus;
use crate::core::clients::admission::Process;
use crate::core::clients::settle::BEFORE_CONTEXTS;
use crate::core::gpu::{Gpu, GpuSet, Instance, are_apart};
use crate::core::servers::questions::Purpose;
use crate::core::{Channel, Core, Effect, NoReply, Pid, ProcessKey, ServerEpoch};
use core::time::Duration;
use remps_proto::mps::client::PROCESS_CONTEXT;
use remps_proto::mps::device::{DeviceRecord, DeviceUuid};
use remps_proto::mps::server::{DeviceClients, Reply, Request};
use std::collections::{BTreeMap, BTreeSet};

/// When a client is looked at after one of its contexts was made: it tells its server of the GPU a moment later, and
/// what it takes of other GPUs may come later still.
const LOOKS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// GPUs that are remembered of a machine.
const MOST_GPUS: usize = 256;

/// A GPU of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuPlace {
    /// Its UUID, as `GPU-…`.
    pub uuid: String,
    /// Its address on the bus, as `0000:3b:00`.
    pub bus: String,
    /// The numbers of its MIG GPU instances; none when it is not cut up.
    pub instances: Vec<u32>,
}

/// A device of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Device {
    ordinal: u32,
    uuid: DeviceUuid,
    gpu: Gpu,
}

/// When a client is looked at next, and how often it was since its last context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    at: Duration,
    since: Duration,
    done: usize,
}

/// All that is known of GPUs.
#[derive(Debug, Default)]
pub(in crate::core) struct KnownGpus {
    places: Vec<GpuPlace>,
    devices: BTreeMap<ServerEpoch, Vec<Device>>,
    looks: BTreeMap<Pid, Look>,
    /// Servers whose list of contexts is under way.
    listing: BTreeSet<ServerEpoch>,
}

impl KnownGpus {
    /// Whether a fault may leave anybody of a server alone.
    pub(in crate::core) fn are_several(&self) -> bool {
        self.places.len() > 1 || self.places.iter().any(|place| !place.instances.is_empty())
    }

    /// The GPU of this UUID.
    pub(in crate::core) fn named(&self, uuid: &str) -> Option<Gpu> {
        self.places.iter().find(|place| place.uuid.eq_ignore_ascii_case(uuid)).map(|place| Gpu::new(&place.uuid))
    }

    /// The GPU at an address on the bus, or the instance of it that the kernel names by number.
    pub(in crate::core) fn at(&self, bus: &str, instance: Option<u32>) -> Option<Gpu> {
        let gpu = Gpu::new(&self.places.iter().find(|place| place.bus.eq_ignore_ascii_case(bus))?.uuid);
        Some(match instance {
            Some(number) => gpu.with_instance(Instance::Number(number)),
            None => gpu,
        })
    }

    /// The device that a server describes: a GPU, or the instance that it has of one.
    fn described(&self, record: &DeviceRecord) -> Option<Gpu> {
        if let Some(gpu) = self.named(&record.uuid.to_string()) {
            return Some(gpu);
        }
        // Which of the two numbers is the bus was never seen, since one of them was always zero.
        let address = |domain: u32, bus: u32| format!("{domain:04x}:{bus:02x}:{:02x}", record.device);
        let gpu = self.at(&address(record.domain, record.bus), None);
        let gpu = gpu.or_else(|| self.at(&address(record.bus, record.domain), None))?;
        let is_cut = self.places.iter().any(|place| place.uuid == gpu.uuid() && !place.instances.is_empty());
        is_cut.then(|| gpu.with_instance(Instance::Uuid(mig_name(record.uuid).into())))
    }

    /// The GPU of a context that a server lists.
    fn of_context(&self, server: ServerEpoch, uuid: DeviceUuid) -> Option<Gpu> {
        let own = self.devices.get(&server).into_iter().flatten().find(|device| device.uuid == uuid);
        own.map(|device| device.gpu.clone()).or_else(|| self.named(&uuid.to_string()))
    }

    /// Those that a program with this `CUDA_VISIBLE_DEVICES` can use on a server; `None` when that can't be said.
    pub(in crate::core) fn visible(&self, server: ServerEpoch, names: &str) -> Option<GpuSet> {
        let devices = self.devices.get(&server).map(Vec::as_slice).unwrap_or_default();
        let one = |name: &str| {
            if let Ok(ordinal) = name.parse::<u32>() {
                return devices.iter().find(|device| device.ordinal == ordinal).map(|device| device.gpu.clone());
            }
            let is_it = |device: &&Device| device.gpu.visible_name().is_some_and(|own| own.eq_ignore_ascii_case(name));
            devices.iter().find(is_it).map(|device| device.gpu.clone()).or_else(|| self.named(name))
        };
        names.split(',').map(|name| one(name.trim())).collect()
    }

    /// The one GPU or MIG instance of this machine that a program with this `CUDA_VISIBLE_DEVICES` sees, by its full UUID.
    /// Numbers are the server's, and would mean another GPU on a server that has one only.
    pub(in crate::core) fn only_visible(&self, names: &str) -> Option<String> {
        let name = names.trim();
        let (kind, uuid) = name.split_once('-')?;
        let is_uuid = uuid.len() == UUID_LENGTH && uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        let is_there = match kind {
            "GPU" => self.named(name).is_some(),
            // Which instances there are is known by number alone.
            "MIG" => self.places.iter().any(|place| !place.instances.is_empty()),
            _ => false,
        };
        (is_uuid && is_there).then(|| format!("{kind}-{}", uuid.to_ascii_lowercase()))
    }

    /// Whether the devices of a server are known, and this is none of them.
    fn lacks(&self, server: ServerEpoch, gpu: &Gpu) -> bool {
        self.devices.get(&server).is_some_and(|own| own.iter().all(|device| device.gpu.is_apart_from(gpu)))
    }

    /// The devices of a server, by ordinal; none when they are not known.
    pub(in crate::core) fn of_server(&self, server: ServerEpoch) -> GpuSet {
        self.devices.get(&server).into_iter().flatten().map(|device| device.gpu.clone()).collect()
    }
}

/// Characters of a UUID.
const UUID_LENGTH: usize = 36;

/// The name of a MIG instance whose UUID a server has told as if it were a GPU's.
fn mig_name(uuid: DeviceUuid) -> String {
    uuid.to_string().replacen("GPU-", "MIG-", 1)
}

impl Gpus {
    pub(in crate::core) fn devices_told(&mut self, server: ServerEpoch, reply: &Result<Reply, NoReply>) {
        let Ok(Reply::Devices(records)) = reply else {
            return;
        };
        let known = |record: &DeviceRecord| {
            let gpu = self.known.described(record)?;
            Some(Device { ordinal: record.ordinal, uuid: record.uuid, gpu })
        };
        // One that can't be told from others is any of them.
        if let Some(devices) = records.iter().map(known).collect::<Option<Vec<_>>>() {
            self.known.devices.insert(server, devices);
        }
    }

    /// A server is gone.
    pub(in crate::core) fn forget_devices_of(&mut self, server: ServerEpoch) {
        self.known.devices.remove(&server);
        self.known.listing.remove(&server);
    }

    pub(in crate::core) fn whereabouts_deadline(&self) -> Option<Duration> {
        self.known.looks.values().map(|look| look.at).min()
    }
}

impl Core {
    /// The GPUs that the machine has.
    pub(in crate::core) fn gpus_found(&mut self, mut places: Vec<GpuPlace>) {
        places.truncate(MOST_GPUS);
        // A driver that does not tell just self.turn.now has not lost its GPUs.
        if places.is_empty() || self.gpus.known.places == places {
            return;
        }
        self.gpus.known.places = places;
        let connected = self.servers.iter().filter(|server| server.is_connected());
        let connected: Vec<ServerEpoch> = connected.map(|server| server.epoch).collect();
        connected.into_iter().for_each(|server| self.ask_for_devices(server));
        let clients: Vec<Pid> = self.clients.processes().map(|(pid, _)| pid).collect();
        clients.into_iter().for_each(|pid| self.look_at(pid));
    }

    /// Has a server describe its devices, where the machine has more than one.
    pub(in crate::core) fn ask_for_devices(&mut self, server: ServerEpoch) {
        if self.gpus.known.are_several() {
            self.servers.ask(&mut self.turn, server, Request::QueryDevices, Purpose::Devices);
        }
    }

    /// A client may have another context than before: where it is has to be found out.
    pub(in crate::core) fn look_at(&mut self, pid: Pid) {
        let now = self.turn.now;
        if !self.gpus.known.are_several() {
            return;
        }
        if let Some(key) = self.clients.process(pid).map(|process| process.key(pid))
            && let Some(own) = self.clients.whereabouts_mut(key)
        {
            own.spaces = None;
            self.gpus.known.looks.insert(pid, Look { at: now + LOOKS[0], since: now, done: 0 });
        }
    }

    /// Looks at the clients whose time has come.
    pub(in crate::core) fn advance_whereabouts(&mut self) {
        let due = self.gpus.known.looks.iter().filter(|(_, look)| look.at <= self.turn.now).map(|(pid, _)| *pid);
        let due: Vec<Pid> = due.collect();
        for pid in due {
            let Some(mut look) = self.gpus.known.looks.remove(&pid) else { continue };
            let Some(process) = self.clients.process(pid) else { continue };
            let (key, server) = (process.key(pid), process.server);
            look.done += 1;
            if let Some(next) = LOOKS.get(look.done) {
                self.gpus.known.looks.insert(pid, Look { at: look.since + *next, ..look });
            }
            self.turn.push(Effect::FindGpus { process: key });
            // After a fault the lists of those that it has hit may be short.
            let is_asked = self.servers.get(server).is_some_and(|server| server.is_connected() && !server.is_lost());
            if is_asked && self.gpus.known.listing.insert(server) {
                self.servers.ask(&mut self.turn, server, Request::DeviceClients, Purpose::Contexts);
            }
        }
    }

    /// A server has listed its contexts.
    pub(in crate::core) fn contexts_told(&mut self, server: ServerEpoch, reply: Result<Reply, NoReply>) {
        self.gpus.known.listing.remove(&server);
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
            let gpu = self.gpus.known.of_context(server, device.uuid);
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
            names.and_then(|names| names.iter().map(|name| self.gpus.known.named(name)).collect::<Option<GpuSet>>());
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
        hardware.filter_map(|hardware| self.gpus.known.named(&hardware.gpu)).collect()
    }

    /// Connections of a process that it has the end of, and that its server has not accepted yet.
    fn connections_under_way(&self, pid: Pid) -> usize {
        self.clients.iter().filter(|client| client.peer.pid == pid && client.stage.has_end()).count()
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
            && self.gpus.known.are_several()
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
        if self.gpus.known.lacks(server, gpu) {
            return false;
        }
        let one = GpuSet::from([gpu.clone()]);
        let mut clients = self.clients.on(server).peekable();
        clients.peek().is_none() || clients.any(|(pid, process)| !self.is_elsewhere(pid, process, &one))
    }
}
