//! How devices are named and described on the server wire.

use super::{DecodeError, exactly, pad_text, padded_text};
use bytes::{Buf, BufMut};
use core::fmt;

/// Bytes of a device key: an ordinal or UUID as text, NUL-padded.
pub const DEVICE_KEY_LENGTH: usize = 41;
/// Bytes of one device in the answer to a device query.
pub const DEVICE_RECORD_LENGTH: usize = 172;
/// Bytes of one device's description in the device and client list.
pub const DEVICE_INFO_LENGTH: usize = 76;

const RECORD_NAME_LENGTH: usize = DEVICE_RECORD_LENGTH - 40;
const INFO_NAME_LENGTH: usize = DEVICE_INFO_LENGTH - 8;

/// A GPU's UUID.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DeviceUuid(pub [u8; 16]);

impl fmt::Display for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU-")?;
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The device a memory limit is for: an ordinal (`"0"`) or a UUID, as the operator typed it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceKey(String);

impl DeviceKey {
    /// The key for `text`, or `None` when it would not fit the wire's 40 characters or holds a NUL.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        (text.len() < DEVICE_KEY_LENGTH && !text.contains('\0')).then(|| Self(text.to_owned()))
    }

    /// The key of an ordinal.
    #[must_use]
    pub fn from_ordinal(ordinal: u32) -> Self {
        Self(ordinal.to_string())
    }

    /// The ordinal, unless the key is a UUID.
    #[must_use]
    pub fn ordinal(&self) -> Option<u32> {
        self.0.parse().ok()
    }

    /// The key as typed.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads the 41-byte packet.
    ///
    /// # Errors
    /// [`DecodeError::Length`] when it has another length.
    pub fn decode(packet: &[u8]) -> Result<Self, DecodeError> {
        exactly("device key", packet, DEVICE_KEY_LENGTH)?;
        Ok(Self(padded_text(&packet[..DEVICE_KEY_LENGTH - 1])))
    }

    /// The 41-byte packet.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        pad_text(&self.0, DEVICE_KEY_LENGTH)
    }
}

/// One device in the answer to a device query (operation `0x18`, driver 580).
///
/// Of the six leading numbers the ordinal and the PCI device were told apart on a machine of two GPUs (`00:06.0`,
/// `00:07.0`); bus and domain were zero there, and their order is taken from the order of CUDA's attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceRecord {
    /// CUDA ordinal in the server.
    pub ordinal: u32,
    /// PCI bus.
    pub bus: u32,
    /// PCI device.
    pub device: u32,
    /// PCI domain.
    pub domain: u32,
    /// Two numbers that were zero (`Attributes` was `N/A`).
    pub attributes: [u32; 2],
    /// UUID.
    pub uuid: DeviceUuid,
    /// Name, as `NVIDIA H200`.
    pub name: String,
}

impl DeviceRecord {
    /// Reads one 172-byte record.
    ///
    /// # Errors
    /// [`DecodeError::Length`] when it has another length.
    pub fn decode(mut packet: &[u8]) -> Result<Self, DecodeError> {
        exactly("device record", packet, DEVICE_RECORD_LENGTH)?;
        let mut numbers = [0; 6];
        for number in &mut numbers {
            *number = packet.get_u32_le();
        }
        let [ordinal, bus, device, domain, first, second] = numbers;
        let mut uuid = DeviceUuid::default();
        packet.copy_to_slice(&mut uuid.0);
        Ok(Self { ordinal, bus, device, domain, attributes: [first, second], uuid, name: padded_text(packet) })
    }

    /// The 172-byte record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut packet = Vec::with_capacity(DEVICE_RECORD_LENGTH);
        for number in [self.ordinal, self.bus, self.device, self.domain, self.attributes[0], self.attributes[1]] {
            packet.put_u32_le(number);
        }
        packet.put_slice(&self.uuid.0);
        packet.put_slice(&pad_text(&self.name, RECORD_NAME_LENGTH));
        packet
    }
}

/// A device's description in the device and client list (operation `0x07`).
///
/// The vendor prints the two numbers as if they were a PCI address (`[1] 00:01.0`); on a machine of two GPUs they were
/// zero and the ordinal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Printed before the colon.
    pub first: u32,
    /// Printed after the colon; the ordinal.
    pub second: u32,
    /// Name, as `NVIDIA H200`.
    pub name: String,
}

impl DeviceInfo {
    /// Reads the 76-byte packet.
    ///
    /// # Errors
    /// [`DecodeError::Length`] when it has another length.
    pub fn decode(mut packet: &[u8]) -> Result<Self, DecodeError> {
        exactly("device info", packet, DEVICE_INFO_LENGTH)?;
        Ok(Self { first: packet.get_u32_le(), second: packet.get_u32_le(), name: padded_text(packet) })
    }

    /// The 76-byte packet.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut packet = Vec::with_capacity(DEVICE_INFO_LENGTH);
        packet.put_u32_le(self.first);
        packet.put_u32_le(self.second);
        packet.put_slice(&pad_text(&self.name, INFO_NAME_LENGTH));
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_prints_as_nvidia_writes_it() {
        let uuid = DeviceUuid([
            0xc4, 0x04, 0x0d, 0xfb, 0xfb, 0xdd, 0xb1, 0xb2, 0xec, 0xf9, 0x74, 0x58, 0x47, 0x8c, 0xf4, 0x68,
        ]);
        assert_eq!(uuid.to_string(), "GPU-c4040dfb-fbdd-b1b2-ecf9-7458478cf468");
    }

    #[test]
    fn records_survive_a_round_trip() {
        let record = DeviceRecord {
            ordinal: 1,
            bus: 2,
            device: 7,
            domain: 3,
            attributes: [0, 0],
            uuid: DeviceUuid([7; 16]),
            name: "NVIDIA H200".into(),
        };
        assert_eq!(record.encode().len(), DEVICE_RECORD_LENGTH);
        assert_eq!(DeviceRecord::decode(&record.encode()), Ok(record));
        let info = DeviceInfo { first: 0, second: 1, name: "NVIDIA H200".into() };
        assert_eq!(DeviceInfo::decode(&info.encode()), Ok(info));
        let key = DeviceKey::new("GPU-c4040dfb-fbdd-b1b2-ecf9-7458478cf468").expect("40 characters fit");
        assert_eq!(DeviceKey::decode(&key.encode()), Ok(key));
        assert_eq!(DeviceKey::new(&"x".repeat(41)), None);
    }
}
