//! A `SOCK_SEQPACKET` socket with what MPS uses of it: packets, credentials and descriptors as ancillary data.
#![expect(unsafe_code, reason = "a received descriptor number becomes an owned descriptor")]

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    UnixCredentials, accept4, bind, connect, listen, recvmsg, sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

/// Longest packet of the control wire, with room to notice a longer one.
const MAX_PACKET: usize = 4096;

/// One packet with its ancillary data.
#[derive(Debug, Default)]
pub struct Packet {
    /// Its bytes; empty when the peer has closed.
    pub bytes: Vec<u8>,
    /// The descriptor that came along.
    pub descriptor: Option<OwnedFd>,
    /// The sender, where the socket passes credentials.
    pub sender: Option<UnixCredentials>,
}

/// A connected or listening socket.
#[derive(Debug)]
pub struct Seqpacket(OwnedFd);

impl From<OwnedFd> for Seqpacket {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

impl AsFd for Seqpacket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Seqpacket {
    fn new() -> Result<Self, Errno> {
        socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).map(Self)
    }

    /// Connects to a path; credentials are passed from the first packet on.
    ///
    /// # Errors
    /// The system call's.
    pub fn connect(path: &Path) -> Result<Self, Errno> {
        let socket = Self::new()?;
        setsockopt(&socket.0, sockopt::PassCred, &true)?;
        connect(socket.0.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(socket)
    }

    /// Listens on a name of the abstract namespace.
    ///
    /// # Errors
    /// The system call's; `EADDRINUSE` when the name is taken.
    pub fn listen_abstract(name: &str) -> Result<Self, Errno> {
        let socket = Self::new()?;
        bind(socket.0.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
        listen(&socket.0, Backlog::new(128)?)?;
        Ok(socket)
    }

    /// Listens on a path.
    ///
    /// # Errors
    /// The system call's; `EADDRINUSE` when there is a file.
    pub fn listen(path: &Path) -> Result<Self, Errno> {
        let socket = Self::new()?;
        setsockopt(&socket.0, sockopt::PassCred, &true)?;
        bind(socket.0.as_raw_fd(), &UnixAddr::new(path)?)?;
        listen(&socket.0, Backlog::new(128)?)?;
        Ok(socket)
    }

    /// Takes one connection.
    ///
    /// # Errors
    /// The system call's.
    pub fn accept(&self) -> Result<Self, Errno> {
        let raw = accept4(self.0.as_raw_fd(), SockFlag::SOCK_CLOEXEC)?;
        // SAFETY: `accept4` has just made this descriptor and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// Lets `recv` give up with `EAGAIN` after `limit`.
    ///
    /// # Errors
    /// The system call's.
    pub fn set_receive_timeout(&self, limit: Duration) -> Result<(), Errno> {
        let milliseconds = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        setsockopt(&self.0, sockopt::ReceiveTimeout, &TimeVal::new(milliseconds / 1000, milliseconds % 1000 * 1000))
    }

    fn send_message(&self, bytes: &[u8], control: &[ControlMessage<'_>]) -> Result<(), Errno> {
        let iov = [IoSlice::new(bytes)];
        sendmsg::<()>(self.0.as_raw_fd(), &iov, control, MsgFlags::MSG_NOSIGNAL, None).map(drop)
    }

    /// Sends one packet.
    ///
    /// # Errors
    /// The system call's.
    pub fn send(&self, bytes: &[u8]) -> Result<(), Errno> {
        self.send_message(bytes, &[])
    }

    /// Sends one packet with this process's credentials.
    ///
    /// # Errors
    /// The system call's.
    pub fn send_with_credentials(&self, bytes: &[u8]) -> Result<(), Errno> {
        self.send_message(bytes, &[ControlMessage::ScmCredentials(&UnixCredentials::new())])
    }

    /// Sends one packet with a copy of a descriptor.
    ///
    /// # Errors
    /// The system call's.
    pub fn send_with_descriptor(&self, bytes: &[u8], descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        let descriptors: [RawFd; 1] = [descriptor.as_raw_fd()];
        self.send_message(bytes, &[ControlMessage::ScmRights(&descriptors)])
    }

    /// Receives one packet. Of several descriptors in it all but the first are closed.
    ///
    /// # Errors
    /// The system call's.
    pub fn receive(&self) -> Result<Packet, Errno> {
        let mut bytes = vec![0; MAX_PACKET];
        let mut space = nix::cmsg_space!(UnixCredentials, [RawFd; 4]);
        let mut iov = [IoSliceMut::new(&mut bytes)];
        let message = recvmsg::<()>(self.0.as_raw_fd(), &mut iov, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
        let mut packet = Packet::default();
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmCredentials(sender) = control {
                packet.sender = Some(sender);
            } else if let ControlMessageOwned::ScmRights(descriptors) = control {
                for raw in descriptors {
                    // SAFETY: the kernel has just put this descriptor into our table and nobody else knows it.
                    let owned = unsafe { OwnedFd::from_raw_fd(raw) };
                    packet.descriptor.get_or_insert(owned);
                }
            }
        }
        let length = message.bytes;
        bytes.truncate(length);
        packet.bytes = bytes;
        Ok(packet)
    }

    /// Receives one packet, and takes a closed connection for an error.
    ///
    /// # Errors
    /// The system call's; `ECONNRESET` when the peer has closed.
    pub fn receive_some(&self) -> Result<Packet, Errno> {
        let packet = self.receive()?;
        if packet.bytes.is_empty() { Err(Errno::ECONNRESET) } else { Ok(packet) }
    }
}
