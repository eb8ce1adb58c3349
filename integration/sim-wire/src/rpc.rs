//! What the simulated library and the simulated server say over their pipes once the real handshake is done.
//!
//! NVIDIA's own messages there are not known; these are ours and as few as the simulation needs. A message is `u32`
//! operation, `u32` length and that many bytes, all little-endian. Commands go from client to server, the reply comes
//! on the first pair of pipes; notices go from server to client on the second pair.

use bytes::{Buf, BufMut};
use std::io::{self, Read, Write};

/// Longest payload of a message.
pub const MAX_PAYLOAD: usize = 256;
const HEADER: usize = 8;

/// Client to server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// The connection is for a context on the device of this ordinal; answered with [`Attached`].
    Attach(u32),
    /// A kernel of this context has faulted with this `CUresult`; not answered.
    Fault(u32),
    /// Which devices the server has; answered with their ordinals.
    Devices,
}

/// Server to client, unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A memory fault has happened on the context's device: its channels are lost with this `CUresult`, even if the
    /// server dies before everyone is told.
    Doom(u32),
    /// The context's device is lost with this `CUresult`.
    Poison(u32),
    /// The operator has terminated the client: stop the work and close the connection.
    Terminate,
}

/// What a context may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attached {
    /// Share of the device's threads, in percent.
    pub thread_percentage: f64,
    /// Pinned device memory in bytes; 0 for no limit.
    pub pinned_limit: u64,
}

const ATTACH: u32 = 1;
const FAULT: u32 = 2;
const ATTACHED: u32 = 3;
const POISON: u32 = 4;
const TERMINATE: u32 = 5;
const DOOM: u32 = 6;
const DEVICES: u32 = 7;
const HAS: u32 = 8;

/// A message as it travels: operation and payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message(u32, Vec<u8>);

impl From<Command> for Message {
    fn from(command: Command) -> Self {
        match command {
            Command::Attach(device) => Self(ATTACH, device.to_le_bytes().to_vec()),
            Command::Fault(status) => Self(FAULT, status.to_le_bytes().to_vec()),
            Command::Devices => Self(DEVICES, Vec::new()),
        }
    }
}

impl From<Notice> for Message {
    fn from(notice: Notice) -> Self {
        match notice {
            Notice::Doom(status) => Self(DOOM, status.to_le_bytes().to_vec()),
            Notice::Poison(status) => Self(POISON, status.to_le_bytes().to_vec()),
            Notice::Terminate => Self(TERMINATE, Vec::new()),
        }
    }
}

impl From<Attached> for Message {
    fn from(attached: Attached) -> Self {
        let mut payload = Vec::new();
        payload.put_f64_le(attached.thread_percentage);
        payload.put_u64_le(attached.pinned_limit);
        Self(ATTACHED, payload)
    }
}

impl Message {
    /// The command it carries.
    #[must_use]
    pub fn command(&self) -> Option<Command> {
        if self.0 == DEVICES {
            return Some(Command::Devices);
        }
        let number = self.1.as_slice().try_get_u32_le().ok()?;
        match self.0 {
            ATTACH => Some(Command::Attach(number)),
            FAULT => Some(Command::Fault(number)),
            _ => None,
        }
    }

    /// The notice it carries.
    #[must_use]
    pub fn notice(&self) -> Option<Notice> {
        match self.0 {
            DOOM => self.1.as_slice().try_get_u32_le().ok().map(Notice::Doom),
            POISON => self.1.as_slice().try_get_u32_le().ok().map(Notice::Poison),
            TERMINATE => Some(Notice::Terminate),
            _ => None,
        }
    }

    /// The reply it carries.
    #[must_use]
    pub fn attached(&self) -> Option<Attached> {
        let mut payload = self.1.as_slice();
        (self.0 == ATTACHED && payload.len() == 16)
            .then(|| Attached { thread_percentage: payload.get_f64_le(), pinned_limit: payload.get_u64_le() })
    }

    /// Which devices a server has, by their ordinals, in the order in which its clients count them.
    #[must_use]
    pub fn of_devices(ordinals: impl Iterator<Item = u32>) -> Self {
        Self(HAS, ordinals.take(MAX_PAYLOAD / 4).flat_map(u32::to_le_bytes).collect())
    }

    /// These ordinals.
    #[must_use]
    pub fn devices(&self) -> Option<Vec<u32>> {
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_le_bytes);
        (self.0 == HAS).then(|| self.1.chunks(4).map_while(number).collect())
    }

    /// The bytes on the pipe.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.1.len());
        bytes.put_u32_le(self.0);
        bytes.put_u32_le(u32::try_from(self.1.len()).expect("a payload of ours is short"));
        bytes.put_slice(&self.1);
        bytes
    }

    /// Writes it in one piece: a pipe takes that many bytes whole or not at all.
    ///
    /// # Errors
    /// The system call's.
    pub fn write(&self, mut pipe: impl Write) -> io::Result<()> {
        pipe.write_all(&self.encode())
    }

    /// Reads one, blocking; `None` when the other end has closed.
    ///
    /// # Errors
    /// The system call's; `InvalidData` for a message that is longer than any of ours, `UnexpectedEof` for half of one.
    pub fn read(mut pipe: impl Read) -> io::Result<Option<Self>> {
        let mut header = [0; HEADER];
        if pipe.read(&mut header[..1])? == 0 {
            return Ok(None);
        }
        pipe.read_exact(&mut header[1..])?;
        let (operation, length) = Self::header(&header)?;
        let mut payload = vec![0; length];
        pipe.read_exact(&mut payload)?;
        Ok(Some(Self(operation, payload)))
    }

    fn header(mut header: &[u8]) -> io::Result<(u32, usize)> {
        let operation = header.get_u32_le();
        match usize::try_from(header.get_u32_le()) {
            Ok(length) if length <= MAX_PAYLOAD => Ok((operation, length)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a message longer than any of ours")),
        }
    }

    /// Takes one off the front of what has been read so far; `None` until it is whole.
    ///
    /// # Errors
    /// `InvalidData` for a message that is longer than any of ours.
    pub fn take(buffer: &mut Vec<u8>) -> io::Result<Option<Self>> {
        if buffer.len() < HEADER {
            return Ok(None);
        }
        let (operation, length) = Self::header(&buffer[..HEADER])?;
        if buffer.len() < HEADER + length {
            return Ok(None);
        }
        let payload = buffer[HEADER..HEADER + length].to_vec();
        buffer.drain(..HEADER + length);
        Ok(Some(Self(operation, payload)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_in_pieces_and_whole() {
        let attached = Attached { thread_percentage: 40.0, pinned_limit: 1 << 30 };
        let messages: [Message; 4] =
            [Command::Attach(1).into(), Command::Fault(700).into(), attached.into(), Notice::Terminate.into()];
        let bytes: Vec<u8> = messages.iter().flat_map(Message::encode).collect();
        let mut buffer = Vec::new();
        let mut taken = Vec::new();
        for byte in &bytes {
            buffer.push(*byte);
            taken.extend(Message::take(&mut buffer).expect("sound"));
        }
        assert_eq!(taken, messages);
        assert_eq!(taken[0].command(), Some(Command::Attach(1)));
        assert_eq!(taken[2].attached(), Some(attached));
        assert_eq!(taken[3].notice(), Some(Notice::Terminate));
        assert_eq!(taken[3].command(), None);
        let mut pipe = bytes.as_slice();
        for message in &messages {
            assert_eq!(Message::read(&mut pipe).expect("sound").as_ref(), Some(message));
        }
        assert_eq!(Message::read(&mut pipe).expect("closed"), None);
    }

    #[test]
    fn garbage_is_an_error_and_not_an_allocation() {
        let mut buffer = vec![0xff; 64];
        assert!(Message::take(&mut buffer).is_err());
        assert!(Message::read([0xff; 64].as_slice()).is_err());
    }
}
