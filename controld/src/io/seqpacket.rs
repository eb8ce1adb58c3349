//! `SOCK_SEQPACKET` sockets with credentials, for tokio. Descriptors are sent and never wanted: a peer's may be anything. The
//! sockets refuse them where the kernel has that ([`passed`](crate::sys::passed)); elsewhere a packet with some is the end of
//! what a peer has to say, and it is let go of on another thread ([`discard`](super::discard)): that takes as long as its
//! sender wishes.
//!
//! One packet is one message part of NVIDIA's wire. Sending never waits: who wants to send more than a peer takes must
//! hold it back itself, so that no peer can hold up another.

mod batch;

use super::packets::{CREDENTIALS_WORDS, PIDFD_WORDS, Received, peer, receive_with, send, words_for};
use super::runtime_dir::entrances;
use crate::core::Peer;
use crate::sys::passed;
use crate::sys::polled::register;
use nix::errno::Errno;
use nix::sys::socket::{
    MsgFlags, Shutdown, UnixAddr, getpeername, getsockname, getsockopt, setsockopt, shutdown, sockopt,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A packet as received.
#[derive(Debug)]
pub(crate) struct Packet {
    /// Its bytes, cut at the buffer's size.
    pub bytes: Vec<u8>,
    /// Who sent it, when the socket passes credentials.
    pub sender: Option<Peer>,
}

/// A SEQPACKET socket that never blocks.
#[derive(Debug)]
pub(crate) struct SeqPacket {
    fd: AsyncFd<OwnedFd>,
    /// Whether the peer is a server on a pair of ours, which has descriptors to send: they are taken, and closed elsewhere.
    is_of_pair: bool,
}

/// Descriptors that the kernel lets a packet have (`SCM_MAX_FD`).
const MOST_DESCRIPTORS: usize = 253;

/// Receives with room for the sender's credentials and so many descriptors.
fn receive_beside(fd: BorrowedFd<'_>, bytes: &mut [u8], descriptors: usize, flags: MsgFlags) -> io::Result<Received> {
    let mut room = [0; CREDENTIALS_WORDS + words_for(MOST_DESCRIPTORS)];
    let words = CREDENTIALS_WORDS + if descriptors > 0 { words_for(descriptors) } else { 0 };
    loop {
        match receive_with(fd, bytes, &mut room[..words], flags) {
            // Told once when the peer has closed with packets of ours unread; its own packets come after that.
            Err(Errno::ECONNRESET) => {}
            got => return Ok(got?),
        }
    }
}

/// Looks at a packet, with room for its sender's credentials and for nothing else: the kernel marks one with descriptors as
/// cut short then, which is no error.
fn look_now(fd: BorrowedFd<'_>, capacity: usize) -> io::Result<Option<Packet>> {
    let mut bytes = vec![0_u8; capacity];
    let Received { bytes: length, sender, .. } = receive_beside(fd, &mut bytes, 0, MsgFlags::MSG_PEEK)?;
    Ok(packet(bytes, length, sender))
}

/// Takes a packet. One with descriptors stays where it is, unless they are to be had: the kernel would let go of them here,
/// which may hang.
fn take_now(fd: BorrowedFd<'_>, capacity: usize, is_of_pair: bool) -> io::Result<Option<Packet>> {
    if !is_of_pair && receive_beside(fd, &mut [], 0, MsgFlags::MSG_PEEK)?.descriptors_lost {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet with descriptors"));
    }
    let mut bytes = vec![0_u8; capacity];
    let most = if is_of_pair { MOST_DESCRIPTORS } else { 0 };
    let Received { bytes: length, fds, sender, .. } = receive_beside(fd, &mut bytes, most, MsgFlags::empty())?;
    super::discard::close(fds);
    Ok(packet(bytes, length, sender))
}

/// The end of a connection reads as nothing at all; an empty packet carries its sender's credentials, since every socket
/// here passes them.
fn packet(mut bytes: Vec<u8>, length: usize, sender: Option<Peer>) -> Option<Packet> {
    bytes.truncate(length);
    (length > 0 || sender.is_some()).then_some(Packet { bytes, sender })
}

impl SeqPacket {
    /// Takes a connected socket over, makes it non-blocking and lets it pass credentials.
    ///
    /// # Errors
    /// When it is no socket or can't be watched.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        setsockopt(&fd, sockopt::PassCred, &true)?;
        let flags = nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_GETFL)?;
        let flags = nix::fcntl::OFlag::from_bits_retain(flags) | nix::fcntl::OFlag::O_NONBLOCK;
        nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFL(flags))?;
        Ok(Self { fd: register(fd, Interest::READABLE | Interest::WRITABLE)?, is_of_pair: false })
    }

    /// The same of one end of a pair whose other end a server has.
    ///
    /// # Errors
    /// See [`SeqPacket::new`].
    pub(crate) fn of_pair(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { is_of_pair: true, ..Self::new(fd)? })
    }

    /// Watches a socket that others use as well: its flags, which all who have it share, stay as they are.
    ///
    /// # Errors
    /// When it can't be watched.
    pub(crate) fn watch(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { fd: register(fd, Interest::READABLE | Interest::WRITABLE)?, is_of_pair: true })
    }

    /// Who connected, as the kernel noted it then.
    ///
    /// # Errors
    /// When the socket has no peer credentials.
    pub(crate) fn connected_peer(&self) -> io::Result<Peer> {
        let credentials = getsockopt(&self.fd, sockopt::PeerCredentials)?;
        Ok(peer(&credentials))
    }

    /// A pidfd of who connected, which can't name another process even when the pid is used again.
    ///
    /// # Errors
    /// Before Linux 6.5, or when the process is gone.
    pub(crate) fn peer_pidfd(&self) -> io::Result<OwnedFd> {
        Ok(getsockopt(&self.fd, sockopt::PeerPidfd)?)
    }

    /// A pidfd of who has sent the next packet, which is not taken away; `None` when that process has ended.
    ///
    /// # Errors
    /// Before Linux 6.5, or when there is no packet.
    pub(crate) fn sender_pidfd(&self) -> io::Result<Option<OwnedFd>> {
        passed::pidfds(&self.fd, true)?;
        let mut room = [0; CREDENTIALS_WORDS + PIDFD_WORDS];
        let got = receive_with(self.fd.as_fd(), &mut [0; 1], &mut room, MsgFlags::MSG_PEEK);
        // Nobody else who receives here has room for one.
        passed::pidfds(&self.fd, false)?;
        Ok(got?.pidfd)
    }

    /// The abstract name that the peer's socket is bound to, without the NUL before it.
    pub(crate) fn peer_name(&self) -> Option<Vec<u8>> {
        let name = getpeername::<UnixAddr>(self.fd.as_raw_fd()).ok()?;
        name.as_abstract().map(<[u8]>::to_vec)
    }

    /// The number of the namespace's socket that it was accepted on; `None` is one of the daemon's own. The kernel's word.
    pub(crate) fn entrance(&self) -> Option<u64> {
        entrances::number_of(getsockname::<UnixAddr>(self.fd.as_raw_fd()).ok()?.path()?)
    }

    /// The next packet, or `None` at the connection's end.
    ///
    /// # Errors
    /// The socket's; `InvalidData` where descriptors come with it, after which nothing more does.
    pub(crate) async fn receive(&self, capacity: usize) -> io::Result<Option<Packet>> {
        let take = |fd: &OwnedFd| take_now(fd.as_fd(), capacity, self.is_of_pair);
        let received = self.fd.async_io(Interest::READABLE, take).await;
        if received.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
            self.refuse_the_rest();
        }
        received
    }

    /// The next packet without taking it away, or `None` at the connection's end.
    pub(crate) async fn peek(&self, capacity: usize) -> io::Result<Option<Packet>> {
        self.fd.async_io(Interest::READABLE, |fd| look_now(fd.as_fd(), capacity)).await
    }

    /// The next packet without taking it away and without waiting, or `None` at the connection's end.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; else the socket's.
    pub(crate) fn peek_now(&self, capacity: usize) -> io::Result<Option<Packet>> {
        look_now(self.fd.as_fd(), capacity)
    }

    /// Takes the packet away that has been peeked at.
    pub(crate) fn discard(&self) -> io::Result<()> {
        take_now(self.fd.as_fd(), 0, self.is_of_pair).map(drop)
    }

    /// Nothing more is wanted of the peer: it can send nothing any more, and what it has sent is thrown away. What is left
    /// in a connection when it is closed, here or by the holder, is closed with it, and that may hang: so it is thrown away
    /// elsewhere, by who has the connection's last copy then.
    pub(crate) fn refuse_the_rest(&self) {
        // One that is not connected any more has nothing to come.
        let _ = shutdown(self.fd.as_raw_fd(), Shutdown::Read);
        let over = loop {
            match take_now(self.fd.as_fd(), 0, self.is_of_pair) {
                Ok(Some(_)) => {}
                over => break over,
            }
        };
        if over.is_err_and(|error| error.kind() == io::ErrorKind::InvalidData)
            && let Ok(copy) = self.fd.get_ref().try_clone()
        {
            super::discard::rest(copy);
        }
    }

    /// Waits until at least one packet can be sent.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        let mut guard = self.fd.writable().await?;
        guard.clear_ready();
        Ok(())
    }

    /// Sends one packet, with a descriptor or without.
    ///
    /// # Errors
    /// `WouldBlock` when the peer's buffer is full; else the socket's.
    pub(crate) fn send(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        Ok(send(self.fd.as_fd(), bytes, descriptor.as_slice())?)
    }

    /// Sends a packet, waiting for room.
    pub(crate) async fn send_when_possible(&self, bytes: &[u8]) -> io::Result<()> {
        self.fd.async_io(Interest::WRITABLE, |fd| Ok(send(fd.as_fd(), bytes, &[])?)).await
    }
}

impl AsFd for SeqPacket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A connected pair, both ends passing credentials and closed on exec; the descriptors block.
///
/// # Errors
/// When the process is out of descriptors.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    let (first, second) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    for end in [&first, &second] {
        setsockopt(end, sockopt::PassCred, &true)?;
    }
    Ok((first, second))
}

#[cfg(test)]
mod tests;
