//! NVIDIA's MPS control wire: packets between the daemon, its servers, its clients and the command line.
//!
//! Everything travels over `AF_UNIX` `SOCK_SEQPACKET` sockets; one packet is one message part, all integers are
//! little-endian. The layouts were read off driver 580.159.04 from outside by tracing system calls, and 535.309.01 was
//! seen to use the same bytes for clients and command line; `OBSERVED.md` has the record.
//!
//! | module | speaks with |
//! |---|---|
//! | [`handshake`] | every peer: greeting, credentials, role |
//! | [`server`] | a server: its hello, its configuration, requests and replies |
//! | [`client`] | a client and, over the handed-out socket, its server |
//! | [`ui`] | the command line |
//! | [`log`], [`fault_log`] | the log FIFO, and what its records say of faults |

pub mod client;
pub mod device;
pub mod fault_log;
pub mod handshake;
pub mod log;
pub mod server;
pub mod ui;

use bytes::Buf;

/// A packet that does not have the form its place in the protocol asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The packet's length is not the one its place asks for.
    #[error("{what} has {got} bytes where {expected} are due")]
    Length {
        /// Which packet.
        what: &'static str,
        /// Bytes due.
        expected: usize,
        /// Bytes received.
        got: usize,
    },
    /// The packet's fixed content differs.
    #[error("{what} does not carry its fixed text")]
    Content {
        /// Which packet.
        what: &'static str,
    },
    /// A count is larger than anything a real peer sends.
    #[error("{what} says {count}, over the limit of {limit}")]
    Count {
        /// Which packet.
        what: &'static str,
        /// The count received.
        count: u64,
        /// The largest count accepted.
        limit: u64,
    },
    /// The operation number is not known.
    #[error("operation {0:#x} is not known")]
    UnknownOperation(u32),
}

fn exactly(what: &'static str, packet: &[u8], expected: usize) -> Result<(), DecodeError> {
    if packet.len() == expected { Ok(()) } else { Err(DecodeError::Length { what, expected, got: packet.len() }) }
}

/// Reads a packet that is one `u32`.
///
/// # Errors
/// [`DecodeError::Length`] when it is not four bytes long.
pub fn decode_u32(what: &'static str, mut packet: &[u8]) -> Result<u32, DecodeError> {
    exactly(what, packet, size_of::<u32>())?;
    Ok(packet.get_u32_le())
}

/// Reads a packet that is one `u64`.
///
/// # Errors
/// [`DecodeError::Length`] when it is not eight bytes long.
pub fn decode_u64(what: &'static str, mut packet: &[u8]) -> Result<u64, DecodeError> {
    exactly(what, packet, size_of::<u64>())?;
    Ok(packet.get_u64_le())
}

/// Reads a packet that is one `f64`.
///
/// # Errors
/// [`DecodeError::Length`] when it is not eight bytes long.
pub fn decode_f64(what: &'static str, packet: &[u8]) -> Result<f64, DecodeError> {
    Ok(f64::from_bits(decode_u64(what, packet)?))
}

/// The text before the first NUL of a NUL-padded field, with anything that is not UTF-8 replaced.
fn padded_text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

/// `text` cut to the field's length less one and padded with NULs to its length.
fn pad_text(text: &str, length: usize) -> Vec<u8> {
    let mut field: Vec<u8> = text.bytes().take(length - 1).collect();
    field.resize(length, 0);
    field
}
