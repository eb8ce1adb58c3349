//! When a newcomer may join others: only when the server is known to have been sound for a while after it came.
//!
//! A fault is known late. Between the launch of a faulting kernel and the moment at which NVIDIA's server says `FAULT`
//! there are some 10 ms for a `trap`, without any sign, and who does the handshake meanwhile is refused with 807 or gets
//! a context that is lost (measured on an H200 with 580). So
//!
//! - a process that comes to a server with other clients waits until the server has said, `settle_time` or more after
//!   it came, that it is in no fault. The time runs while it waits for anything else. A client that has just ended badly
//!   counts as one that is there: who is started again after a fault must not come back to the server that had it;
//! - the first context of a process, which may still go to another server (9 of 9 on an H200), waits for the server's
//!   word alone, which takes 0.1 ms;
//! - further contexts don't wait: they can't go elsewhere. Neither does the only client of a server.
//!
//! What happens to a client after it has its end of the connection can't be undone.

use super::admission::Client;
use super::evidence::{End, Evidence};
use super::ids::{ConnectionId, ServerEpoch};
use super::questions::Purpose;
use super::server::Server;
use super::{Core, NoReply};
use core::time::Duration;
use remps_proto::mps::server::{Reply, Request};

/// Connections of a process until it has a context: that of the process itself.
pub(super) const BEFORE_CONTEXTS: usize = 1;

impl Core {
    /// From when on this client must know the server to be sound; `None` when it need not wait for that.
    fn sound_since(&self, client: &Client, server: &Server) -> Option<Duration> {
        let settle = self.domains.get(server.domain).map(|domain| domain.policy.faults.settle_time)?;
        let own = self.processes.get(&client.peer.pid).filter(|process| process.server == server.epoch);
        let wait = match own.map(|process| process.connections) {
            Some(connections) if connections > BEFORE_CONTEXTS => return None,
            Some(BEFORE_CONTEXTS) => Duration::ZERO,
            Some(_) | None => settle,
        };
        let others =
            self.processes.iter().any(|(pid, process)| *pid != client.peer.pid && process.server == server.epoch);
        let has_company = others
            || self.has_funerals(server.epoch)
            || self.deaths.iter().any(|death| {
                death.process.server == server.epoch
                    && death.end != End::Exited(0)
                    && death.at + settle > client.came_at
            });
        (has_company && !settle.is_zero()).then_some(client.came_at + wait)
    }

    /// Whether this client may go to the server now, as far as the server's state is known.
    pub(super) fn is_settled(&self, client: &Client, server: &Server) -> bool {
        self.sound_since(client, server).is_none_or(|since| server.healthy_at.is_some_and(|at| at >= since))
    }

    /// The servers that waiting clients would go to, each with the time at which it should be asked how it is.
    fn questions_of_health(&self) -> impl Iterator<Item = (ServerEpoch, Duration)> {
        // A crowd waits while no server can take any of it, and this is looked at after every event.
        let is_any = self.servers.values().any(|server| self.is_open(server) && !server.health_asked);
        let waiting = self.domains.values().filter(move |_| is_any).flat_map(|domain| domain.waiting.iter());
        waiting.filter_map(|connection: &ConnectionId| {
            let client = self.clients.get(connection)?;
            let server = self.server_for(client).filter(|server| self.is_open(server) && !server.health_asked)?;
            let since = self.sound_since(client, server)?;
            server.healthy_at.is_none_or(|at| at < since).then_some((server.epoch, since))
        })
    }

    pub(super) fn settle_deadline(&self) -> Option<Duration> {
        self.questions_of_health().map(|(_, at)| at).min()
    }

    /// Asks the servers on whose word newcomers wait.
    pub(super) fn advance_settling(&mut self, now: Duration) {
        let due: Vec<ServerEpoch> =
            self.questions_of_health().filter(|(_, at)| *at <= now).map(|(server, _)| server).collect();
        for epoch in due {
            if let Some(server) = self.servers.get_mut(&epoch).filter(|server| !server.health_asked) {
                server.health_asked = true;
                self.ask(epoch, Request::Status, Purpose::Health(now));
            }
        }
    }

    /// The answer to a question of that time.
    pub(super) fn health_answered(
        &mut self,
        now: Duration,
        epoch: ServerEpoch,
        asked_at: Duration,
        reply: &Result<Reply, NoReply>,
    ) {
        let Some(server) = self.servers.get_mut(&epoch) else {
            return;
        };
        server.health_asked = false;
        match reply {
            Ok(Reply::Active(false)) => self.evidence(now, Evidence::ServerStatus { server: epoch }),
            Ok(_) => server.healthy_at = server.healthy_at.max(Some(asked_at)),
            // Nobody can know it of this release.
            Err(NoReply::Unsupported) => server.healthy_at = Some(now),
            Err(NoReply::Lost | NoReply::TimedOut) => {}
        }
    }
}
