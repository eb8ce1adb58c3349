//! Pipes and sockets of tests, and when their other ends are really closed: a child that another test has just forked has all
//! descriptors of this process until it executes its program.

use std::io::{ErrorKind, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};

/// Milliseconds that a child may take to execute its program.
const LIMIT: u16 = 30_000;

/// Where to read and where to write; no program that a test executes has either.
pub(crate) fn pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = std::io::pipe().expect("descriptors");
    (reader.into(), writer.into())
}

/// Waits until nobody has the other end of this pipe or socket any longer.
pub(crate) fn wait_for_hangup(end: impl AsFd) {
    let mut polled = [PollFd::new(end.as_fd(), PollFlags::empty())];
    assert_eq!(poll(&mut polled, PollTimeout::from(LIMIT)), Ok(1), "somebody has the other end");
    let is_over = polled[0].revents().is_some_and(|flags| flags.intersects(PollFlags::POLLERR | PollFlags::POLLHUP));
    assert!(is_over, "{polled:?}");
}

/// A connection whose closing takes an hour, and who does not read what is sent in it: with him gone it takes no time.
pub(crate) fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("every machine has itself");
    let mut sender = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (reader, _) = listener.accept().expect("somebody has connected");
    sender.set_nonblocking(true).expect("it is a socket");
    while sender.write(&[0; 65_536]).map_err(|error| error.kind()) != Err(ErrorKind::WouldBlock) {}
    sender.set_nonblocking(false).expect("it is a socket");
    setsockopt(&sender, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 3600 }).expect("it is a TCP socket");
    (sender.into(), reader)
}
