//! What the daemon asks of a server.

use super::Dialect;
use crate::mps::device::DeviceKey;
use crate::mps::handshake::{DESCRIPTOR, expect_fixed};
use crate::mps::{DecodeError, decode_f64, decode_u32, decode_u64};

crate::open_enum! {
    /// Operation numbers of the server wire.
    pub struct Operation: u32 {
        /// A client's connection follows.
        NEW_CLIENT = 0x02,
        /// End when idle.
        SHUTDOWN = 0x05,
        /// Pids of the clients.
        CLIENTS = 0x06,
        /// Devices and the clients on each.
        DEVICE_CLIENTS = 0x07,
        /// Read the active thread percentage.
        GET_THREAD_PERCENTAGE = 0x08,
        /// Set the active thread percentage.
        SET_THREAD_PERCENTAGE = 0x09,
        /// Read a pinned memory limit by ordinal; until driver 550.
        GET_PINNED_LIMIT_OF_ORDINAL = 0x0b,
        /// Set a pinned memory limit by ordinal; until driver 550.
        SET_PINNED_LIMIT_OF_ORDINAL = 0x0c,
        /// Terminate a client.
        TERMINATE_CLIENT = 0x0d,
        /// Snapshot for `ps`.
        SNAPSHOT = 0x0e,
        /// Set the default client priority.
        SET_PRIORITY = 0x0f,
        /// Active or faulted.
        STATUS = 0x11,
        /// Read a pinned memory limit.
        GET_PINNED_LIMIT = 0x13,
        /// Set a pinned memory limit.
        SET_PINNED_LIMIT = 0x14,
        /// Describe the devices; since driver 580.
        QUERY_DEVICES = 0x18,
    }
}

/// Size of the answer buffer that the vendor names in a device query: 64 records and 16 bytes.
const QUERY_BUFFER: u64 = 0x2b10;
/// Confirms that a snapshot has been read.
const SNAPSHOT_READ: u32 = 0;

/// A request to a server.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Serve a client over the descriptor that goes with packet [`Request::NEW_CLIENT_DESCRIPTOR`].
    NewClient,
    /// End when idle.
    Shutdown,
    /// List client pids.
    Clients,
    /// List devices and the clients on each.
    DeviceClients,
    /// Read the active thread percentage.
    GetThreadPercentage,
    /// Set the active thread percentage; no answer.
    SetThreadPercentage(f64),
    /// Terminate the client of this pid.
    TerminateClient(u32),
    /// Snapshot of all contexts.
    Snapshot,
    /// Set the default client priority; no answer.
    SetPriority(u32),
    /// Active or faulted.
    Status,
    /// Read a device's pinned memory limit.
    GetPinnedLimit(DeviceKey),
    /// Set a device's pinned memory limit in bytes, 0 for none; no answer.
    SetPinnedLimit(DeviceKey, u64),
    /// Describe the devices.
    QueryDevices,
}

impl Request {
    /// Index of the packet of [`Request::NewClient`] that carries the descriptor.
    pub const NEW_CLIENT_DESCRIPTOR: usize = 1;

    /// The operation's number.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self {
            Self::NewClient => Operation::NEW_CLIENT,
            Self::Shutdown => Operation::SHUTDOWN,
            Self::Clients => Operation::CLIENTS,
            Self::DeviceClients => Operation::DEVICE_CLIENTS,
            Self::GetThreadPercentage => Operation::GET_THREAD_PERCENTAGE,
            Self::SetThreadPercentage(_) => Operation::SET_THREAD_PERCENTAGE,
            Self::TerminateClient(_) => Operation::TERMINATE_CLIENT,
            Self::Snapshot => Operation::SNAPSHOT,
            Self::SetPriority(_) => Operation::SET_PRIORITY,
            Self::Status => Operation::STATUS,
            Self::GetPinnedLimit(_) => Operation::GET_PINNED_LIMIT,
            Self::SetPinnedLimit(..) => Operation::SET_PINNED_LIMIT,
            Self::QueryDevices => Operation::QUERY_DEVICES,
        }
    }

    /// The packets, in order. They must be sent together: a server that has read the first waits for the rest.
    ///
    /// The vendor confirms a snapshot after reading it; here the confirmation goes along at once, since the server
    /// reads it only after it has answered, and a daemon that dies in between must not leave the server waiting.
    #[must_use]
    pub fn packets(&self) -> Vec<Vec<u8>> {
        let mut packets = vec![self.operation().0.to_le_bytes().to_vec()];
        match self {
            Self::NewClient => packets.push(DESCRIPTOR.to_vec()),
            Self::SetThreadPercentage(percentage) => packets.push(percentage.to_le_bytes().to_vec()),
            Self::TerminateClient(pid) => packets.push(pid.to_le_bytes().to_vec()),
            Self::Snapshot => packets.push(SNAPSHOT_READ.to_le_bytes().to_vec()),
            Self::SetPriority(priority) => packets.push(priority.to_le_bytes().to_vec()),
            Self::GetPinnedLimit(device) => packets.push(device.encode()),
            Self::SetPinnedLimit(device, bytes) => {
                packets.push(device.encode());
                packets.push(bytes.to_le_bytes().to_vec());
            }
            Self::QueryDevices => packets.push(QUERY_BUFFER.to_le_bytes().to_vec()),
            Self::Shutdown | Self::Clients | Self::DeviceClients | Self::GetThreadPercentage | Self::Status => {}
        }
        packets
    }

    /// The packets for a server of this dialect; `None` when the dialect has no words for it.
    #[must_use]
    pub fn packets_for(&self, dialect: Dialect) -> Option<Vec<Vec<u8>>> {
        let (operation, device) = match (self, dialect) {
            (Self::GetPinnedLimit(device), Dialect::Ordinals) => (Operation::GET_PINNED_LIMIT_OF_ORDINAL, device),
            (Self::SetPinnedLimit(device, _), Dialect::Ordinals) => (Operation::SET_PINNED_LIMIT_OF_ORDINAL, device),
            (Self::QueryDevices, Dialect::Ordinals) => return None,
            _ => return Some(self.packets()),
        };
        let mut packets = vec![operation.0.to_le_bytes().to_vec(), device.ordinal()?.to_le_bytes().to_vec()];
        if let Self::SetPinnedLimit(_, bytes) = self {
            packets.push(bytes.to_le_bytes().to_vec());
        }
        Some(packets)
    }

    /// Whether the server answers it.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        !matches!(
            self,
            Self::NewClient | Self::SetThreadPercentage(_) | Self::SetPriority(_) | Self::SetPinnedLimit(..)
        )
    }
}

/// Puts the packets of a request together on the server's side.
#[derive(Debug, Default)]
pub struct RequestDecoder {
    parts: Vec<Vec<u8>>,
}

impl RequestDecoder {
    /// Takes the next packet; gives the request when it is whole.
    ///
    /// The confirmation of a snapshot is no part of it: it comes after the answer.
    ///
    /// # Errors
    /// [`DecodeError`] when the operation is unknown or a packet has the wrong form; the decoder starts anew.
    pub fn feed(&mut self, packet: &[u8]) -> Result<Option<Request>, DecodeError> {
        self.parts.push(packet.to_vec());
        let result = Self::assemble(&self.parts);
        if !matches!(result, Ok(None)) {
            self.parts.clear();
        }
        result
    }

    fn assemble(parts: &[Vec<u8>]) -> Result<Option<Request>, DecodeError> {
        let operation = Operation(decode_u32("operation", &parts[0])?);
        let request = match (operation, &parts[1..]) {
            (Operation::SHUTDOWN, []) => Request::Shutdown,
            (Operation::CLIENTS, []) => Request::Clients,
            (Operation::DEVICE_CLIENTS, []) => Request::DeviceClients,
            (Operation::GET_THREAD_PERCENTAGE, []) => Request::GetThreadPercentage,
            (Operation::SNAPSHOT, []) => Request::Snapshot,
            (Operation::STATUS, []) => Request::Status,
            (Operation::NEW_CLIENT, [descriptor]) => {
                expect_fixed("descriptor", descriptor, DESCRIPTOR)?;
                Request::NewClient
            }
            (Operation::SET_THREAD_PERCENTAGE, [percentage]) => {
                Request::SetThreadPercentage(decode_f64("thread percentage", percentage)?)
            }
            (Operation::TERMINATE_CLIENT, [pid]) => Request::TerminateClient(decode_u32("client pid", pid)?),
            (Operation::SET_PRIORITY, [priority]) => Request::SetPriority(decode_u32("priority", priority)?),
            (Operation::GET_PINNED_LIMIT, [device]) => Request::GetPinnedLimit(DeviceKey::decode(device)?),
            (Operation::SET_PINNED_LIMIT, [device, bytes]) => {
                Request::SetPinnedLimit(DeviceKey::decode(device)?, decode_u64("memory limit", bytes)?)
            }
            (Operation::GET_PINNED_LIMIT_OF_ORDINAL, [ordinal]) => {
                Request::GetPinnedLimit(DeviceKey::from_ordinal(decode_u32("device ordinal", ordinal)?))
            }
            (Operation::SET_PINNED_LIMIT_OF_ORDINAL, [ordinal, bytes]) => {
                let device = DeviceKey::from_ordinal(decode_u32("device ordinal", ordinal)?);
                Request::SetPinnedLimit(device, decode_u64("memory limit", bytes)?)
            }
            (Operation::QUERY_DEVICES, [size]) => {
                decode_u64("answer buffer size", size)?;
                Request::QueryDevices
            }
            (
                Operation::NEW_CLIENT
                | Operation::SET_THREAD_PERCENTAGE
                | Operation::TERMINATE_CLIENT
                | Operation::SET_PRIORITY
                | Operation::GET_PINNED_LIMIT
                | Operation::SET_PINNED_LIMIT
                | Operation::GET_PINNED_LIMIT_OF_ORDINAL
                | Operation::SET_PINNED_LIMIT_OF_ORDINAL
                | Operation::QUERY_DEVICES,
                _,
            ) => return Ok(None),
            _ => return Err(DecodeError::UnknownOperation(operation.0)),
        };
        Ok(Some(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> DeviceKey {
        DeviceKey::new("0").expect("short")
    }

    #[test]
    fn requests_round_trip() {
        for request in [
            Request::NewClient,
            Request::Shutdown,
            Request::Clients,
            Request::DeviceClients,
            Request::GetThreadPercentage,
            Request::SetThreadPercentage(40.0),
            Request::TerminateClient(704),
            Request::SetPriority(1),
            Request::Status,
            Request::GetPinnedLimit(key()),
            Request::SetPinnedLimit(key(), 2 << 30),
            Request::QueryDevices,
        ] {
            let mut decoder = RequestDecoder::default();
            let mut decoded = None;
            for packet in request.packets() {
                assert_eq!(decoded, None, "no packet follows a whole request");
                decoded = decoder.feed(&packet).expect("our own packets are sound");
            }
            assert_eq!(decoded, Some(request));
        }
    }

    #[test]
    fn limits_of_the_older_dialect_go_by_ordinal() {
        let get = Request::GetPinnedLimit(DeviceKey::from_ordinal(1));
        let set = Request::SetPinnedLimit(DeviceKey::from_ordinal(1), 2 << 30);
        let captured_get = vec![vec![0x0b, 0, 0, 0], vec![1, 0, 0, 0]];
        let captured_set = vec![vec![0x0c, 0, 0, 0], vec![1, 0, 0, 0], vec![0, 0, 0, 0x80, 0, 0, 0, 0]];
        for (request, captured) in [(get, captured_get), (set, captured_set)] {
            assert_eq!(request.packets_for(Dialect::Ordinals), Some(captured.clone()), "as 535.309.01 sent it");
            let mut decoder = RequestDecoder::default();
            let decoded: Vec<_> = captured.iter().map(|packet| decoder.feed(packet).expect("captured")).collect();
            assert_eq!(decoded.last(), Some(&Some(request)));
        }
        let uuid = Request::GetPinnedLimit(DeviceKey::new("GPU-x").expect("short"));
        assert_eq!(uuid.packets_for(Dialect::Ordinals), None);
        assert_eq!(uuid.packets_for(Dialect::Keys), Some(uuid.packets()));
        assert_eq!(Request::Status.packets_for(Dialect::Ordinals), Some(Request::Status.packets()));
    }

    #[test]
    fn an_unknown_operation_is_an_error_and_the_next_request_is_read() {
        let mut decoder = RequestDecoder::default();
        assert_eq!(decoder.feed(&[0x99, 0, 0, 0]), Err(DecodeError::UnknownOperation(0x99)));
        assert_eq!(decoder.feed(&[0x11, 0, 0, 0]), Ok(Some(Request::Status)));
    }

    #[test]
    fn packets_are_the_captured_ones() {
        assert_eq!(Request::QueryDevices.packets(), [vec![0x18, 0, 0, 0], vec![0x10, 0x2b, 0, 0, 0, 0, 0, 0]]);
        let set = Request::SetPinnedLimit(key(), 2 << 30).packets();
        assert_eq!((set[0].as_slice(), set[2].as_slice()), (&[0x14, 0, 0, 0][..], &[0, 0, 0, 0x80, 0, 0, 0, 0][..]));
        assert_eq!(set[1], {
            let mut key = vec![0x30];
            key.resize(41, 0);
            key
        });
    }
}
