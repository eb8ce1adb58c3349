//! Pipes of tests, and when their other ends are really closed: a child that another test has just forked has all
//! descriptors of this process until it executes its program.

use std::os::fd::{AsFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

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
