//! A conversation whose packets have descriptors beside them, for tokio: between the daemon of a node and a thin one.

use super::packets::{Received, receive, send};
use crate::sys::polled::register;
use nix::errno::Errno;
use remps_proto::join::MAX_PACKET;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// One end of it.
#[derive(Debug)]
pub(crate) struct JoinLink(AsyncFd<OwnedFd>);

/// A packet.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) bytes: Vec<u8>,
    /// What came along; `None` when there was more than one descriptor, or one was lost.
    pub(crate) descriptor: Option<OwnedFd>,
}

fn receive_now(fd: BorrowedFd<'_>) -> io::Result<Option<Parcel>> {
    let mut buffer = [0; MAX_PACKET];
    let received = loop {
        match receive(fd, &mut buffer) {
            // Told once when the peer has closed with packets of ours unread; its own packets come after that.
            Err(Errno::ECONNRESET) => {}
            received => break received?,
        }
    };
    let Received { bytes, mut fds, descriptors_lost, truncated, .. } = received;
    if bytes == 0 && fds.is_empty() {
        return Ok(None);
    }
    if truncated {
        super::discard::close(fds);
        return Err(io::ErrorKind::InvalidData.into());
    }
    let descriptor = if fds.len() == 1 && !descriptors_lost { fds.pop() } else { None };
    if !fds.is_empty() {
        super::discard::close(fds);
    }
    Ok(Some(Parcel { bytes: buffer[..bytes].to_vec(), descriptor }))
}

impl JoinLink {
    /// Takes a connected socket that never blocks.
    ///
    /// # Errors
    /// When it can't be watched.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self(register(fd, Interest::READABLE | Interest::WRITABLE)?))
    }

    /// The next packet, or `None` at the end.
    ///
    /// # Errors
    /// The socket's; `InvalidData` for a packet that is too long.
    pub(crate) async fn receive(&self) -> io::Result<Option<Parcel>> {
        self.0.async_io(Interest::READABLE, |fd| receive_now(fd.as_fd())).await
    }

    /// Sends a packet, waiting for room.
    ///
    /// # Errors
    /// The socket's.
    pub(crate) async fn send(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.0.async_io(Interest::WRITABLE, |fd| Ok(send(fd.as_fd(), bytes, descriptor.as_slice())?)).await
    }
}

impl AsFd for JoinLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::ends::{pipe, wait_for_hangup};
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    fn ends() -> (JoinLink, JoinLink) {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (first, second) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("descriptors");
        (JoinLink::new(first).expect("a socket"), JoinLink::new(second).expect("a socket"))
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_last_word_of_who_has_not_read_is_heard() {
        let (near, far) = ends();
        far.send(b"unread", None).await.expect("room");
        near.send(b"why", None).await.expect("room");
        drop(near);
        assert_eq!(far.receive().await.expect("readable").expect("a packet").bytes, b"why");
        assert!(far.receive().await.expect("readable").is_none());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn one_descriptor_comes_along_and_more_are_closed() {
        let (near, far) = ends();
        let (reader, writer) = pipe();
        near.send(b"one", Some(reader.as_fd())).await.expect("room");
        send(near.as_fd(), b"two", &[reader.as_fd(), reader.as_fd()]).expect("room");
        drop(reader);
        let one = far.receive().await.expect("readable").expect("a packet");
        assert!(one.bytes == b"one" && one.descriptor.is_some());
        let two = far.receive().await.expect("readable").expect("a packet");
        assert!(two.bytes == b"two" && two.descriptor.is_none());
        drop(one);
        wait_for_hangup(&writer);
        near.send(&[1; MAX_PACKET + 1], None).await.expect("room");
        assert_eq!(far.receive().await.expect_err("too long").kind(), io::ErrorKind::InvalidData);
        drop(near);
        assert!(far.receive().await.expect("readable").is_none());
    }
}
