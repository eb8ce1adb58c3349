//! When a newcomer may join others: when the server is known to be sound, which nobody waits for without a sign of trouble.
//!
//! A fault is known late. Between the launch of a faulting kernel and the moment at which NVIDIA's server says `FAULT`
//! there are some 10 ms for a `trap`, without any sign, and who does the handshake meanwhile is refused with 807 or gets
//! a context that is lost; the server's log tells of it half a second later still (measured on an H200 with 580). So the
//! server's own word is asked for. Whom it concerns is a process that comes to a server with other clients: with its own
//! connection, and with its first context, which may still go to another server (9 of 9 on an H200).
//!
//! - Without a sign of trouble its way is as if nobody asked. A word that is no older than `settle_time` when it comes
//!   will do; else the question goes out right before the server is told of it. The server does one thing after the
//!   other, so it has answered when it greets the newcomer, which only then gets its end of the connection.
//! - With one (a client that has just ended badly, the work of a dead one that may still run, a sign of a fault that
//!   came within `settle_time`, a fault on another GPU) the question comes first: the server is told of the process only
//!   when it has said, `settle_time` or more after the process came, that it is in no fault, and of its first context
//!   when it has said so after that came. The time runs while it waits for anything else. A client that has just ended
//!   badly counts as one that is there: who is started again after a fault must not come back to the server that had it;
//! - further contexts don't wait: they can't go elsewhere. Neither does the only client of a server.
//!
//! A client's own word that its handshake went well is no server's word: whoever has made a fault could give it again
//! and again, and keep the fault from being known.
//!
//! What happens to a client after it has its end of the connection can't be undone.

use crate::core::Core;
use crate::core::clients::client::{BEFORE_CONTEXTS, Client};
use crate::core::evidence::End;
use crate::core::ids::{ConnectionId, ServerEpoch};
use crate::core::servers::server::Server;
use core::time::Duration;

/// What must be known of a server before a client joins others there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word {
    /// From when on the server must be known to be sound.
    since: Duration,
    /// Whether it is needed before the server is told of the client, and not just before the client has its end.
    first: bool,
}

impl Core {
    /// Whether anything says that a client of this server may have faulted shortly before this one came, or since.
    fn is_in_doubt(&self, client: &Client, server: &Server, settle: Duration) -> bool {
        let is_recent = |at: Duration| at + settle > client.came_at;
        server.tainted().is_some()
            || server.ill_at.is_some_and(is_recent)
            || self.faults.has_funerals(server.epoch)
            || self.ended_badly(server.epoch).any(is_recent)
    }

    /// When clients of a server ended otherwise than well.
    fn ended_badly(&self, server: ServerEpoch) -> impl Iterator<Item = Duration> {
        let own = self.faults.deaths().filter(move |death| death.process.server == server);
        own.filter(|death| death.end != End::Exited(0)).map(|death| death.at)
    }

    /// What this client must know of the server; `None` when that is nothing.
    fn word_needed(&self, client: &Client, server: &Server) -> Option<Word> {
        let settle = self.turn.policy.constants.settle_time;
        let own = self.clients.process(client.peer.pid).filter(|process| process.server == server.epoch);
        let connections = own.map_or(0, |process| process.connections);
        if settle.is_zero() || connections > BEFORE_CONTEXTS {
            return None;
        }
        let others =
            self.clients.processes().any(|(pid, process)| pid != client.peer.pid && process.server == server.epoch);
        let is_recent = |at: Duration| at + settle > client.came_at;
        if !others && !self.faults.has_funerals(server.epoch) && !self.ended_badly(server.epoch).any(is_recent) {
            return None;
        }
        if !self.is_in_doubt(client, server, settle) {
            return Some(Word { since: client.came_at.saturating_sub(settle), first: false });
        }
        let wait = if connections == BEFORE_CONTEXTS { Duration::ZERO } else { settle };
        Some(Word { since: client.came_at + wait, first: true })
    }

    /// Whether the server may be told of this client now, as far as the server's state is known.
    pub(super) fn is_settled(&self, client: &Client, server: &Server) -> bool {
        let word = self.word_needed(client, server).filter(|word| word.first);
        word.is_none_or(|word| server.is_known_sound_since(word.since))
    }

    /// A server is about to be told of a client, and is asked how it is before that where the client needs to know. Gives
    /// the time of the question whose answer the client needs before it has its end.
    pub(super) fn ask_on_the_way(&mut self, connection: ConnectionId, epoch: ServerEpoch) -> Option<Duration> {
        let (client, server) = (self.clients.get(connection)?, self.servers.get(epoch)?);
        let word = self.word_needed(client, server)?;
        if server.is_known_sound_since(word.since) {
            return None;
        }
        // What was asked before comes before.
        if let Some(at) = server.health_asked.filter(|at| *at >= word.since) {
            return Some(at);
        }
        let now = self.turn.now;
        self.servers.ask_for_health(&mut self.turn, epoch);
        Some(now)
    }

    /// The servers that waiting clients would go to, each with the time at which it should be asked how it is.
    fn questions_of_health(&self) -> impl Iterator<Item = (ServerEpoch, Duration)> {
        // A crowd waits while no server can take any of it, and this is looked at after every event.
        let is_any = self
            .servers
            .iter()
            .any(|server| self.clients.is_open(&self.turn.policy, server) && server.health_asked.is_none());
        let waiting = self.servers.domains().filter(move |_| is_any).flat_map(|(id, _)| self.clients.queue(id));
        waiting.filter_map(|connection: ConnectionId| {
            let client = self.clients.get(connection)?;
            let is_free =
                |server: &&Server| self.clients.is_open(&self.turn.policy, server) && server.health_asked.is_none();
            let server = self.server_for(client).filter(is_free)?;
            let word = self.word_needed(client, server).filter(|word| word.first)?;
            (!server.is_known_sound_since(word.since)).then_some((server.epoch, word.since))
        })
    }

    /// When newcomers have waited for long enough, for a server's word or for a part.
    pub(in crate::core) fn settle_deadline(&self) -> Option<Duration> {
        self.questions_of_health().map(|(_, at)| at).chain(self.shares_deadline()).min()
    }

    /// Asks the servers on whose word newcomers wait, and refuses those who wait for a part in vain.
    pub(in crate::core) fn advance_settling(&mut self) {
        self.advance_shares();
        let due: Vec<ServerEpoch> =
            self.questions_of_health().filter(|(_, at)| *at <= self.turn.now).map(|(server, _)| server).collect();
        for epoch in due {
            if self.servers.get(epoch).is_some_and(|server| server.health_asked.is_none()) {
                self.servers.ask_for_health(&mut self.turn, epoch);
            }
        }
    }
}
