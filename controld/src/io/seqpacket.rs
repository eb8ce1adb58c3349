//! `SOCK_SEQPACKET` sockets with credentials, for tokio. Descriptors are sent and never wanted: a peer's may be anything. The
//! sockets refuse them where the kernel has that ([`passed`](crate::sys::passed)); elsewhere they are taken off the packet
//! and closed on other threads, since the kernel closes what is left in it right here, as long as that may take.
//!
//! One packet is one message part of NVIDIA's wire. Sending never waits: who wants to send more than a peer takes must
//! hold it back itself, so that no peer can hold up another.
#![expect(unsafe_code, reason = "calls sendmmsg, which nix offers for equal packets only")]

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
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
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

    /// Sends packets in one system call, which a SIGKILL can't interrupt between two of them; returns how many went.
    ///
    /// # Errors
    /// When not even the first could be sent: `WouldBlock` when the peer's buffer is full; else the socket's.
    pub(crate) fn send_batch(&self, packets: &[(&[u8], Option<BorrowedFd<'_>>)]) -> io::Result<usize> {
        /// Room for one SCM_RIGHTS message with one descriptor, aligned as the kernel wants it.
        #[repr(C, align(8))]
        #[derive(Clone, Copy)]
        struct Control([u8; 24]);

        // SAFETY: CMSG_SPACE and CMSG_LEN only compute.
        const SPACE: u32 = unsafe { libc::CMSG_SPACE(4) };
        const _: () = assert!(SPACE as usize == size_of::<Control>() && size_of::<RawFd>() == 4, "one descriptor fits");

        let mut buffers: Vec<libc::iovec> = packets
            .iter()
            .map(|(bytes, _)| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() })
            .collect();
        let mut controls: Vec<Control> = packets
            .iter()
            .map(|(_, descriptor)| {
                let mut control = Control([0; 24]);
                if let Some(fd) = descriptor {
                    // The header is size, level, type; the descriptor follows. CMSG_LEN is header plus payload.
                    let length = size_of::<libc::cmsghdr>() + size_of::<RawFd>();
                    control.0[..8].copy_from_slice(&(length as u64).to_ne_bytes());
                    control.0[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
                    control.0[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
                    control.0[16..20].copy_from_slice(&fd.as_raw_fd().to_ne_bytes());
                }
                control
            })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = buffers
            .iter_mut()
            .zip(&mut controls)
            .zip(packets)
            .map(|((buffer, control), (_, descriptor))| {
                // SAFETY: all fields of these C structures are valid as zeros.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = buffer;
                message.msg_hdr.msg_iovlen = 1;
                if descriptor.is_some() {
                    message.msg_hdr.msg_control = std::ptr::from_mut(control).cast();
                    message.msg_hdr.msg_controllen = size_of::<Control>();
                }
                message
            })
            .collect();
        let count = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the messages, and the buffers and control blocks that they point to, live until the call returns, and
        // the kernel writes only the messages' lengths.
        let sent = unsafe { libc::sendmmsg(self.fd.as_raw_fd(), messages.as_mut_ptr(), count, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
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
mod tests {
    use super::*;
    use crate::io::ends::wait_for_hangup;
    use crate::sys::other_proc::OtherProc;
    use nix::sys::socket::{ControlMessage, UnixAddr, sendmsg};
    use std::io::IoSlice;
    use std::path::Path;
    use std::process::Command;

    fn ends() -> (SeqPacket, SeqPacket) {
        let (first, second) = pair().expect("descriptors");
        (SeqPacket::new(first).expect("a socket"), SeqPacket::new(second).expect("a socket"))
    }

    #[tokio::test(flavor = "current_thread")]
    async fn packets_carry_their_senders_credentials() {
        let (near, far) = ends();
        near.send(b"hello", None).expect("room");
        let packet = far.receive(16).await.expect("readable").expect("a packet");
        assert_eq!(packet.bytes, b"hello");
        let sender = packet.sender.expect("credentials pass");
        assert_eq!((sender.pid, sender.uid), (std::process::id(), nix::unistd::getuid().as_raw()));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_empty_packet_is_not_the_end() {
        let (near, far) = ends();
        near.send(b"", None).expect("room");
        drop(near);
        assert!(far.receive(16).await.expect("readable").is_some_and(|packet| packet.bytes.is_empty()));
        assert!(far.receive(16).await.expect("readable").is_none());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_packet_longer_than_the_buffer_is_marked() {
        let (near, far) = ends();
        near.send(&[7; 40], None).expect("room");
        let packet = far.receive(16).await.expect("readable").expect("a packet");
        assert!(packet.bytes.len() == 16);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn peeking_leaves_the_packet_until_it_is_discarded() {
        let (near, far) = ends();
        near.send(b"one", None).expect("room");
        near.send(b"two", None).expect("room");
        assert_eq!(far.peek(16).await.expect("readable").expect("a packet").bytes, b"one");
        assert_eq!(far.peek(16).await.expect("readable").expect("a packet").bytes, b"one");
        far.discard().expect("a packet");
        assert_eq!(far.receive(16).await.expect("readable").expect("a packet").bytes, b"two");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_batch_arrives_as_packets_with_the_descriptor_where_it_belongs() {
        let (near, far) = ends();
        let (passed, _kept) = pair().expect("descriptors");
        let sent = near.send_batch(&[(b"op", None), (b"fd", Some(passed.as_fd())), (b"", None)]).expect("room");
        assert_eq!(sent, 3);
        let mut got = Vec::new();
        for _ in 0..3 {
            let mut buffer = [0; 16];
            let packet = crate::io::packets::receive(far.as_fd(), &mut buffer).expect("a packet");
            got.push((buffer[..packet.bytes].to_vec(), packet.fds.len()));
        }
        assert_eq!(got, [(b"op".to_vec(), 0), (b"fd".to_vec(), 1), (Vec::new(), 0)]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn descriptors_that_nobody_asked_for_are_closed_elsewhere_and_the_packet_comes_in() {
        const MOST: usize = 253;
        let (near, far) = ends();
        let (reader, writer) = io::pipe().expect("descriptors");
        let raw = vec![reader.as_raw_fd(); MOST];
        for packet in [b"one", b"two"] {
            let rights = [ControlMessage::ScmRights(&raw)];
            let raw_socket = near.as_fd().as_raw_fd();
            sendmsg::<UnixAddr>(raw_socket, &[IoSlice::new(packet)], &rights, MsgFlags::empty(), None).expect("room");
        }
        drop(reader);
        let peeked = far.peek(16).await.expect("readable").expect("a packet");
        assert_eq!(peeked.sender.map(|peer| peer.pid), Some(std::process::id()));
        assert_eq!(far.receive(16).await.expect("readable").expect("a packet").bytes, b"one");
        far.discard().expect("a packet");
        wait_for_hangup(&writer);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_file_whose_closing_takes_an_hour_holds_up_nobody_who_takes_or_refuses_its_packet() {
        let (near, far) = ends();
        let (lingering, _reader) = crate::io::ends::lingering();
        for _ in 0..3 {
            near.send(b"x", Some(lingering.as_fd())).expect("room");
        }
        // The last copies are those in the packets.
        drop(lingering);
        assert_eq!(far.receive(16).await.expect("readable").expect("a packet").bytes, b"x");
        far.discard().expect("a packet");
        far.refuse_the_rest();
        assert!(far.peek(16).await.expect("readable").is_none());
        assert!(near.send(b"x", None).is_err(), "nothing more comes in");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_sender_of_a_packet_is_named_and_not_who_connected() {
        let (near, far) = ends();
        let there = OtherProc::open(Path::new(crate::sys::proc::FOLDER)).expect("it is the machine's");
        let of = |far: &SeqPacket| {
            far.sender_pidfd().map(|pidfd| there.find(&pidfd.expect("it lives")).expect("it lives").pid)
        };
        near.send(b"own", None).expect("room");
        match of(&far) {
            Ok(own) => assert_eq!(own, std::process::id()),
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                println!("Skipped(this kernel names no senders)");
                return;
            }
            Err(error) => panic!("{error}"),
        }
        far.discard().expect("a packet");
        assert_eq!(far.sender_pidfd().expect_err("nothing is there").kind(), io::ErrorKind::WouldBlock);
        // A child says something by this process's end.
        let end = near.as_fd().try_clone_to_owned().expect("there are descriptors");
        let mut child = Command::new("sh");
        child.args(["-c", "printf his >&0; exec tail -f /dev/null"]).stdin(end);
        let mut child = child.spawn().expect("there is a shell");
        assert_eq!(far.peek(16).await.expect("readable").expect("a packet").bytes, b"his");
        assert_eq!(of(&far).expect("it is named"), child.id());
        child.kill().expect("it waits");
        child.wait().expect("it is ours");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_peer_that_does_not_read_makes_sending_fail_and_not_wait() {
        let (near, _far) = ends();
        let error = (0..1_000_000).find_map(|_| near.send(&[0; 512], None).err()).expect("the buffer is finite");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
