//! The server on which spare copies of the driver stand: the one that stands by for their domain. A domain without one is
//! given one as long as any of its programs wants a place, and a while longer.

use super::domain::Domain;
use super::server::{Role, Server, ServerState};
use super::{Clientele, Servers};
use crate::core::Sharing;
use crate::core::effect::Turn;
use crate::core::ids::{DomainId, ServerEpoch};
use core::time::Duration;
use std::collections::BTreeSet;

/// How long a server that stands by for spare copies alone is kept when the last of them has gone: a program that ends
/// is often started again.
pub(in crate::core) const LINGER: Duration = Duration::from_secs(60);

/// Whether programs of a domain have spare copies, or want to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::core) enum SpareUse {
    /// None has.
    #[default]
    None,
    /// Some have.
    Some,
    /// Some had until then.
    Until(Duration),
}

impl Domain {
    /// Whether it is to have a server that stands by.
    pub(in crate::core) fn wants_standby(&self) -> bool {
        self.policy.group.standby || self.policy.group.spares && self.spares != SpareUse::None
    }
}

impl Servers {
    /// Whether a domain can have a server for spare copies: it has one, or may start one.
    pub(in crate::core) fn can_host_spares(&self, turn: &Turn, one_fits: bool, id: DomainId) -> bool {
        let group = self.domains.get(id).map(|domain| &domain.policy.group);
        turn.quit.is_none()
            && turn.policy.sharing != Sharing::Single
            && !one_fits
            && group.is_some_and(|group| group.spares)
            && (self.standby_of(id).is_some() || self.has_room(&turn.policy, id, Role::Standby))
    }

    /// The server that stands by for a domain, ready or not.
    fn standby_of(&self, id: DomainId) -> Option<&Server> {
        self.iter().find(|server| server.domain == id && server.role == Role::Standby && server.is_up())
    }

    /// The server on which a spare copy of a client of `own` may stand now: the one that stands by, or for a program that
    /// has gone on with that before anybody knew of a fault, or where there was none, the domain's active one.
    pub(in crate::core) fn host_for_spare(&self, id: DomainId, own: ServerEpoch) -> Option<ServerEpoch> {
        let standby = self.standby_of(id)?;
        let host = if standby.epoch == own { self.active(id)? } else { standby };
        (host.hosts_spares() && !host.is_suspected()).then_some(host.epoch)
    }

    /// Notes which domains have programs with spare copies, and lets go of servers that have stood by for such long
    /// enough.
    pub(in crate::core) fn note_spares(&mut self, turn: &mut Turn, of: &BTreeSet<DomainId>) {
        let mut surplus = Vec::new();
        for server in self.all.values().filter(|server| server.role == Role::Standby && server.hosts_spares()) {
            surplus.push((server.domain, server.epoch));
        }
        for (id, domain) in self.domains.iter_mut() {
            let has_one = surplus.iter().any(|(domain, _)| *domain == id);
            domain.spares = match domain.spares {
                _ if of.contains(&id) => SpareUse::Some,
                SpareUse::Some => SpareUse::Until(turn.now + LINGER),
                // One of an earlier daemon.
                SpareUse::None if has_one && !domain.policy.group.standby => SpareUse::Until(turn.now + LINGER),
                SpareUse::Until(at) if at <= turn.now => SpareUse::None,
                before @ (SpareUse::None | SpareUse::Until(_)) => before,
            };
        }
        let is_needless = |id: DomainId| self.domains.get(id).is_some_and(|domain| !domain.wants_standby());
        surplus.retain(|(id, _)| turn.quit.is_none() && is_needless(*id));
        for (_, epoch) in surplus {
            let pid = self.get(epoch).and_then(|server| server.pid).unwrap_or_default();
            turn.log(format!("Server {pid} has stood by for no spare copy for a while and is shut down"));
            self.drain(turn, epoch, None, true);
        }
    }

    /// Somebody has set limits of this server alone.
    pub(in crate::core) fn has_own_limits(&mut self, epoch: ServerEpoch) {
        if let Some(server) = self.all.get_mut(&epoch) {
            server.has_own_limits = true;
        }
    }

    /// When the first of them is let go.
    pub(in crate::core) fn standby_deadline(&self) -> Option<Duration> {
        let until = |domain: &Domain| match domain.spares {
            SpareUse::Until(at) => Some(at),
            SpareUse::None | SpareUse::Some => None,
        };
        self.domains.iter().filter_map(|(_, domain)| until(domain)).min()
    }

    /// Whether a server is asked to end and has no clients: nobody is to wait for spare copies there.
    pub(in crate::core) fn waits_for_nobody(&self, clients: &impl Clientele, epoch: ServerEpoch) -> bool {
        self.get(epoch).is_some_and(|server| {
            matches!(server.state, ServerState::Draining(_))
                && !clients.are_on(epoch)
                && (server.role == Role::Standby || !server.has_hidden_clients)
        })
    }
}

impl Server {
    /// Whether a spare copy that is on it can be gone on with.
    pub(in crate::core) fn hosts_spares(&self) -> bool {
        // One that is only asked because it is idle goes on when it has anybody; the one that stands by goes.
        let goes_on = match &self.state {
            ServerState::Serving => true,
            ServerState::Draining(drain) => drain.because_idle && self.role == Role::Active,
            ServerState::Starting { .. } | ServerState::Ending { .. } => false,
        };
        goes_on && self.tainted().is_none() && self.is_connected()
    }
}
