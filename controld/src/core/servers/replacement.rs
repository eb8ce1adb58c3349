//! What takes the place of a server that is spoilt: one that stands by, or a new one.

use super::Servers;
use super::domain::Swap;
use super::server::{Role, Server, ServerState};
use crate::core::effect::Turn;
use crate::core::ids::{DomainId, ServerEpoch};
use crate::core::journal::{JournalEvent, StartReason};
use crate::core::{Core, Sharing};

impl Servers {
    /// A domain has a sound server: if a fault had cost it the last one, that is over.
    pub(in crate::core) fn swapped(&mut self, turn: &mut Turn, epoch: ServerEpoch, standby: bool) {
        let now = turn.now;
        let Some(server) = self.all.get(&epoch) else {
            return;
        };
        let (uid, to, id) = (server.uid, server.pid.unwrap_or_default(), server.domain);
        let Some(domain) = self.domains.get_mut(id) else {
            return;
        };
        domain.requested = false;
        let name = domain.name();
        if let Some(Swap { incident, from, since }) = domain.swap.take() {
            let after = now.saturating_sub(since);
            turn.log(format!("Server {to} serves {name} in place of {from}, after {} ms", after.as_millis()));
            turn.record(JournalEvent::ServerSwapped { incident, uid, domain: name, from, to, standby, after });
        }
    }
}

impl Core {
    /// Lets a server that stands by serve its domain, if the domain has no active one.
    pub(in crate::core) fn promote(&mut self, domain: DomainId) {
        if self.server_for_newcomers(domain).is_some() {
            return;
        }
        let standby = self
            .servers
            .all
            .values_mut()
            .find(|server| server.domain == domain && server.role == Role::Standby && server.is_up());
        let Some(server) = standby else {
            return;
        };
        server.role = Role::Active;
        server.idle_since = server.ready_at.map(|_| self.turn.now);
        let (epoch, is_ready) = (server.epoch, server.ready_at.is_some());
        if is_ready {
            self.servers.swapped(&mut self.turn, epoch, true);
        }
        self.turn.save();
    }

    /// Which start of a server this is.
    pub(super) fn start_reason(&self, id: DomainId) -> StartReason {
        match self.servers.domains.get(id) {
            Some(domain) if domain.swap.is_some() => StartReason::Fault,
            Some(domain) if domain.starts.tries() > 0 => StartReason::Retry,
            Some(domain) if domain.requested && !self.clients.are_waiting(id) => StartReason::Command,
            Some(_) | None => StartReason::Client,
        }
    }

    /// When a domain's replacement can't start beside the tainted server (compute mode `EXCLUSIVE_PROCESS`), the
    /// tainted one goes first: its clients are lost already.
    pub(super) fn make_room_for_replacement(&mut self, domain: DomainId) {
        let tainted: Vec<ServerEpoch> = self
            .servers
            .all
            .values()
            .filter(|server| server.domain == domain && server.is_lost() && !self.clients.has_spared(server.epoch))
            .filter(|server| !matches!(server.state, ServerState::Ending { .. }))
            .map(|server| server.epoch)
            .collect();
        for epoch in tainted {
            self.turn.log("The replacement can't start beside the server that a fault has tainted, which is ended now");
            self.servers.force(&mut self.turn, epoch);
        }
    }

    /// Where a domain wants a server that stands by, and none is under way, one is started.
    pub(in crate::core) fn wants_standby(&self, domain: DomainId) -> bool {
        let wanted = self.servers.domains.get(domain).is_some_and(|domain| domain.policy.group.standby);
        let mut own = self.servers.all.values().filter(|server: &&Server| server.domain == domain && server.is_up());
        wanted
            && self.turn.quit.is_none()
            && !self.gpus.fits_one_server()
            && self.turn.policy.sharing != Sharing::Single
            && own.clone().any(|server| server.role == Role::Active && server.ready_at.is_some())
            && own.all(|server| server.role == Role::Active && !server.is_starting())
    }
}
