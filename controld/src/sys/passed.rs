//! What comes beside the packets of a Unix socket: whether peers may send descriptors, and whether the kernel adds the
//! sender's process descriptor.
//!
//! A descriptor that nobody wants is closed by the kernel when its packet is taken or thrown away, in the process that
//! does so, and closing waits as long as the sender wishes: for a TCP socket with `SO_LINGER` hours. Since Linux 6.16 a
//! socket refuses them (`SO_PASSRIGHTS`): the sender gets `EPERM`, and nothing of his lies in the socket. What is
//! accepted has the listener's choice from its first packet.
#![expect(unsafe_code, reason = "options that no library names yet")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `include/uapi/asm-generic/socket.h`.
const SO_PASSRIGHTS: libc::c_int = 83;
/// The same.
const SO_PASSPIDFD: libc::c_int = 76;

/// Lets peers send descriptors, or not.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 6.16.
pub(crate) fn allow(socket: impl AsFd, allowed: bool) -> io::Result<()> {
    set(socket, SO_PASSRIGHTS, allowed)
}

/// Has the kernel add each sender's process descriptor, or not.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 6.5.
pub(crate) fn pidfds(socket: impl AsFd, added: bool) -> io::Result<()> {
    set(socket, SO_PASSPIDFD, added)
}

fn set(socket: impl AsFd, option: libc::c_int, on: bool) -> io::Result<()> {
    let value = libc::c_int::from(on);
    let length = libc::socklen_t::try_from(size_of_val(&value)).expect("four bytes");
    let number = socket.as_fd().as_raw_fd();
    // SAFETY: the pointer is to a local of the length that is named.
    let done = unsafe { libc::setsockopt(number, libc::SOL_SOCKET, option, (&raw const value).cast(), length) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
