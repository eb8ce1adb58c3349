//! What takes the place of a server that is spoilt: one that stands by, or a new one.

use super::domain::{Domain, Swap};
use super::server::{Role, Server, ServerState};
use super::standby::SpareUse;
use super::{Clientele, Servers};
use crate::core::effect::Turn;
use crate::core::events::{JournalEvent, StartReason};
use crate::core::ids::{DomainId, ServerEpoch};
use crate::core::{Policy, Sharing};

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

    /// The domain's active server.
    pub(in crate::core) fn active(&self, domain: DomainId) -> Option<&Server> {
        self.iter().find(|server| server.domain == domain && server.is_active())
    }

    /// The server that newcomers of a domain go to: its active one; one that was only idle, whose answer may be that it
    /// goes on; or, where only one server may run, any draining one, as with the vendor.
    pub(in crate::core) fn server_for_newcomers(&self, policy: &Policy, domain: DomainId) -> Option<&Server> {
        self.active(domain).or_else(|| {
            self.iter().find(|server| {
                server.domain == domain
                    && server.role == Role::Active
                    && server.tainted().is_none()
                    && matches!(&server.state, ServerState::Draining(drain)
                        if drain.because_idle || policy.sharing == Sharing::Single)
            })
        })
    }

    /// Lets a server that stands by serve its domain, if the domain has no active one.
    pub(in crate::core) fn promote(&mut self, turn: &mut Turn, domain: DomainId) {
        if self.server_for_newcomers(&turn.policy, domain).is_some() {
            return;
        }
        let standby = self
            .all
            .values_mut()
            .find(|server| server.domain == domain && server.role == Role::Standby && server.is_up());
        let Some(server) = standby else {
            return;
        };
        server.role = Role::Active;
        server.idle_since = server.ready_at.map(|_| turn.now);
        let (epoch, is_ready) = (server.epoch, server.ready_at.is_some());
        if is_ready {
            self.swapped(turn, epoch, true);
        }
        turn.save();
    }

    /// Which start of a server this is.
    pub(super) fn start_reason(&self, clients: &impl Clientele, id: DomainId) -> StartReason {
        match self.domains.get(id) {
            Some(domain) if domain.swap.is_some() => StartReason::Fault,
            Some(domain) if domain.starts.tries() > 0 => StartReason::Retry,
            Some(domain) if domain.requested && clients.waiting(id) == 0 => StartReason::Command,
            Some(_) | None => StartReason::Client,
        }
    }

    /// When a domain's replacement can't start beside the tainted server (compute mode `EXCLUSIVE_PROCESS`), the
    /// tainted one goes first: its clients are lost already.
    pub(super) fn make_room_for_replacement(&mut self, turn: &mut Turn, clients: &impl Clientele, domain: DomainId) {
        let tainted: Vec<ServerEpoch> = self
            .all
            .values()
            .filter(|server| server.domain == domain && server.is_lost() && !clients.has_spared(server.epoch))
            .filter(|server| !matches!(server.state, ServerState::Ending { .. }))
            .map(|server| server.epoch)
            .collect();
        for epoch in tainted {
            turn.log("The replacement can't start beside the server that a fault has tainted, which is ended now");
            self.force(turn, epoch);
        }
    }

    /// Where a domain wants a server that stands by, and none is under way, one is started.
    pub(in crate::core) fn wants_standby(&self, turn: &Turn, one_fits: bool, domain: DomainId) -> bool {
        let wanted = self.domains.get(domain).is_some_and(Domain::wants_standby);
        // First, since most domains want none, and each is asked after every event.
        if !wanted || one_fits || turn.quit.is_some() || turn.policy.sharing == Sharing::Single {
            return false;
        }
        let of_domain = |server: &&Server| server.domain == domain;
        let mut own = self.all.values().filter(|server| of_domain(server) && server.is_up());
        // Its start would hold up those who recover, and no spare copy waits for it.
        let has_no_spares = self.domains.get(domain).is_some_and(|domain| domain.spares == SpareUse::None);
        let is_held =
            has_no_spares && self.all.values().any(|server| of_domain(&server) && server.held_until.is_some());
        !is_held
            && own.clone().any(|server| server.role == Role::Active && server.ready_at.is_some())
            && own.all(|server| server.role == Role::Active && !server.is_starting())
    }
}
