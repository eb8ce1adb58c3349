//! Descriptors that the runtime polls.
#![expect(unsafe_code, reason = "tokio leaves it to the caller that the descriptor stays open")]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers an owned descriptor with the runtime. It must be one that epoll accepts, and non-blocking.
///
/// # Errors
/// `EPERM` for a file that epoll does not accept, as a regular one. Panics outside a tokio runtime.
pub fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and the same descriptor for all its life, and the `AsyncFd` owns it.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}
