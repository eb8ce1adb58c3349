//! One connection as the driver knows it: for a word in between, while the session's thread waits for something else.
//!
//! A packet is sent whole or not at all, so the driver's stand between the session's answers. The driver never waits and
//! never closes: what a peer has sent and nobody has received is closed with the last hold on a socket, and that may
//! hang. So the session's own hold is the last.

use crate::io::packets::send;
use nix::errno::Errno;
use nix::sys::socket::{Shutdown, shutdown};
use parking_lot::Mutex;
use remps_proto::shim::{Answer, ToShim};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// What has become of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// It is on its way.
    Yes,
    /// The peer has not read so much that there is no room for more.
    NoRoom,
    /// The connection is over.
    Over,
}

/// A session's socket, until the session ends.
#[derive(Debug)]
pub(crate) struct Line(Mutex<Option<Arc<OwnedFd>>>);

impl Line {
    pub(super) fn new(socket: &Arc<OwnedFd>) -> Self {
        Self(Mutex::new(Some(Arc::clone(socket))))
    }

    /// Sends what nobody asked for.
    pub(crate) fn say(&self, answer: Answer) -> Said {
        let Ok(packet) = (ToShim { request: 0, answer }).encode() else { return Said::Over };
        let socket = self.0.lock();
        let Some(socket) = socket.as_ref() else { return Said::Over };
        match send(socket.as_fd(), &packet, &[]) {
            Ok(()) => Said::Yes,
            Err(Errno::EAGAIN | Errno::EINTR) => Said::NoRoom,
            Err(_) => Said::Over,
        }
    }

    /// Ends the session of a peer that does not read.
    pub(crate) fn hang_up(&self) {
        if let Some(socket) = self.0.lock().as_ref() {
            // One that is over already.
            let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
        }
    }

    /// The session ends; nobody else holds its socket afterwards.
    pub(super) fn close(&self) {
        self.0.lock().take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::packets::receive;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use remps_proto::shim::{MAX_MESSAGE_BYTES, Part, ServerState};

    const NEWS: Answer = Answer::Epoch { server: 7, state: ServerState::TAINTED, part: Part::BYSTANDER };

    #[test]
    fn who_does_not_read_loses_his_own_connection_and_makes_nobody_wait() {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (here, there) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
        let here = Arc::new(here);
        let line = Line::new(&here);
        let said = std::iter::repeat_with(|| line.say(NEWS)).take_while(|said| *said == Said::Yes).count();
        assert_eq!((line.say(NEWS), said > 1), (Said::NoRoom, true));
        let mut buffer = [0; MAX_MESSAGE_BYTES];
        let got = receive(there.as_fd(), &mut buffer).unwrap();
        assert_eq!(ToShim::decode(&buffer[..got.bytes]).unwrap(), ToShim { request: 0, answer: NEWS });
        while line.say(NEWS) != Said::Yes {
            receive(there.as_fd(), &mut buffer).unwrap();
        }
        line.hang_up();
        assert_eq!(line.say(NEWS), Said::Over);
        // What wakes the session's thread.
        assert_eq!(receive(here.as_fd(), &mut buffer).unwrap().bytes, 0);
        line.close();
        assert_eq!((Arc::strong_count(&here), line.say(NEWS)), (1, Said::Over));
    }
}
