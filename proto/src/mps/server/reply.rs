//! What a server answers.

use super::{MAX_CLIENTS, MAX_DEVICES, Request};
use crate::mps::device::{DEVICE_RECORD_LENGTH, DeviceInfo, DeviceRecord, DeviceUuid};
use crate::mps::{DecodeError, decode_f64, decode_u32, decode_u64, exactly};
use bytes::{Buf, BufMut};

const CLIENT_CONTEXT_LENGTH: usize = 40;

/// One context of one client process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientContext {
    /// The client's pid in the server's namespace.
    pub pid: u32,
    /// Context id; 0 is the process connection.
    pub context: u32,
    /// A number that was zero.
    pub reserved: u64,
    /// The GPU; zero in the device and client list.
    pub device: DeviceUuid,
    /// The server's number for the client, shown by `ps`; zero in the device and client list.
    pub id: u64,
}

impl ClientContext {
    fn decode(mut packet: &[u8]) -> Result<Self, DecodeError> {
        exactly("client context", packet, CLIENT_CONTEXT_LENGTH)?;
        let (pid, context, reserved) = (packet.get_u32_le(), packet.get_u32_le(), packet.get_u64_le());
        let mut device = DeviceUuid::default();
        packet.copy_to_slice(&mut device.0);
        Ok(Self { pid, context, reserved, device, id: packet.get_u64_le() })
    }

    fn encode(&self) -> Vec<u8> {
        let mut packet = Vec::with_capacity(CLIENT_CONTEXT_LENGTH);
        packet.put_u32_le(self.pid);
        packet.put_u32_le(self.context);
        packet.put_u64_le(self.reserved);
        packet.put_slice(&self.device.0);
        packet.put_u64_le(self.id);
        packet
    }
}

/// A device and the client contexts on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceClients {
    /// UUID.
    pub uuid: DeviceUuid,
    /// Description.
    pub info: DeviceInfo,
    /// Contexts on it.
    pub clients: Vec<ClientContext>,
}

/// A server's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// To [`Request::Shutdown`]: worker threads still active; 0 means that it ends now.
    ActiveWorkers(u32),
    /// To [`Request::Clients`]: pids.
    Clients(Vec<u32>),
    /// To [`Request::DeviceClients`].
    DeviceClients(Vec<DeviceClients>),
    /// To [`Request::GetThreadPercentage`].
    ThreadPercentage(f64),
    /// To [`Request::TerminateClient`]: 0 is done, anything else a `CUresult`.
    Terminated(u32),
    /// To [`Request::Snapshot`].
    Snapshot(Vec<ClientContext>),
    /// To [`Request::Status`]: true is active, false is faulted.
    Active(bool),
    /// To [`Request::GetPinnedLimit`]: bytes, 0 for none.
    PinnedLimit(u64),
    /// To [`Request::QueryDevices`].
    Devices(Vec<DeviceRecord>),
}

impl Reply {
    /// The packets, in order.
    #[must_use]
    pub fn packets(&self) -> Vec<Vec<u8>> {
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes().to_vec();
        match self {
            Self::ActiveWorkers(number) | Self::Terminated(number) => vec![number.to_le_bytes().to_vec()],
            Self::Active(active) => vec![u32::from(*active).to_le_bytes().to_vec()],
            Self::ThreadPercentage(percentage) => vec![percentage.to_le_bytes().to_vec()],
            Self::PinnedLimit(bytes) => vec![bytes.to_le_bytes().to_vec()],
            Self::Clients(pids) => {
                let pids = pids.iter().map(|pid| pid.to_le_bytes().to_vec());
                core::iter::once(count(pids.len())).chain(pids).collect()
            }
            Self::Snapshot(contexts) => {
                core::iter::once(count(contexts.len())).chain(contexts.iter().map(ClientContext::encode)).collect()
            }
            Self::Devices(devices) => {
                core::iter::once(count(devices.len())).chain(devices.iter().map(DeviceRecord::encode)).collect()
            }
            Self::DeviceClients(devices) => {
                let mut packets = vec![count(devices.len())];
                for device in devices {
                    packets.push(device.uuid.0.to_vec());
                    packets.push(device.info.encode());
                    packets.push(count(device.clients.len()));
                    packets.extend(device.clients.iter().map(ClientContext::encode));
                }
                packets
            }
        }
    }
}

/// Puts the packets of one answer together.
#[derive(Debug)]
pub struct ReplyDecoder {
    state: State,
}

#[derive(Debug)]
enum State {
    Single(Single),
    Clients(Option<u64>, Vec<u32>),
    Snapshot(Option<u64>, Vec<ClientContext>),
    Devices(Option<u64>, Vec<DeviceRecord>),
    DeviceClients(Option<u64>, Vec<DeviceClients>, Partial),
}

#[derive(Debug, Clone, Copy)]
enum Single {
    ActiveWorkers,
    Terminated,
    Active,
    ThreadPercentage,
    PinnedLimit,
}

/// A device of which not all packets have come.
#[derive(Debug)]
enum Partial {
    None,
    Uuid(DeviceUuid),
    Info(DeviceUuid, DeviceInfo),
    Clients(DeviceClients, u64),
}

fn count(what: &'static str, packet: &[u8], limit: u64) -> Result<u64, DecodeError> {
    let count = u64::from(decode_u32(what, packet)?);
    if count > limit { Err(DecodeError::Count { what, count, limit }) } else { Ok(count) }
}

/// Reads the count first and then one item a packet.
fn list<T>(
    total: &mut Option<u64>,
    items: &mut Vec<T>,
    packet: &[u8],
    (what, limit): (&'static str, u64),
    item: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
) -> Result<Option<Vec<T>>, DecodeError> {
    match *total {
        None => *total = Some(count(what, packet, limit)?),
        Some(_) => items.push(item(packet)?),
    }
    Ok((Some(items.len() as u64) == *total).then(|| core::mem::take(items)))
}

impl ReplyDecoder {
    /// For the answer to `request`; `None` when it has none.
    #[must_use]
    pub fn new(request: &Request) -> Option<Self> {
        let state = match request {
            Request::Shutdown => State::Single(Single::ActiveWorkers),
            Request::TerminateClient(_) => State::Single(Single::Terminated),
            Request::Status => State::Single(Single::Active),
            Request::GetThreadPercentage => State::Single(Single::ThreadPercentage),
            Request::GetPinnedLimit(_) => State::Single(Single::PinnedLimit),
            Request::Clients => State::Clients(None, Vec::new()),
            Request::Snapshot => State::Snapshot(None, Vec::new()),
            Request::QueryDevices => State::Devices(None, Vec::new()),
            Request::DeviceClients => State::DeviceClients(None, Vec::new(), Partial::None),
            Request::NewClient
            | Request::SetThreadPercentage(_)
            | Request::SetPriority(_)
            | Request::SetPinnedLimit(..) => return None,
        };
        Some(Self { state })
    }

    /// Takes the next packet; gives the answer when it is whole.
    ///
    /// # Errors
    /// [`DecodeError`] when the packet has the wrong form; the conversation can't be followed any longer then.
    pub fn feed(&mut self, packet: &[u8]) -> Result<Option<Reply>, DecodeError> {
        match &mut self.state {
            State::Single(single) => Ok(Some(match single {
                Single::ActiveWorkers => Reply::ActiveWorkers(decode_u32("active workers", packet)?),
                Single::Terminated => Reply::Terminated(decode_u32("termination status", packet)?),
                Single::Active => Reply::Active(decode_u32("server status", packet)? != 0),
                Single::ThreadPercentage => Reply::ThreadPercentage(decode_f64("thread percentage", packet)?),
                Single::PinnedLimit => Reply::PinnedLimit(decode_u64("memory limit", packet)?),
            })),
            State::Clients(total, pids) => {
                let pid = |packet: &[u8]| decode_u32("client pid", packet);
                Ok(list(total, pids, packet, ("client count", MAX_CLIENTS), pid)?.map(Reply::Clients))
            }
            State::Snapshot(total, contexts) => {
                let what = ("context count", MAX_CLIENTS);
                Ok(list(total, contexts, packet, what, ClientContext::decode)?.map(Reply::Snapshot))
            }
            State::Devices(total, devices) => {
                let what = ("device count", MAX_DEVICES);
                Ok(list(total, devices, packet, what, DeviceRecord::decode)?.map(Reply::Devices))
            }
            State::DeviceClients(total, devices, partial) => {
                if total.is_none() {
                    *total = Some(count("device count", packet, MAX_DEVICES)?);
                } else {
                    *partial = partial.feed(packet)?;
                    if let Partial::Clients(device, due) = partial
                        && device.clients.len() as u64 == *due
                    {
                        let Partial::Clients(device, _) = core::mem::replace(partial, Partial::None) else {
                            unreachable!("it has just been matched")
                        };
                        devices.push(device);
                    }
                }
                let whole = Some(devices.len() as u64) == *total;
                Ok(whole.then(|| Reply::DeviceClients(core::mem::take(devices))))
            }
        }
    }
}

impl Partial {
    /// The state after one more packet.
    fn feed(&mut self, packet: &[u8]) -> Result<Self, DecodeError> {
        Ok(match core::mem::replace(self, Self::None) {
            Self::None => {
                exactly("device uuid", packet, 16)?;
                let mut uuid = DeviceUuid::default();
                uuid.0.copy_from_slice(packet);
                Self::Uuid(uuid)
            }
            Self::Uuid(uuid) => Self::Info(uuid, DeviceInfo::decode(packet)?),
            Self::Info(uuid, info) => {
                let due = count("client count", packet, MAX_CLIENTS)?;
                Self::Clients(DeviceClients { uuid, info, clients: Vec::new() }, due)
            }
            Self::Clients(mut device, due) => {
                device.clients.push(ClientContext::decode(packet)?);
                Self::Clients(device, due)
            }
        })
    }
}

const _: () = assert!(DEVICE_RECORD_LENGTH * 64 + 16 == 0x2b10, "the vendor's query buffer holds 64 records");

#[cfg(test)]
mod tests;
