//! Which GPUs the machine has, and which of them a server has.
//!
//! | witness | knows |
//! |---|---|
//! | the driver's files in `/proc` | the machine's GPUs: UUID, address on the bus, MIG instances |
//! | a server's own list of devices | what its numbers of GPUs mean, and UUIDs of MIG instances |

use super::Gpus;
use crate::core::gpu::{Gpu, GpuSet, Instance};
use crate::core::ids::ServerEpoch;
use crate::core::peer::NoReply;
use remps_proto::mps::device::{DeviceRecord, DeviceUuid};
use remps_proto::mps::server::Reply;
use std::collections::BTreeMap;

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

/// All that is known of GPUs.
#[derive(Debug, Default)]
pub(in crate::core) struct KnownGpus {
    places: Vec<GpuPlace>,
    devices: BTreeMap<ServerEpoch, Vec<Device>>,
}

impl KnownGpus {
    /// The place of the GPU of this UUID, and the number that `nvidia-smi` gives it, which counts them in the order of
    /// their addresses.
    pub(in crate::core) fn place_of(&self, uuid: &str) -> Option<(usize, &GpuPlace)> {
        self.places.iter().enumerate().find(|(_, place)| place.uuid == uuid)
    }

    /// The machine has these GPUs; whether that is news. A driver that does not tell just now has not lost its GPUs.
    pub(in crate::core) fn are_found(&mut self, mut places: Vec<GpuPlace>) -> bool {
        places.truncate(MOST_GPUS);
        let is_news = !places.is_empty() && self.places != places;
        if is_news {
            self.places = places;
        }
        is_news
    }

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
    pub(in crate::core) fn of_context(&self, server: ServerEpoch, uuid: DeviceUuid) -> Option<Gpu> {
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
    pub(in crate::core) fn lacks(&self, server: ServerEpoch, gpu: &Gpu) -> bool {
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
    }
}
