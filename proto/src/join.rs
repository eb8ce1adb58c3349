//! The wire between the daemon of a node and a thin one that has joined it (`--join`), on the socket [`SOCKET_NAME`].
//!
//! ```text
//! thin -> node   1 + u32 version + name + devices (+ limits (+ replay)), with a descriptor: the thin daemon's pipe directory
//! thin -> node   2 + u8, with a descriptor: a command line's connection, and whether it is the thin daemon's owner's
//! thin -> node   3: the thin daemon ends
//! node -> thin   1 + name: it has joined under this name
//! node -> thin   2 + text: it may not, and why
//! node -> thin   3 + text: it is to end, and why
//! node -> thin   4 + limits: what its server's clients may have now, which it says again when it joins again
//! ```
//! One message is one packet of at most [`MAX_PACKET`] bytes. A text is a `u16`, little-endian, and so many bytes of UTF-8.
//! What neither side knows yet is passed over, so that a later release can say more.

use bytes::{Buf, BufMut};

/// The socket's name in the node daemon's pipe directory.
pub const SOCKET_NAME: &str = "control_join";
/// The version of this wire.
pub const VERSION: u32 = 1;
/// Longest packet.
pub const MAX_PACKET: usize = 4096;
/// Longest text; what is longer is cut when it is sent.
pub const MAX_TEXT: usize = 2000;

const FIRST: u8 = 1;
const SECOND: u8 = 2;
const THIRD: u8 = 3;
const FOURTH: u8 = 4;

/// Why a packet can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It ends too soon.
    #[error("it ends too soon")]
    Short,
    /// It goes on behind its end.
    #[error("it is too long")]
    Long,
    /// A text is no UTF-8 or too long.
    #[error("a text in it is none")]
    Text,
}

/// From the thin daemon to the one of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToNode {
    /// It wants to join; its pipe directory comes along.
    Hello {
        /// The version of the wire that it speaks.
        version: u32,
        /// What its server is called.
        name: String,
        /// The GPUs that its clients may use, as `CUDA_VISIBLE_DEVICES` has them; empty is all.
        devices: String,
        /// What it was told of limits by a daemon that is gone; empty is nothing, and not said at all.
        limits: String,
        /// What its own configuration has for programs that have the preload library and say nothing
        /// ([`ProgramDefaults`](crate::shim::ProgramDefaults)); empty is nothing, and not said at all.
        replay: String,
    },
    /// Somebody has connected to its privileged socket; the connection comes along.
    Visitor {
        /// Whether that is the thin daemon's owner.
        is_owner: bool,
    },
    /// It ends, and its server with it.
    Leave,
    /// Something that a later release says.
    Unknown(u8),
}

/// From the daemon of the node to the thin one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToThin {
    /// It has joined.
    Joined {
        /// What its server is called.
        name: String,
    },
    /// It may not join.
    Refused(String),
    /// Its server is gone.
    Ended(String),
    /// What its server's clients may have now.
    Limits(String),
    /// Something that a later release says.
    Unknown(u8),
}

fn put_text(packet: &mut Vec<u8>, text: &str) {
    let end = text.floor_char_boundary(MAX_TEXT);
    let text = &text.as_bytes()[..end];
    packet.put_u16_le(u16::try_from(text.len()).unwrap_or_default());
    packet.put_slice(text);
}

fn take_text(packet: &mut &[u8]) -> Result<String, DecodeError> {
    let length = usize::from(packet.try_get_u16_le().map_err(|_| DecodeError::Short)?);
    let (text, rest) = packet.split_at_checked(length).ok_or(DecodeError::Short)?;
    *packet = rest;
    if length > MAX_TEXT {
        return Err(DecodeError::Text);
    }
    String::from_utf8(text.to_vec()).map_err(|_| DecodeError::Text)
}

/// One that is not there where it would be empty.
fn take_last_text(packet: &mut &[u8]) -> Result<String, DecodeError> {
    if packet.is_empty() { Ok(String::new()) } else { take_text(packet) }
}

fn take_byte(packet: &mut &[u8]) -> Result<u8, DecodeError> {
    packet.try_get_u8().map_err(|_| DecodeError::Short)
}

fn whole<T>(packet: &[u8], message: T) -> Result<T, DecodeError> {
    if packet.is_empty() { Ok(message) } else { Err(DecodeError::Long) }
}

impl ToNode {
    /// Reads a packet.
    ///
    /// # Errors
    /// [`DecodeError`] when it is none of a kind that is known.
    pub fn decode(mut packet: &[u8]) -> Result<Self, DecodeError> {
        if packet.len() > MAX_PACKET {
            return Err(DecodeError::Long);
        }
        let message = match take_byte(&mut packet)? {
            FIRST => {
                let version = packet.try_get_u32_le().map_err(|_| DecodeError::Short)?;
                let name = take_text(&mut packet)?;
                let devices = take_text(&mut packet)?;
                let [limits, replay] = [take_last_text(&mut packet)?, take_last_text(&mut packet)?];
                Self::Hello { version, name, devices, limits, replay }
            }
            SECOND => Self::Visitor { is_owner: take_byte(&mut packet)? == 1 },
            THIRD => Self::Leave,
            kind => return Ok(Self::Unknown(kind)),
        };
        whole(packet, message)
    }

    /// The packet.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut packet = Vec::new();
        match self {
            Self::Hello { version, name, devices, limits, replay } => {
                packet.put_u8(FIRST);
                packet.put_u32_le(*version);
                put_text(&mut packet, name);
                put_text(&mut packet, devices);
                if !limits.is_empty() || !replay.is_empty() {
                    put_text(&mut packet, limits);
                }
                if !replay.is_empty() {
                    put_text(&mut packet, replay);
                }
            }
            Self::Visitor { is_owner } => packet.put_slice(&[SECOND, u8::from(*is_owner)]),
            Self::Leave => packet.put_u8(THIRD),
            Self::Unknown(kind) => packet.put_u8(*kind),
        }
        packet
    }
}

impl ToThin {
    /// Reads a packet.
    ///
    /// # Errors
    /// [`DecodeError`] when it is none of a kind that is known.
    pub fn decode(mut packet: &[u8]) -> Result<Self, DecodeError> {
        let message = match take_byte(&mut packet)? {
            FIRST => Self::Joined { name: take_text(&mut packet)? },
            SECOND => Self::Refused(take_text(&mut packet)?),
            THIRD => Self::Ended(take_text(&mut packet)?),
            FOURTH => Self::Limits(take_text(&mut packet)?),
            kind => return Ok(Self::Unknown(kind)),
        };
        whole(packet, message)
    }

    /// The packet.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut packet = Vec::new();
        let (kind, text) = match self {
            Self::Joined { name } => (FIRST, name),
            Self::Refused(reason) => (SECOND, reason),
            Self::Ended(reason) => (THIRD, reason),
            Self::Limits(limits) => (FOURTH, limits),
            Self::Unknown(kind) => return vec![*kind],
        };
        packet.put_u8(kind);
        put_text(&mut packet, text);
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(devices: &str, limits: &str, replay: &str) -> ToNode {
        let [name, devices, limits, replay] = ["joined_1", devices, limits, replay].map(str::to_owned);
        ToNode::Hello { version: VERSION, name, devices, limits, replay }
    }

    #[test]
    fn every_message_comes_out_as_it_went_in() {
        let text = || "joined_1".to_owned();
        for message in [
            hello("GPU-1,GPU-2", "", ""),
            hello("", "threads=50", ""),
            hello("", "threads=50", "state spare"),
            hello("", "", "nothing nobody"),
            ToNode::Visitor { is_owner: true },
            ToNode::Visitor { is_owner: false },
            ToNode::Leave,
            ToNode::Unknown(200),
        ] {
            assert_eq!(ToNode::decode(&message.encode()), Ok(message));
        }
        for message in [
            ToThin::Joined { name: text() },
            ToThin::Refused(text()),
            ToThin::Ended(text()),
            ToThin::Limits(text()),
            ToThin::Unknown(9),
        ] {
            assert_eq!(ToThin::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn what_is_cut_short_goes_on_or_is_no_text_is_refused() {
        let whole = hello("", "a", "b").encode();
        assert_eq!(ToNode::decode(&[whole, vec![0]].concat()), Err(DecodeError::Long));
        let hello = hello("", "", "").encode();
        for end in 0..hello.len() {
            assert_eq!(ToNode::decode(&hello[..end]), Err(DecodeError::Short), "{end}");
        }
        assert_eq!(ToNode::decode(&[hello.clone(), vec![0]].concat()), Err(DecodeError::Short));
        assert_eq!(ToNode::decode(&[hello, vec![0, 0, 0]].concat()), Err(DecodeError::Short));
        assert_eq!(ToThin::decode(&[2, 1, 0, 0xff]), Err(DecodeError::Text));
        let long = ToThin::Refused("é".repeat(MAX_TEXT)).encode();
        assert!(long.len() <= MAX_PACKET);
        assert_eq!(ToThin::decode(&long), Ok(ToThin::Refused("é".repeat(MAX_TEXT / 2))));
    }
}
