//! Packets with descriptors, on sockets of the library's own.
//!
//! The kernel makes a descriptor in this process as it hands a packet over. It waits for the packet first, for as long as
//! may be, and takes it then in a [`window`](super::window): no forked child has a descriptor that was on its way.
#![expect(unsafe_code, reason = "takes descriptors that the kernel has just made, and waits for them by number")]

use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd},
    time::Instant,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, accept4, recvmsg, sendmsg},
};

use super::descriptors::{Held, nobody_forks};

/// Descriptors that the kernel hands over with one packet at the most (`SCM_MAX_FD`). With room for fewer it makes some,
/// which a peer could use up a process's descriptors by.
const MOST_DESCRIPTORS: usize = 253;

/// What has come.
#[derive(Debug)]
pub(crate) struct Packet {
    /// Bytes of it in the buffer; 0 when the other end has closed.
    pub(crate) length: usize,
    /// It was longer than the buffer.
    pub(crate) is_cut: bool,
    /// The last descriptor that came along.
    pub(crate) descriptor: Option<Held>,
}

/// Sends a packet, and a descriptor with it.
pub(crate) fn send(socket: RawFd, packet: &[u8], descriptor: Option<RawFd>) -> io::Result<()> {
    let rights = descriptor.map(|number| [number]);
    let control: Vec<ControlMessage<'_>> = rights.iter().map(|list| ControlMessage::ScmRights(list)).collect();
    loop {
        match sendmsg::<()>(socket, &[IoSlice::new(packet)], &control, MsgFlags::MSG_NOSIGNAL, None) {
            Err(Errno::EINTR) => {}
            sent => return Ok(sent.map(drop)?),
        }
    }
}

/// Waits for a packet until `deadline`; `TimedOut` when none has come.
pub(crate) fn receive(socket: RawFd, buffer: &mut [u8], deadline: Instant) -> io::Result<Packet> {
    loop {
        wait(socket, Some(deadline))?;
        match take(socket, buffer) {
            // Another thread was faster, or a signal came.
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            taken => return Ok(taken?),
        }
    }
}

/// Takes a packet that is there.
fn take(socket: RawFd, buffer: &mut [u8]) -> Result<Packet, Errno> {
    let mut control = vec![0; nix::cmsg_space!([RawFd; MOST_DESCRIPTORS]).capacity()];
    let mut parts = [IoSliceMut::new(buffer)];
    let _window = nobody_forks();
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let received = recvmsg::<()>(socket, &mut parts, Some(&mut control), flags)?;
    let mut descriptor = None;
    let messages = match received.cmsgs() {
        Ok(messages) => messages,
        Err(error) => {
            close_all(&control);
            return Err(error);
        }
    };
    for message in messages {
        if let ControlMessageOwned::ScmRights(numbers) = message {
            for number in numbers {
                // One for which there is no room is closed.
                descriptor = Held::for_the_vault(number).ok();
            }
        }
    }
    Ok(Packet { length: received.bytes, is_cut: received.flags.contains(MsgFlags::MSG_TRUNC), descriptor })
}

/// Closes what has come with a packet for whose last descriptors the process has no room.
fn close_all(control: &[u8]) {
    // SAFETY: there is room for many descriptors, so for a header, and zeroes are one of no kind.
    let header = unsafe { control.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
    // SAFETY: reckons, and looks at nothing.
    let begins = usize::try_from(unsafe { libc::CMSG_LEN(0) }).unwrap_or(usize::MAX);
    if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
        let numbers = control.get(begins..header.cmsg_len).unwrap_or_default();
        for number in numbers.as_chunks().0 {
            // SAFETY: the kernel has just made it for this process, and nobody else knows of it.
            drop(unsafe { OwnedFd::from_raw_fd(RawFd::from_ne_bytes(*number)) });
        }
    }
}

/// Waits for somebody who connects to a listener that does not block.
pub(crate) fn accept(listener: RawFd) -> io::Result<Held> {
    loop {
        wait(listener, None)?;
        let accepted = Held::made(|| {
            // SAFETY: the kernel has just made it for this process.
            accept4(listener, SockFlag::SOCK_CLOEXEC).map(|number| unsafe { OwnedFd::from_raw_fd(number) })
        });
        match accepted {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            accepted => return accepted,
        }
    }
}

/// Waits until something is there, or the other end is closed.
fn wait(socket: RawFd, deadline: Option<Instant>) -> io::Result<()> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // In whole milliseconds, of which the last one must not become none.
        let limit =
            left.map_or(Ok(PollTimeout::NONE), |left| PollTimeout::try_from(left.as_millis().saturating_add(1)));
        let mut waiting = [PollFd::new(borrowed(socket), PollFlags::POLLIN)];
        match poll(&mut waiting, limit.unwrap_or(PollTimeout::MAX)) {
            Ok(0) => {
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
                }
            }
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A socket of ours by its number, which was looked at just before. Waiting for it and setting its limits harm no other
/// file that a careless program has put there.
pub(crate) fn borrowed<'a>(number: RawFd) -> BorrowedFd<'a> {
    // SAFETY: as above; one that the program has closed meanwhile makes a call fail, or a wait end, at once.
    unsafe { BorrowedFd::borrow_raw(number) }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io,
        os::fd::{AsRawFd as _, OwnedFd},
        time::{Duration, Instant},
    };

    use nix::{
        sys::{
            socket::{AddressFamily, SockFlag, SockType, socketpair},
            wait::{WaitStatus, waitpid},
        },
        unistd::{ForkResult, fork},
    };

    use super::{ControlMessage, IoSlice, MOST_DESCRIPTORS, MsgFlags, receive, send, sendmsg};
    use crate::process::descriptors::numbers;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).expect("a pair of sockets")
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    /// Sends so many descriptors of one file.
    fn send_many(socket: &OwnedFd, count: usize) {
        let file = File::open("/proc/self/comm").expect("a file");
        let all = vec![file.as_raw_fd(); count];
        let control = [ControlMessage::ScmRights(&all)];
        let sent =
            sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(b"x")], &control, MsgFlags::empty(), None).expect("sent");
        assert_eq!(sent, 1);
    }

    #[test]
    fn however_many_descriptors_come_none_stays_but_one() {
        let (ours, theirs) = pair();
        for count in [2, 5, 64, MOST_DESCRIPTORS] {
            send_many(&theirs, count);
            let first = numbers().len();
            let packet = receive(ours.as_raw_fd(), &mut [0; 8], soon()).expect("it came");
            assert!(packet.descriptor.is_some(), "{count}");
            assert!(numbers().len() < first + 5, "{count}: other tests have a few at the most");
        }
    }

    #[test]
    fn a_packet_comes_whole_with_its_descriptor_or_is_said_to_be_cut() {
        let (ours, theirs) = pair();
        let file = File::open("/proc/self/comm").expect("a file");
        send(theirs.as_raw_fd(), b"with", Some(file.as_raw_fd())).expect("there is room");
        send(theirs.as_raw_fd(), b"longer than that", None).expect("there is room");
        drop(theirs);
        let mut buffer = [0; 8];
        let first = receive(ours.as_raw_fd(), &mut buffer, soon()).expect("it is there");
        assert_eq!((&buffer[..first.length], first.is_cut), (&b"with"[..], false));
        let number = first.descriptor.as_ref().and_then(|held| held.number()).expect("it came along");
        assert!(numbers().contains(&number), "it is among those that a child closes");
        let second = receive(ours.as_raw_fd(), &mut buffer, soon()).expect("it is there");
        assert!(second.is_cut && second.descriptor.is_none());
        assert_eq!(receive(ours.as_raw_fd(), &mut buffer, soon()).expect("the end").length, 0);
    }

    #[test]
    fn one_that_does_not_come_is_waited_for_until_the_deadline() {
        let (ours, _theirs) = pair();
        let deadline = Instant::now() + Duration::from_millis(20);
        let error = receive(ours.as_raw_fd(), &mut [0; 8], deadline).expect_err("nobody says anything");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(Instant::now() >= deadline);
    }

    #[test]
    fn a_child_that_is_forked_while_descriptors_come_has_none_of_them() {
        /// Children that are forked meanwhile.
        const CHILDREN: usize = 200;
        let (ours, theirs) = pair();
        let (reader, writer) = nix::unistd::pipe().expect("a pipe");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut buffer = [0; 8];
                while receive(ours.as_raw_fd(), &mut buffer, soon()).expect("somebody sends").length > 0 {}
            });
            scope.spawn(|| {
                // Until it is told to end, by the other end of the pipe.
                let mut children = 0;
                while children < CHILDREN {
                    send(theirs.as_raw_fd(), b"with", Some(writer.as_raw_fd())).expect("the other end lives");
                    // SAFETY: the child looks at its descriptors and leaves.
                    match unsafe { fork() }.expect("a test may fork") {
                        ForkResult::Child => {
                            let copies = (0..4096).filter(|number| is_of_the_same_pipe(*number, writer.as_raw_fd()));
                            let extra = copies.filter(|number| *number != writer.as_raw_fd()).count();
                            // SAFETY: leaves the child at once, without the test harness's handlers.
                            unsafe { libc::_exit(i32::from(extra > 0)) }
                        }
                        ForkResult::Parent { child } => {
                            let ended = waitpid(child, None).expect("the child is ours");
                            assert_eq!(
                                ended,
                                WaitStatus::Exited(child, 0),
                                "child {children} has a descriptor of ours"
                            );
                        }
                    }
                    children += 1;
                }
                drop(theirs);
            });
        });
        drop((reader, writer));
    }

    /// Whether a number is one for writing to this pipe. Calls what a child of a program with threads may.
    fn is_of_the_same_pipe(number: i32, writer: i32) -> bool {
        let status = |number| {
            let mut status = std::mem::MaybeUninit::<libc::stat64>::zeroed();
            // SAFETY: the kernel writes to the structure, whatever the number is.
            let failed = unsafe { libc::fstat64(number, status.as_mut_ptr()) } != 0;
            // SAFETY: zeroed is a valid value, filled in or not.
            let status = unsafe { status.assume_init() };
            (!failed).then_some((status.st_dev, status.st_ino))
        };
        // SAFETY: asks for flags.
        let mode = |number| unsafe { libc::fcntl(number, libc::F_GETFL) } & libc::O_ACCMODE;
        status(number).is_some() && status(number) == status(writer) && mode(number) == mode(writer)
    }
}
