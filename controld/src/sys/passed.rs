//! Whether peers may send descriptors over a Unix socket.
//!
//! A descriptor that nobody wants is closed by the kernel when its packet is taken or thrown away, in the process that
//! does so, and closing waits as long as the sender wishes: for a TCP socket with `SO_LINGER` hours. Since Linux 6.16 a
//! socket refuses them (`SO_PASSRIGHTS`): the sender gets `EPERM`, and nothing of his lies in the socket. What is
//! accepted has the listener's choice from its first packet.
#![expect(unsafe_code, reason = "an option that no library names yet")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `include/uapi/asm-generic/socket.h`.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Lets peers send descriptors, or not.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 6.16.
pub(crate) fn allow(socket: impl AsFd, allowed: bool) -> io::Result<()> {
    let value = libc::c_int::from(allowed);
    let length = libc::socklen_t::try_from(size_of_val(&value)).expect("four bytes");
    let number = socket.as_fd().as_raw_fd();
    // SAFETY: the pointer is to a local of the length that is named.
    let done = unsafe { libc::setsockopt(number, libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const value).cast(), length) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
