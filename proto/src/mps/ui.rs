//! The command line's part of the wire.
//!
//! ```text
//! UI -> daemon   u64 n; then n bytes: the line as typed, NUL-terminated. n = 0 ends the session.
//! daemon -> UI   u32 0 + one line of the answer, without newline and NUL; any number of them
//! daemon -> UI   u32 1 + u32 exit status, when the session ends
//! daemon -> UI   u32 2 + u32 n: a command of ours has failed, and the next n lines say why
//! ```
//!
//! The last packet is ReMPS's own. A command line of ours writes those lines to standard error and ends with status 1;
//! the vendor's passes over a packet that it does not know (`integration/goldens/MEASURED.md`) and prints the lines.

use super::{DecodeError, decode_u64};
use bytes::{Buf, BufMut};

/// Longest command accepted, in bytes with its NUL. The vendor's command line reads lines of up to 4,096 bytes.
pub const MAX_COMMAND: u64 = 64 * 1024;
/// Longest text of one answer packet; the vendor's command line reads the text into a buffer of 4,096 bytes.
pub const MAX_REPLY: usize = 4096;

const OUTPUT: u32 = 0;
const END: u32 = 1;
const FAILED: u32 = 2;

/// The length packet before a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announcement {
    /// A command of this many bytes follows, its NUL counted.
    Command(usize),
    /// No more commands.
    End,
}

impl Announcement {
    /// Reads the length packet.
    ///
    /// # Errors
    /// [`DecodeError`] when it is not one `u64` or says more than [`MAX_COMMAND`].
    pub fn decode(packet: &[u8]) -> Result<Self, DecodeError> {
        match decode_u64("command length", packet)? {
            0 => Ok(Self::End),
            count if count <= MAX_COMMAND => Ok(Self::Command(usize::try_from(count).expect("64 KiB fit"))),
            count => Err(DecodeError::Count { what: "command length", count, limit: MAX_COMMAND }),
        }
    }

    /// The length packet.
    #[must_use]
    pub fn encode(self) -> [u8; 8] {
        match self {
            Self::Command(length) => length as u64,
            Self::End => 0,
        }
        .to_le_bytes()
    }
}

/// The command packet's text: everything before its first NUL, with anything that is not UTF-8 replaced.
#[must_use]
pub fn decode_command(packet: &[u8]) -> String {
    super::padded_text(packet)
}

/// The command packet for a line.
#[must_use]
pub fn encode_command(line: &str) -> Vec<u8> {
    let mut packet = line.as_bytes().to_vec();
    packet.put_u8(0);
    packet
}

/// A packet from the daemon to the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromDaemon {
    /// One line (or a part of a long one) of the answer.
    Output(Vec<u8>),
    /// The session is over; the command line exits with this status.
    End(u32),
    /// A command has failed: this many of the packets that follow are the reason and no answer.
    Failed(u32),
}

impl FromDaemon {
    /// Reads a packet.
    ///
    /// # Errors
    /// [`DecodeError`] when it is too short or its tag is not known.
    pub fn decode(mut packet: &[u8]) -> Result<Self, DecodeError> {
        let Ok(tag) = packet.try_get_u32_le() else {
            return Err(DecodeError::Length { what: "answer", expected: 4, got: packet.len() });
        };
        match tag {
            OUTPUT => Ok(Self::Output(packet.to_vec())),
            END => super::decode_u32("exit status", packet).map(Self::End),
            FAILED => super::decode_u32("lines of a reason", packet).map(Self::Failed),
            tag => Err(DecodeError::UnknownOperation(tag)),
        }
    }

    /// The packet.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut packet = Vec::new();
        match self {
            Self::Output(text) => {
                packet.put_u32_le(OUTPUT);
                packet.put_slice(text);
            }
            Self::End(status) => {
                packet.put_u32_le(END);
                packet.put_u32_le(*status);
            }
            Self::Failed(lines) => {
                packet.put_u32_le(FAILED);
                packet.put_u32_le(*lines);
            }
        }
        packet
    }
}

/// The packets of an answer: one a line, a longer line in pieces that fit [`MAX_REPLY`].
pub fn output_packets(text: &str) -> impl Iterator<Item = Vec<u8>> {
    text.split('\n').flat_map(|line| {
        let line = line.as_bytes();
        let pieces: Vec<&[u8]> = if line.is_empty() { vec![line] } else { line.chunks(MAX_REPLY).collect() };
        pieces.into_iter().map(|piece| FromDaemon::Output(piece.to_vec()).encode()).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_with_a_length_of_zero() {
        assert_eq!(Announcement::decode(&[0; 8]), Ok(Announcement::End));
        assert_eq!(Announcement::decode(&Announcement::Command(17).encode()), Ok(Announcement::Command(17)));
        assert!(Announcement::decode(&u64::MAX.to_le_bytes()).is_err());
        assert!(Announcement::decode(&[0; 4]).is_err());
    }

    #[test]
    fn a_command_ends_at_its_nul() {
        assert_eq!(decode_command(b"get_server_list\n\0"), "get_server_list\n");
        assert_eq!(decode_command(b"quit"), "quit");
        assert_eq!(encode_command("quit\n"), b"quit\n\0");
    }

    #[test]
    fn long_lines_are_cut_into_packets_the_vendors_command_line_can_read() {
        let packets: Vec<_> = output_packets(&"x".repeat(5000)).collect();
        assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [4096 + 4, 5000 - 4096 + 4]);
        assert_eq!(output_packets("a\n\nb").count(), 3);
    }

    #[test]
    fn answers_round_trip() {
        for answer in [FromDaemon::Output(b"100.0".to_vec()), FromDaemon::End(7), FromDaemon::Failed(2)] {
            assert_eq!(FromDaemon::decode(&answer.encode()), Ok(answer));
        }
        assert!(FromDaemon::decode(&[0, 0]).is_err());
        assert!(FromDaemon::decode(&[2, 0, 0, 0]).is_err());
        assert!(FromDaemon::decode(&[9, 0, 0, 0]).is_err());
    }
}
