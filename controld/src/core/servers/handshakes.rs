//! What a server's state has of its clients: those on their way to it, and that they come and go.

use super::Servers;
use super::server::ServerState;
use crate::core::ids::{Pid, ServerEpoch, is_hidden};
use core::time::Duration;

/// How soon a draining server is asked again when the process of one of its clients has ended: it needs a moment to
/// notice that itself.
const ASK_AFTER_EXIT: Duration = Duration::from_millis(20);

impl Servers {
    /// A server was told of a client.
    pub(in crate::core) fn handshake_begins(&mut self, epoch: ServerEpoch) {
        self.with(epoch, |server| server.handshakes += 1);
    }

    /// A client is on its way to a server. Whether it is the first one there that nobody can tell from others.
    pub(in crate::core) fn is_used(&mut self, epoch: ServerEpoch, pid: Pid) -> bool {
        let Some(server) = self.all.get_mut(&epoch) else { return false };
        server.idle_since = None;
        server.has_hidden_clients |= is_hidden(pid);
        pid == 0 && !core::mem::replace(&mut server.has_unknown_clients, true)
    }

    /// A client that a server has greeted has its end, and may be waited for.
    pub(in crate::core) fn client_has_end(&mut self, epoch: ServerEpoch) {
        self.with(epoch, |server| {
            server.with_clients += 1;
            server.has_served = true;
        });
    }

    /// The driver is in that client's place now.
    pub(in crate::core) fn end_taken_back(&mut self, epoch: ServerEpoch, now: Duration) {
        self.with(epoch, |server| {
            server.with_clients = server.with_clients.saturating_sub(1);
            server.progress_at = now;
        });
    }

    /// A client's handshake is over, whatever came of it.
    pub(in crate::core) fn handshake_over(&mut self, epoch: ServerEpoch, had_end: bool) {
        self.with(epoch, |server| {
            server.handshakes = server.handshakes.saturating_sub(1);
            server.with_clients = server.with_clients.saturating_sub(usize::from(had_end));
        });
    }

    /// A client's process has ended, the last one that is known perhaps: a drain that waits for that asks again soon.
    pub(in crate::core) fn client_left(&mut self, now: Duration, epoch: ServerEpoch, is_last: bool) {
        self.with(epoch, |server| {
            if is_last {
                server.idle_since = Some(now);
            }
            if let ServerState::Draining(drain) = &mut server.state
                && let Some(ask_at) = &mut drain.ask_at
            {
                *ask_at = (*ask_at).min(now + ASK_AFTER_EXIT);
                drain.pauses.reset();
            }
        });
    }
}
