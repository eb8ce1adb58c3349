//! What every connection begins with, whoever connects.
//!
//! ```text
//! daemon -> peer   GREETING
//! peer -> daemon   CREDENTIALS with SCM_CREDENTIALS
//! peer -> daemon   u32 Role
//! ```
//! `libcuda` first makes a probe: it connects, reads the greeting and closes. A server answers the greeting at once
//! and sends its role only when it has initialised CUDA, 0.1 to 0.4 s later.

use super::{DecodeError, decode_u32};

/// First packet on every connection, daemon to peer.
pub const GREETING: &[u8; 9] = b"OUTBHELL\0";
/// The peer's answer; carries its credentials as ancillary data.
pub const CREDENTIALS: &[u8; 9] = b"OUTBCRED\0";
/// A packet that carries one descriptor as ancillary data.
pub const DESCRIPTOR: &[u8; 9] = b"OUTBCUFD\0";

crate::open_enum! {
    /// What a peer says it is.
    pub struct Role: u32 {
        /// `nvidia-cuda-mps-server`.
        SERVER = 1,
        /// A CUDA program, one connection for each context.
        CLIENT = 2,
        /// The command line.
        UI = 4,
    }
}

impl Role {
    /// Reads the role packet.
    ///
    /// # Errors
    /// [`DecodeError::Length`] when it is not one `u32`.
    pub fn decode(packet: &[u8]) -> Result<Self, DecodeError> {
        decode_u32("role", packet).map(Self)
    }

    /// The role packet.
    #[must_use]
    pub fn encode(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }
}

/// Checks a packet against one of the fixed texts.
///
/// # Errors
/// [`DecodeError::Content`] when it differs.
pub fn expect_fixed(what: &'static str, packet: &[u8], text: &[u8; 9]) -> Result<(), DecodeError> {
    if packet == text { Ok(()) } else { Err(DecodeError::Content { what }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_nobody_knows_is_still_a_role() {
        assert_eq!(Role::decode(&[4, 0, 0, 0]), Ok(Role::UI));
        assert_eq!(Role::decode(&[3, 0, 0, 0]), Ok(Role(3)));
        assert_eq!(Role::decode(&[3, 0]), Err(DecodeError::Length { what: "role", expected: 4, got: 2 }));
    }

    #[test]
    fn a_fixed_text_must_match_to_the_last_byte() {
        assert!(expect_fixed("credentials", b"OUTBCRED\0", CREDENTIALS).is_ok());
        assert!(expect_fixed("credentials", b"OUTBCRED", CREDENTIALS).is_err());
    }
}
