//! Who has a part of what its domain may have, where the domain's clients share that (`shared_by`).
//!
//! A process has its part from when its server is told of it until it ends or its server has, also on a server that a
//! fault has cost, where its memory is until then; so it comes back after a fault with what it had. Who finds no part
//! left waits a little, since a program that is started again comes before the end of the one before it is heard, and is
//! refused then: to wait without end would look like a program that hangs.

use crate::core::Core;
use crate::core::clients::client::Client;
use crate::core::events::RefusalReason;
use crate::core::ids::{ConnectionId, DomainId, Pid};
use core::time::Duration;
use std::collections::BTreeSet;

/// How long somebody waits for a part before he is refused.
const PATIENCE: Duration = Duration::from_secs(2);

impl Core {
    /// Whether nobody could say when a client gives its part back, since it has no pid here.
    pub(super) fn cant_be_counted(&self, domain: DomainId, pid: Pid) -> bool {
        pid == 0 && self.parts_of(domain).is_some()
    }

    /// Whether a client that waits has a part, or needs none.
    pub(super) fn has_part(&self, client: &Client) -> bool {
        let lacks = |parts| {
            let those = self.with_a_part(client.domain);
            those.len() >= parts && !those.contains(&client.peer.pid)
        };
        client.spare.is_some() || !self.parts_of(client.domain).is_some_and(lacks)
    }

    /// Refuses those who have waited for a part for too long.
    pub(super) fn advance_shares(&mut self) {
        let now = self.turn.now;
        for (connection, _) in self.without_a_part().into_iter().filter(|(_, at)| *at <= now) {
            let Some(client) = self.clients.get(connection).cloned() else { continue };
            let parts = self.parts_of(client.domain).unwrap_or_default();
            let words = format!("limits are shared by {parts} clients (shared_by), and as many are there");
            self.clients.dequeue(client.domain, connection);
            self.clients.forget_connection(connection);
            let reason = RefusalReason::Shares;
            self.clients.refuse(&mut self.turn, connection, client.peer, &client.identity, reason, &words);
        }
    }

    /// When [`advance_shares`](Self::advance_shares) has something to do without anything having happened.
    pub(super) fn shares_deadline(&self) -> Option<Duration> {
        self.without_a_part().into_iter().map(|(_, at)| at).min()
    }

    /// Those who wait for a part, and until when.
    fn without_a_part(&self) -> Vec<(ConnectionId, Duration)> {
        let mut found = Vec::new();
        for (domain, known) in self.servers.domains() {
            let Some(parts) = known.policy.group.shared_by.filter(|_| self.clients.queue(domain).len() > 0) else {
                continue;
            };
            let those = self.with_a_part(domain);
            if those.len() < parts {
                continue;
            }
            let waiting = self.clients.queue(domain).filter_map(|it| Some((it, self.clients.get(it)?)));
            let lacks = waiting.filter(|(_, it)| it.spare.is_none() && !those.contains(&it.peer.pid));
            found.extend(lacks.map(|(connection, client)| (connection, client.came_at.saturating_add(PATIENCE))));
        }
        found
    }

    fn parts_of(&self, domain: DomainId) -> Option<usize> {
        self.servers.domain(domain)?.policy.group.shared_by
    }

    /// The processes of a domain that have a server, in whatever state.
    fn with_a_part(&self, domain: DomainId) -> BTreeSet<Pid> {
        let is_there = |epoch| self.servers.get(epoch).is_some_and(|server| server.domain == domain);
        self.clients.processes().filter(|(_, process)| is_there(process.server)).map(|(pid, _)| pid).collect()
    }
}
