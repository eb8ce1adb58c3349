//! What a client says after its role, and what it says to its server over the socket that the daemon hands out.
//!
//! ```text
//! daemon -> client   DESCRIPTOR with one end of a socket pair; the server has the other
//! server -> client   four times DESCRIPTOR with a pipe end, then one zero byte
//! client -> server   CREDENTIALS, u32 context id, u32 priority
//! server -> client   u32 Status
//! client -> daemon   u32 Status, on the first socket, which it then closes
//! ```

use super::{DecodeError, decode_u32, exactly};

/// Pipe ends a server hands to each client connection: read, write, read, write from the client's view.
pub const PIPE_ENDS: usize = 4;
/// Ends the row of pipe descriptors.
pub const PIPES_DONE: [u8; 1] = [0];
/// Context id of the connection that `cuInit` makes.
pub const PROCESS_CONTEXT: u32 = 0;
/// Priority sent on the process connection.
pub const NO_PRIORITY: u32 = 0xff;

crate::open_enum! {
    /// A `CUresult` as it appears on the wire and in the logs; newer drivers have more of them.
    pub struct Status: u32 {
        /// Accepted.
        SUCCESS = 0,
        /// `CUDA_ERROR_NOT_PERMITTED`: also the vendor's answer to a termination by the wrong user.
        NOT_PERMITTED = 800,
        /// `CUDA_ERROR_MPS_CONNECTION_FAILED`: no daemon or server answered.
        MPS_CONNECTION_FAILED = 805,
        /// `CUDA_ERROR_MPS_RPC_FAILURE`: the server went away.
        MPS_RPC_FAILURE = 806,
        /// `CUDA_ERROR_MPS_SERVER_NOT_READY`: the server is burying a fault.
        MPS_SERVER_NOT_READY = 807,
        /// `CUDA_ERROR_MPS_MAX_CLIENTS_REACHED`.
        MPS_MAX_CLIENTS_REACHED = 808,
        /// `CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED`.
        MPS_MAX_CONNECTIONS_REACHED = 809,
        /// `CUDA_ERROR_MPS_CLIENT_TERMINATED`: sticky after `terminate_client`.
        MPS_CLIENT_TERMINATED = 810,
    }
}

impl Status {
    /// Reads the status packet.
    ///
    /// # Errors
    /// [`DecodeError::Length`] when it is not one `u32`.
    pub fn decode(packet: &[u8]) -> Result<Self, DecodeError> {
        decode_u32("client status", packet).map(Self)
    }

    /// The status packet.
    #[must_use]
    pub fn encode(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }
}

/// Checks the byte that ends the row of pipe descriptors.
///
/// # Errors
/// [`DecodeError`] when it is another packet.
pub fn expect_pipes_done(packet: &[u8]) -> Result<(), DecodeError> {
    exactly("end of pipes", packet, PIPES_DONE.len())?;
    if packet == PIPES_DONE { Ok(()) } else { Err(DecodeError::Content { what: "end of pipes" }) }
}
