//! The daemon's conversation with one server.
//!
//! ```text
//! server -> daemon   role 1, then Hello
//! daemon -> server   Configuration
//! daemon -> server   Request, any number of them; the server answers in order
//! ```
//! Nothing unsolicited was ever seen from a server on this socket, not even on a fatal fault.

mod reply;
mod request;

pub use reply::{ClientContext, DeviceClients, Reply, ReplyDecoder};
pub use request::{Operation, Request, RequestDecoder};

use super::device::{DEVICE_KEY_LENGTH, DeviceKey};
use super::{DecodeError, decode_f64, decode_u32, decode_u64, exactly, pad_text, padded_text};

/// Bytes of the hello packet.
pub const HELLO_LENGTH: usize = 516;
/// Most devices of one server; the vendor's query asks for 64 records.
pub const MAX_DEVICES: u64 = 64;
/// Most clients or contexts in one list; the vendor's limit is 60 a device.
pub const MAX_CLIENTS: u64 = 64 * 1024;

/// What a server says of itself after its role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Name of its shared memory, as `mps.shm.0.519`.
    pub shared_memory: String,
    /// The last number, zero so far.
    pub flags: u32,
}

impl Hello {
    const NAME_AT: usize = 256;
    const FLAGS_AT: usize = 512;

    /// Reads the packet.
    ///
    /// # Errors
    /// [`DecodeError::Length`] when it is not 516 bytes long.
    pub fn decode(packet: &[u8]) -> Result<Self, DecodeError> {
        exactly("server hello", packet, HELLO_LENGTH)?;
        let flags = decode_u32("server flags", &packet[Self::FLAGS_AT..])?;
        Ok(Self { shared_memory: padded_text(&packet[Self::NAME_AT..Self::FLAGS_AT]), flags })
    }

    /// The packet.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut packet = vec![0; Self::NAME_AT];
        packet.extend(pad_text(&self.shared_memory, Self::FLAGS_AT - Self::NAME_AT));
        packet.extend(self.flags.to_le_bytes());
        packet
    }
}

/// How pinned memory limits are written, which differs by driver branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// 535 and 550: by ordinal. The configuration has a fixed row of limits, 0 for none.
    Ordinals,
    /// 580: by ordinal or UUID as text. The configuration has only the limits that were set.
    #[default]
    Keys,
}

/// What the daemon tells a server once, after its hello.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// Share of the GPU's threads a client may use, in percent.
    pub thread_percentage: f64,
    /// Pinned device memory a client may allocate, in bytes, in the order they were set: the last one for a device wins.
    pub pinned_limits: Vec<(DeviceKey, u64)>,
    /// Default client priority: 0 normal, 1 below normal.
    pub priority: u32,
}

impl Configuration {
    /// Limits in the configuration of [`Dialect::Ordinals`].
    const ORDINALS: usize = 32;

    /// The packets, in order, for a server of this dialect. A limit that [`Dialect::Ordinals`] has no place for is left
    /// out.
    #[must_use]
    pub fn packets_for(&self, dialect: Dialect) -> Vec<Vec<u8>> {
        if dialect == Dialect::Keys {
            return self.packets();
        }
        let mut limits = [0; Self::ORDINALS];
        for (device, bytes) in &self.pinned_limits {
            let place = device.ordinal().and_then(|ordinal| limits.get_mut(usize::try_from(ordinal).ok()?));
            if let Some(limit) = place {
                *limit = *bytes;
            }
        }
        let mut packets =
            vec![self.thread_percentage.to_le_bytes().to_vec(), (limits.len() as u64).to_le_bytes().to_vec()];
        packets.extend(limits.iter().map(|bytes: &u64| bytes.to_le_bytes().to_vec()));
        packets.push(self.priority.to_le_bytes().to_vec());
        packets
    }

    /// The packets, in order, for [`Dialect::Keys`].
    #[must_use]
    pub fn packets(&self) -> Vec<Vec<u8>> {
        let mut packets = vec![
            self.thread_percentage.to_le_bytes().to_vec(),
            (self.pinned_limits.len() as u64).to_le_bytes().to_vec(),
        ];
        for (device, bytes) in &self.pinned_limits {
            packets.push(device.encode());
            packets.push(bytes.to_le_bytes().to_vec());
        }
        packets.push(self.priority.to_le_bytes().to_vec());
        packets
    }

    /// Reads the packets of either dialect; `next` gives one after the other.
    ///
    /// # Errors
    /// `next`'s error, or [`DecodeError`] for a packet of the wrong form.
    pub fn decode<E: From<DecodeError>>(mut next: impl FnMut() -> Result<Vec<u8>, E>) -> Result<Self, E> {
        const MAX_LIMITS: u64 = 4096;
        let thread_percentage = decode_f64("thread percentage", &next()?)?;
        let count = decode_u64("limit count", &next()?)?;
        if count > MAX_LIMITS {
            return Err(DecodeError::Count { what: "limit count", count, limit: MAX_LIMITS }.into());
        }
        let mut pinned_limits = Vec::new();
        for ordinal in 0..count {
            let device = next()?;
            if device.len() == size_of::<u64>() {
                let bytes = decode_u64("memory limit", &device)?;
                if bytes != 0 {
                    pinned_limits.push((DeviceKey::from_ordinal(u32::try_from(ordinal).unwrap_or(u32::MAX)), bytes));
                }
                continue;
            }
            exactly("device key", &device, DEVICE_KEY_LENGTH)?;
            pinned_limits.push((DeviceKey::decode(&device)?, decode_u64("memory limit", &next()?)?));
        }
        let priority = decode_u32("priority", &next()?)?;
        Ok(Self { thread_percentage, pinned_limits, priority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hello_round_trips() {
        let hello = Hello { shared_memory: "mps.shm.0.519".into(), flags: 0 };
        assert_eq!(hello.encode().len(), HELLO_LENGTH);
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        assert!(Hello::decode(&[0; 515]).is_err());
    }

    #[test]
    fn the_configuration_is_the_captured_one() {
        let configuration = Configuration { thread_percentage: 100.0, pinned_limits: Vec::new(), priority: 0 };
        assert_eq!(
            configuration.packets(),
            [vec![0, 0, 0, 0, 0, 0, 0x59, 0x40], vec![0; 8], vec![0; 4]],
            "as 580.159.04 sent it"
        );
    }

    #[test]
    fn the_configuration_for_535_has_a_limit_for_each_of_32_ordinals() {
        let key = |text| DeviceKey::new(text).expect("short");
        let mut configuration = Configuration {
            thread_percentage: 33.3,
            pinned_limits: vec![(key("GPU-x"), 7), (key("0"), 1 << 30), (key("1"), 2 << 30), (key("32"), 7)],
            priority: 0,
        };
        let packets = configuration.packets_for(Dialect::Ordinals);
        let mut captured = vec![vec![0x66, 0x66, 0x66, 0x66, 0x66, 0xa6, 0x40, 0x40], vec![0x20, 0, 0, 0, 0, 0, 0, 0]];
        captured.push(vec![0, 0, 0, 0x40, 0, 0, 0, 0]);
        captured.push(vec![0, 0, 0, 0x80, 0, 0, 0, 0]);
        captured.extend(vec![vec![0; 8]; 30]);
        captured.push(vec![0; 4]);
        assert_eq!(packets, captured, "as 535.309.01 and 550.163.01 sent it");
        let mut packets = packets.into_iter();
        let decoded =
            Configuration::decode(|| packets.next().ok_or(DecodeError::Length { what: "packet", expected: 1, got: 0 }));
        configuration.pinned_limits.retain(|(device, _)| ["0", "1"].contains(&device.as_str()));
        assert_eq!(decoded, Ok(configuration));
    }

    #[test]
    fn limits_round_trip_in_order() {
        let key = |text| DeviceKey::new(text).expect("short");
        let configuration = Configuration {
            thread_percentage: 33.3,
            pinned_limits: vec![(key("0"), 1 << 30), (key("GPU-x"), 7), (key("0"), 2 << 30)],
            priority: 1,
        };
        let mut packets = configuration.packets().into_iter();
        let decoded =
            Configuration::decode(|| packets.next().ok_or(DecodeError::Length { what: "packet", expected: 1, got: 0 }));
        assert_eq!(decoded, Ok(configuration));
    }
}
