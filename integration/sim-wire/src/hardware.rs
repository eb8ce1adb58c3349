//! The GPUs that the simulation pretends to have.
//!
//! `MPS_SIM_DEVICES` is a comma-separated list of names (default: one `NVIDIA H200`); a bare number means that many of
//! the default. UUIDs and PCI addresses follow from the position, so that server and library agree on them.

use crate::script::Script;
use remps_proto::mps::device::{DeviceInfo, DeviceRecord, DeviceUuid};

/// Name of a device when nothing else is scripted.
pub const DEFAULT_NAME: &str = "NVIDIA H200";
/// PCI device number of the first GPU, as on the machine that was measured.
const FIRST_PCI_DEVICE: u32 = 6;
/// Most devices of one server on the wire.
const MAX_DEVICES: usize = 64;

/// One pretended GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// CUDA ordinal.
    pub ordinal: u32,
    /// Name, as `NVIDIA H200`.
    pub name: String,
    /// UUID.
    pub uuid: DeviceUuid,
    /// PCI device number; domain and bus are zero.
    pub pci_device: u32,
}

impl Device {
    fn new(ordinal: u32, name: &str) -> Self {
        let mut uuid = *b"\x5e\x90\x00\x00mps-sim\x00\x00\x00\x00\x00";
        uuid[12..].copy_from_slice(&ordinal.to_be_bytes());
        Self { ordinal, name: name.to_owned(), uuid: DeviceUuid(uuid), pci_device: FIRST_PCI_DEVICE + ordinal }
    }

    /// The record of a device query.
    #[must_use]
    pub fn record(&self) -> DeviceRecord {
        DeviceRecord {
            ordinal: self.ordinal,
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

/// The devices that the script asks for.
#[must_use]
pub fn devices(script: &Script) -> Vec<Device> {
    let text = script.text("MPS_SIM_DEVICES").unwrap_or_else(|| "1".to_owned());
    let names: Vec<&str> = match text.parse::<usize>() {
        Ok(count) => vec![DEFAULT_NAME; count.min(MAX_DEVICES)],
        Err(_) => text.split(',').map(str::trim).take(MAX_DEVICES).collect(),
    };
    (0..).zip(names).map(|(ordinal, name)| Device::new(ordinal, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_come_by_number_and_by_name_and_differ() {
        let two = devices(&Script::parse("MPS_SIM_DEVICES=2"));
        assert_eq!(two.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), [DEFAULT_NAME; 2]);
        assert_ne!(two[0].uuid, two[1].uuid);
        assert_eq!(two[1].pci_device, 7);
        assert_eq!(two[0].uuid.to_string(), "GPU-5e900000-6d70-732d-7369-6d0000000000");
        let named = devices(&Script::parse("MPS_SIM_DEVICES=NVIDIA A, NVIDIA B"));
        assert_eq!(named.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), ["NVIDIA A", "NVIDIA B"]);
    }
}
