//! Accepting on behalf of the attached daemon.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use remps_proto::holder::Kind;
use remps_proto::mps::handshake::GREETING;

use super::attached::Daemon;
use super::{Holder, PAUSE};
use crate::io::packets::{accept, send};

/// Connections accepted in one turn.
const ACCEPTS_A_TURN: usize = 16;

impl Holder {
    /// Accepts from one listener as long as the daemon has room to be told.
    pub(super) fn accept(&mut self, key: u64) {
        for _ in 0..ACCEPTS_A_TURN {
            if !self.daemon.as_mut().is_some_and(Daemon::has_room) {
                return;
            }
            let Some(entry) = self.shelf.get(key) else { return };
            let (kind, Some(listener)) = (entry.kind, entry.fds.first()) else { return };
            if self.shelf.is_full() {
                return self.pause_accepting();
            }
            match accept(listener.as_fd()) {
                Ok(connection) => self.welcome(kind, connection),
                Err(Errno::EAGAIN) => return,
                Err(Errno::EINTR | Errno::ECONNABORTED) => {}
                // EMFILE and ENFILE; for anything else to wait is no worse than to spin.
                Err(_) => return self.pause_accepting(),
            }
        }
    }

    fn pause_accepting(&mut self) {
        self.accept_pauses += 1;
        self.accept_again_at = Some(Instant::now() + PAUSE);
    }

    /// Greets a new connection, keeps a duplicate and tells the daemon.
    fn welcome(&mut self, listener: Kind, connection: OwnedFd) {
        // A peer that is gone by now needs no answer.
        let greeted =
            setsockopt(&connection, sockopt::PassCred, &true).and_then(|()| send(connection.as_fd(), GREETING, &[]));
        let key = self.next_key;
        if greeted.is_err() || self.shelf.hold_accepted(key, listener, connection).is_err() {
            return;
        }
        self.next_key += 1;
        if let Some(daemon) = &mut self.daemon {
            daemon.owe(key);
        }
        self.tell();
    }
}
