//! The GPUs that the simulation pretends to have.
//!
//! `MPS_SIM_DEVICES` is a comma-separated list of names (default: one `NVIDIA H200`); a bare number means that many of
//! the default. UUIDs and PCI addresses follow from the position, so that server and library agree on them.
//!
//! `MPS_SIM_MIG` cuts GPUs up: `1:5,1:6` gives the second one the GPU instances 5 and 6, each with a number and a UUID of
//! its own. What a process sees of all that is what its `CUDA_VISIBLE_DEVICES` names, by number or UUID; without it all
//! GPUs that are whole, or the first instance. [`tell`] writes the files with which NVIDIA's driver tells of them.

use crate::script::Script;
use remps_proto::mps::device::{DeviceInfo, DeviceRecord, DeviceUuid};
use std::path::Path;
use std::{fs, io};

/// Name of a device when nothing else is scripted.
pub const DEFAULT_NAME: &str = "NVIDIA H200";
/// PCI device number of the first GPU, as on the machine that was measured.
const FIRST_PCI_DEVICE: u32 = 6;
/// Number of the first MIG instance, behind all GPUs.
const FIRST_INSTANCE: u32 = 48;
/// Most devices of one server on the wire.
const MAX_DEVICES: usize = 64;

/// One pretended GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The number that the hardware has for it. A process counts those that it sees.
    pub ordinal: u32,
    /// Name, as `NVIDIA H200`.
    pub name: String,
    /// UUID.
    pub uuid: DeviceUuid,
    /// PCI device number; domain and bus are zero.
    pub pci_device: u32,
    /// The GPU instance that it is of its GPU.
    pub instance: Option<u32>,
}

impl Device {
    fn new(ordinal: u32, name: &str) -> Self {
        let mut uuid = *b"\x5e\x90\x00\x00mps-sim\x00\x00\x00\x00\x00";
        uuid[12..].copy_from_slice(&ordinal.to_be_bytes());
        Self {
            ordinal,
            name: name.to_owned(),
            uuid: DeviceUuid(uuid),
            pci_device: FIRST_PCI_DEVICE + ordinal,
            instance: None,
        }
    }

    /// An instance of it, which is the machine's of this number.
    fn cut(&self, number: u32, instance: u32) -> Self {
        let mut uuid = self.uuid;
        uuid.0[4..8].copy_from_slice(&instance.to_be_bytes());
        let name = format!("{} MIG 1g.18gb", self.name);
        Self { ordinal: FIRST_INSTANCE + number, name, uuid, pci_device: self.pci_device, instance: Some(instance) }
    }

    /// What `CUDA_VISIBLE_DEVICES` calls it.
    #[must_use]
    pub fn visible_name(&self) -> String {
        let name = self.uuid.to_string();
        if self.instance.is_some() { name.replacen("GPU-", "MIG-", 1) } else { name }
    }

    /// What the UVM driver calls it: of an instance something that nobody else knows.
    #[must_use]
    pub fn uvm_uuid(&self) -> [u8; 16] {
        let mut uuid = self.uuid.0;
        uuid[0] ^= if self.instance.is_some() { 0xff } else { 0 };
        uuid
    }

    /// Its address on the bus, as the kernel writes it.
    #[must_use]
    pub fn bus(&self) -> String {
        format!("0000:00:{:02x}", self.pci_device)
    }

    /// The record of a device query, in which it has this number.
    #[must_use]
    pub fn record(&self, ordinal: u32) -> DeviceRecord {
        DeviceRecord {
            ordinal,
            bus: 0,
            device: self.pci_device,
            domain: 0,
            attributes: [0; 2],
            uuid: self.uuid,
            name: self.name.clone(),
        }
    }

    /// The description in the device and client list.
    #[must_use]
    pub fn info(&self) -> DeviceInfo {
        DeviceInfo { first: 0, second: self.ordinal, name: self.name.clone() }
    }
}

/// The GPUs of the machine that the script asks for.
fn gpus(script: &Script) -> Vec<Device> {
    let text = script.text("MPS_SIM_DEVICES").unwrap_or_else(|| "1".to_owned());
    let names: Vec<&str> = match text.parse::<usize>() {
        Ok(count) => vec![DEFAULT_NAME; count.min(MAX_DEVICES)],
        Err(_) => text.split(',').map(str::trim).take(MAX_DEVICES).collect(),
    };
    (0..).zip(names).map(|(ordinal, name)| Device::new(ordinal, name)).collect()
}

/// Which GPU has which instances.
fn instances(script: &Script) -> Vec<(u32, u32)> {
    let text = script.text("MPS_SIM_MIG").unwrap_or_default();
    let pair = |pair: &str| {
        let (gpu, instance) = pair.split_once(':')?;
        Some((gpu.trim().parse().ok()?, instance.trim().parse().ok()?))
    };
    text.split(',').filter_map(pair).collect()
}

/// All devices of the machine: the whole GPUs, then the instances of the others.
#[must_use]
pub fn machine(script: &Script) -> Vec<Device> {
    let (gpus, instances) = (gpus(script), instances(script));
    let is_whole = |gpu: &&Device| instances.iter().all(|(cut, _)| *cut != gpu.ordinal);
    let cut = (0..).zip(&instances).filter_map(|(number, (gpu, instance))| {
        Some(gpus.iter().find(|known| known.ordinal == *gpu)?.cut(number, *instance))
    });
    gpus.iter().filter(is_whole).cloned().chain(cut).collect()
}

/// The devices that this process sees.
#[must_use]
pub fn devices(script: &Script) -> Vec<Device> {
    seen(machine(script), std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref())
}

/// The devices that this process sees under MPS: of those of its server, whose numbers it counts by. A server that was
/// given the second GPU alone has a first one for its clients.
#[must_use]
pub fn devices_of_server(script: &Script, ordinals: &[u32]) -> Vec<Device> {
    let machine = machine(script);
    let of_server = ordinals.iter().filter_map(|ordinal| machine.iter().find(|device| device.ordinal == *ordinal));
    let of_server: Vec<Device> = of_server.cloned().collect();
    seen_of(of_server, std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref())
}

/// Numbers are places among them.
fn seen_of(of_server: Vec<Device>, names: Option<&str>) -> Vec<Device> {
    let Some(names) = names else { return of_server };
    let one = |name: &str| match name.parse::<usize>() {
        Ok(place) => of_server.get(place).cloned(),
        Err(_) => of_server.iter().find(|device| device.visible_name() == name).cloned(),
    };
    names.split(',').map_while(|name| one(name.trim())).collect()
}

/// CUDA stops at the first name that means nothing.
fn seen(all: Vec<Device>, names: Option<&str>) -> Vec<Device> {
    let Some(names) = names else {
        let whole: Vec<Device> = all.iter().filter(|device| device.instance.is_none()).cloned().collect();
        return if whole.is_empty() { all.into_iter().take(1).collect() } else { whole };
    };
    let one = |name: &str| {
        let is_it = |device: &&Device| device.visible_name() == name || device.ordinal.to_string() == name;
        all.iter().find(is_it).cloned()
    };
    names.split(',').map_while(|name| one(name.trim())).collect()
}

/// Writes what NVIDIA's driver has in `/proc/driver/nvidia` of these GPUs.
///
/// # Errors
/// When the folder can't be written.
pub fn tell(script: &Script, root: &Path) -> io::Result<()> {
    for gpu in gpus(script) {
        let folder = root.join("gpus").join(format!("{}.0", gpu.bus()));
        fs::create_dir_all(&folder)?;
        let (name, uuid, number) = (&gpu.name, gpu.uuid, gpu.ordinal);
        let text = format!("Model: \t\t {name}\nGPU UUID: \t {uuid}\nDevice Minor: \t {number}\n");
        fs::write(folder.join("information"), text)?;
    }
    for (gpu, instance) in instances(script) {
        fs::create_dir_all(root.join(format!("capabilities/gpu{gpu}/mig/gi{instance}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_come_by_number_and_by_name_and_differ() {
        let two = machine(&Script::parse("MPS_SIM_DEVICES=2"));
        assert_eq!(two.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), [DEFAULT_NAME; 2]);
        assert_ne!(two[0].uuid, two[1].uuid);
        assert_eq!(two[1].pci_device, 7);
        assert_eq!(two[0].uuid.to_string(), "GPU-5e900000-6d70-732d-7369-6d0000000000");
        let named = machine(&Script::parse("MPS_SIM_DEVICES=NVIDIA A, NVIDIA B"));
        let cut = machine(&Script::parse("MPS_SIM_DEVICES=2\nMPS_SIM_MIG=1:5,1:6"));
        let names: Vec<_> = cut.iter().map(Device::visible_name).collect();
        assert_eq!((cut.len(), cut[1].pci_device, cut[1].instance, cut[2].instance), (3, 7, Some(5), Some(6)));
        let seen =
            |names: Option<&str>| seen(cut.clone(), names).iter().map(|device| device.ordinal).collect::<Vec<_>>();
        assert_eq!((seen(None), seen(Some("0")), seen(Some("7,0"))), (vec![0], vec![0], vec![]));
        assert_eq!(seen(Some(&format!("{},{}", names[2], names[0]))), [49, 0]);
        assert_eq!(names[1], "MIG-5e900000-0000-0005-7369-6d0000000001");
        assert_eq!(named.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), ["NVIDIA A", "NVIDIA B"]);
    }

    #[test]
    fn who_is_under_a_server_counts_the_servers_devices() {
        let all = machine(&Script::parse("MPS_SIM_DEVICES=3"));
        let second = vec![all[1].clone()];
        let seen = |of_server: &[Device], names: Option<&str>| -> Vec<u32> {
            seen_of(of_server.to_vec(), names).iter().map(|device| device.ordinal).collect()
        };
        assert_eq!([seen(&second, None), seen(&second, Some("0"))], [[1], [1]]);
        assert_eq!(seen(&second, Some("1")), [0; 0], "there is no second one");
        assert_eq!(seen(&second, Some(&all[1].visible_name())), [1]);
        assert_eq!(seen(&second, Some(&all[0].visible_name())), [0; 0]);
        assert_eq!(seen(&all, Some("2,0")), [2, 0]);
    }
}
