//! Packets with descriptors and their senders' credentials beside them, and accepting: one call each, none waits.
//!
//! Receiving is done here and not by `nix`, which gives no access to the descriptors of a packet whose ancillary data
//! was cut short: they would stay open for ever; and which takes such a packet for an error.
#![expect(unsafe_code, reason = "received and accepted descriptors are numbers until they are owned")]

use std::io::IoSlice;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, SockFlag, UnixAddr, UnixCredentials, accept4, sendmsg};
use remps_proto::holder::MAX_DESCRIPTORS;

use crate::core::Peer;

/// Room for the sender's credentials, in words: two behind a header of two.
pub(super) const CREDENTIALS_WORDS: usize = 4;

/// Room for descriptors, in words: two a word, behind a header of two.
pub(super) const fn words_for(descriptors: usize) -> usize {
    2 + descriptors.div_ceil(2)
}

/// One received packet; its bytes are in the caller's buffer.
#[derive(Debug)]
pub(crate) struct Received {
    /// How many bytes it had, at most the length of the buffer.
    pub(crate) bytes: usize,
    /// The descriptors that came along, close-on-exec.
    pub(crate) fds: Vec<OwnedFd>,
    /// Some descriptors were lost: more than there is room for, or the process has too many open.
    pub(crate) descriptors_lost: bool,
    /// The packet was longer than the buffer.
    pub(crate) truncated: bool,
    /// Who sent it, where the socket passes credentials.
    pub(crate) sender: Option<Peer>,
    /// The sender's process descriptor, where the socket passes those.
    pub(crate) pidfd: Option<OwnedFd>,
}

/// Room for the sender's process descriptor, in words: one behind a header of two.
pub(super) const PIDFD_WORDS: usize = 3;
/// `include/linux/socket.h`.
const SCM_PIDFD: libc::c_int = 4;

/// Who these credentials are of.
pub(super) fn peer(credentials: &UnixCredentials) -> Peer {
    // A process of another pid namespace shows as 0.
    let pid = u32::try_from(credentials.pid()).unwrap_or_default();
    Peer { pid, uid: credentials.uid(), gid: credentials.gid() }
}

/// Sends one packet and never waits.
pub(crate) fn send(socket: BorrowedFd<'_>, packet: &[u8], fds: &[BorrowedFd<'_>]) -> nix::Result<()> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let ancillary = if raw.is_empty() { &[][..] } else { &rights[..] };
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    sendmsg::<UnixAddr>(socket.as_raw_fd(), &[IoSlice::new(packet)], ancillary, flags, None).map(drop)
}

/// Sends one packet with this process's pid, uid and gid, and waits while the peer's queue is full.
pub(crate) fn send_with_credentials(socket: BorrowedFd<'_>, packet: &[u8]) -> nix::Result<()> {
    let own = UnixCredentials::new();
    let ancillary = [ControlMessage::ScmCredentials(&own)];
    sendmsg::<UnixAddr>(socket.as_raw_fd(), &[IoSlice::new(packet)], &ancillary, MsgFlags::MSG_NOSIGNAL, None).map(drop)
}

/// Receives one packet of ours and never waits. No bytes and no descriptors: the peer closed, or the packet was empty.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> nix::Result<Received> {
    let mut room = [0; words_for(MAX_DESCRIPTORS) + CREDENTIALS_WORDS];
    let mut got = receive_with(socket, buffer, &mut room, MsgFlags::empty())?;
    // Where no credentials are passed, their room is filled with descriptors too.
    got.descriptors_lost |= got.fds.len() > MAX_DESCRIPTORS;
    got.fds.truncate(MAX_DESCRIPTORS);
    Ok(got)
}

/// The same from somebody of whom one descriptor is wanted at most, on a socket that passes credentials. Any others never
/// are in the table of this process, where each would have to be closed, which may hang while the next ones are still there:
/// the kernel lets go of them.
pub(crate) fn receive_one(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> nix::Result<Received> {
    // Two fit where a word is whole, and the kernel looks at bytes.
    const ROOM: usize = (CREDENTIALS_WORDS + words_for(1)) * size_of::<u64>() - size_of::<RawFd>();
    let mut room = [0; CREDENTIALS_WORDS + words_for(1)];
    receive_in(socket, buffer, (&mut room, ROOM), MsgFlags::empty())
}

/// Receives one packet and never waits, with this room for what comes beside its bytes.
pub(super) fn receive_with(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    room: &mut [u64],
    flags: MsgFlags,
) -> nix::Result<Received> {
    let length = size_of_val(room);
    receive_in(socket, buffer, (room, length), flags)
}

/// The same with so many bytes of the room.
fn receive_in(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    (room, length): (&mut [u64], usize),
    flags: MsgFlags,
) -> nix::Result<Received> {
    let mut piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeroes is a valid `msghdr`: null pointers and lengths of zero.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut piece;
    header.msg_iovlen = 1;
    header.msg_control = room.as_mut_ptr().cast();
    header.msg_controllen = length;
    let flags = flags | MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    // SAFETY: the header names a buffer and a control area that live and are writable for their stated lengths.
    let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags.bits()) };
    let bytes = usize::try_from(Errno::result(result)?).expect("a successful recvmsg is not negative");

    let (mut fds, mut sender, mut pidfd) = (Vec::new(), None, None);
    // SAFETY: the kernel has set the header's control area and its length.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !next.is_null() {
        // SAFETY: a non-null result of the CMSG macros is an aligned header within the control area.
        let message = unsafe { *next };
        // SAFETY: computes the length of a header without data, touches nothing.
        let empty = unsafe { libc::CMSG_LEN(0) } as usize;
        let length = message.cmsg_len.saturating_sub(empty);
        // SAFETY: the data follows the header within the control area.
        let data = unsafe { libc::CMSG_DATA(next) }.cast_const();
        match (message.cmsg_level, message.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                // SAFETY: so many numbers follow the header, and the data is aligned to a word.
                let numbers = unsafe { std::slice::from_raw_parts(data.cast::<RawFd>(), length / size_of::<RawFd>()) };
                for number in numbers {
                    // SAFETY: the kernel just installed this descriptor for us and nobody else knows it.
                    fds.push(unsafe { OwnedFd::from_raw_fd(*number) });
                }
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if length >= size_of::<libc::ucred>() => {
                // SAFETY: it is as long as a `ucred`, of which any bytes are valid.
                let credentials = unsafe { data.cast::<libc::ucred>().read_unaligned() };
                sender = Some(peer(&credentials.into()));
            }
            (libc::SOL_SOCKET, SCM_PIDFD) if length >= size_of::<RawFd>() => {
                // SAFETY: one number follows the header; of a process that has ended it is an error's.
                let number = unsafe { data.cast::<RawFd>().read_unaligned() };
                // SAFETY: the kernel just installed this descriptor for us and nobody else knows it.
                pidfd = (number >= 0).then(|| unsafe { OwnedFd::from_raw_fd(number) });
            }
            _ => {}
        }
        // SAFETY: the header and the current message are those the kernel filled in.
        next = unsafe { libc::CMSG_NXTHDR(&raw const header, next) };
    }
    Ok(Received {
        bytes,
        fds,
        descriptors_lost: header.msg_flags & libc::MSG_CTRUNC != 0,
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
        sender,
        pidfd,
    })
}

/// Accepts one connection from a non-blocking listener, close-on-exec.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> nix::Result<OwnedFd> {
    let raw = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)?;
    // SAFETY: the kernel just made this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use nix::sys::socket::{AddressFamily, SockType, socketpair};

    use super::*;
    use crate::io::ends::{pipe, wait_for_hangup};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
    }

    #[test]
    fn a_packet_arrives_with_its_descriptors() {
        let (here, there) = pair();
        let (reader, writer) = pipe();
        send(here.as_fd(), b"two ends", &[reader.as_fd(), writer.as_fd()]).unwrap();
        drop((reader, writer));

        let mut buffer = [0; 64];
        let got = receive(there.as_fd(), &mut buffer).unwrap();
        assert_eq!((&buffer[..got.bytes], got.fds.len()), (&b"two ends"[..], 2));
        assert!(!got.descriptors_lost && !got.truncated);
        nix::unistd::write(&got.fds[1], b"x").unwrap();
        assert_eq!(nix::unistd::read(&got.fds[0], &mut buffer), Ok(1));
    }

    #[test]
    fn what_does_not_fit_is_said_and_nothing_stays_open() {
        let (here, there) = pair();
        let (reader, writer) = pipe();
        send(here.as_fd(), b"a long packet", &[reader.as_fd(); MAX_DESCRIPTORS + 1]).unwrap();
        drop(reader);

        let mut buffer = [0; 4];
        let got = receive(there.as_fd(), &mut buffer).unwrap();
        assert_eq!((got.bytes, got.truncated, got.descriptors_lost), (4, true, true));
        assert_eq!(got.fds.len(), MAX_DESCRIPTORS);
        drop(got);
        wait_for_hangup(&writer);
    }

    #[test]
    fn of_many_descriptors_one_comes_in_and_the_others_are_let_go_of() {
        let (here, there) = pair();
        nix::sys::socket::setsockopt(&there, nix::sys::socket::sockopt::PassCred, &true).unwrap();
        for count in [0, 1, 2, MAX_DESCRIPTORS] {
            let pipes: Vec<_> = (0..count).map(|_| pipe()).collect();
            let ends: Vec<_> = pipes.iter().map(|(reader, _)| reader.as_fd()).collect();
            send(here.as_fd(), b"x", &ends).unwrap();
            let got = receive_one(there.as_fd(), &mut [0; 4]).unwrap();
            assert_eq!((got.fds.len(), got.descriptors_lost), (count.min(1), count > 1));
            assert!(got.sender.is_some());
            let writers: Vec<_> = pipes.into_iter().map(|(_, writer)| writer).collect();
            // Of the first one we have a copy.
            writers.iter().skip(1).for_each(wait_for_hangup);
            drop(got);
            writers.iter().for_each(wait_for_hangup);
        }
    }

    #[test]
    fn the_sender_is_told_where_credentials_are_passed() {
        let (here, there) = pair();
        nix::sys::socket::setsockopt(&there, nix::sys::socket::sockopt::PassCred, &true).unwrap();
        send(here.as_fd(), b"x", &[here.as_fd(); MAX_DESCRIPTORS]).unwrap();
        let got = receive(there.as_fd(), &mut [0; 4]).unwrap();
        assert_eq!(got.sender.map(|peer| peer.pid), Some(std::process::id()));
        assert_eq!((got.fds.len(), got.descriptors_lost), (MAX_DESCRIPTORS, false));
    }

    #[test]
    fn an_empty_socket_is_no_reason_to_wait() {
        let (here, there) = pair();
        assert_eq!(receive(here.as_fd(), &mut [0; 4]).unwrap_err(), Errno::EAGAIN);
        drop(there);
        wait_for_hangup(&here);
        assert_eq!(receive(here.as_fd(), &mut [0; 4]).unwrap().bytes, 0);
        assert_eq!(send(here.as_fd(), b"x", &[]), Err(Errno::EPIPE));
    }
}
