//! `SOCK_SEQPACKET` sockets with credentials, for tokio. Descriptors are sent and never wanted: a peer's may be anything. The
//! sockets refuse them where the kernel has that ([`passed`](crate::sys::passed)); elsewhere they are taken off the packet
//! and closed on other threads, since the kernel closes what is left in it right here, as long as that may take.
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
}

/// Descriptors that the kernel lets a packet have (`SCM_MAX_FD`).
const MOST_DESCRIPTORS: usize = 253;

/// Receives one packet. One that is only looked at has room for its sender's credentials and for nothing else; the kernel
/// marks a packet with descriptors as cut short then, which is no error. One that is taken has its descriptors taken too.
fn receive_now(fd: BorrowedFd<'_>, capacity: usize, flags: MsgFlags) -> io::Result<Option<Packet>> {
    let mut bytes = vec![0_u8; capacity];
    let mut room = [0; CREDENTIALS_WORDS + words_for(MOST_DESCRIPTORS)];
    let room = if flags.contains(MsgFlags::MSG_PEEK) { &mut room[..CREDENTIALS_WORDS] } else { &mut room[..] };
    let Received { bytes: length, fds, sender, .. } = loop {
        match receive_with(fd, &mut bytes, room, flags) {
            // Told once when the peer has closed with packets of ours unread; its own packets come after that.
            Err(Errno::ECONNRESET) => {}
            got => break got?,
        }
    };
    if !fds.is_empty() {
        super::discard::close(fds);
    }
    bytes.truncate(length);
    // The end of a connection reads as nothing at all; an empty packet carries its sender's credentials, since every
    // socket here passes them.
    if length == 0 && sender.is_none() {
        return Ok(None);
    }
    Ok(Some(Packet { bytes, sender }))
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
        Ok(Self { fd: register(fd, Interest::READABLE | Interest::WRITABLE)? })
    }

    /// Watches a socket that others use as well: its flags, which all who have it share, stay as they are.
    ///
    /// # Errors
    /// When it can't be watched.
    pub(crate) fn watch(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { fd: register(fd, Interest::READABLE | Interest::WRITABLE)? })
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
    pub(crate) async fn receive(&self, capacity: usize) -> io::Result<Option<Packet>> {
        self.fd.async_io(Interest::READABLE, |fd| receive_now(fd.as_fd(), capacity, MsgFlags::empty())).await
    }

    /// The next packet without taking it away, or `None` at the connection's end.
    pub(crate) async fn peek(&self, capacity: usize) -> io::Result<Option<Packet>> {
        self.fd.async_io(Interest::READABLE, |fd| receive_now(fd.as_fd(), capacity, MsgFlags::MSG_PEEK)).await
    }

    /// The next packet without taking it away and without waiting, or `None` at the connection's end.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; else the socket's.
    pub(crate) fn peek_now(&self, capacity: usize) -> io::Result<Option<Packet>> {
        receive_now(self.fd.as_fd(), capacity, MsgFlags::MSG_PEEK)
    }

    /// Takes the packet away that has been peeked at.
    pub(crate) fn discard(&self) -> io::Result<()> {
        receive_now(self.fd.as_fd(), 0, MsgFlags::empty()).map(drop)
    }

    /// Nothing more is wanted of the peer: it can send nothing any more, and what it has sent is thrown away. What is left
    /// in a connection when it is closed, here or by the holder, is closed with it, and that may hang.
    pub(crate) fn refuse_the_rest(&self) {
        // One that is not connected any more has nothing to come.
        let _ = shutdown(self.fd.as_raw_fd(), Shutdown::Read);
        while let Ok(Some(_)) = receive_now(self.fd.as_fd(), 0, MsgFlags::empty()) {}
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
