//! A core's end and its beginning: what it leaves to a successor ([`saved`](super::saved)), and how one goes on with that.

use super::faults::Faults;
use super::ids::ServerEpoch;
use super::saved::{Saved, SavedDefaults, SavedGroup, SavedServer, written};
use super::servers::questions::Purpose;
use super::servers::server::{Role, ServerState};
use super::{Core, Effect, Policy};
use core::time::Duration;
use remps_proto::mps::server::Request;

impl Core {
    /// What a successor must know.
    pub(crate) fn saved(&self) -> Saved {
        let servers = self
            .servers
            .iter()
            .map(|server| SavedServer {
                epoch: server.epoch.0,
                pid: server.pid.unwrap_or_default(),
                domain: self.servers.domain_user(&self.turn.policy, server.domain),
                uid: server.uid,
                ready: server.ready_at.is_some(),
                // A quit dies with the daemon that was told to; who starts a successor wants servers to serve.
                // And one that was only to go because it was idle may as well stay.
                draining: matches!(&server.state, ServerState::Draining(drain) if !drain.because_idle)
                    && (self.turn.quit.is_none() || server.tainted().is_some()),
                ending: matches!(server.state, ServerState::Ending { .. }),
                gid: self.servers.domain(server.domain).map_or(server.uid, |domain| domain.gid),
                group: self.servers.domain(server.domain).and_then(SavedGroup::of),
                standby: server.role == Role::Standby,
                tainted: server.tainted().is_some(),
                incident: server.tainted().map_or(0, |taint| taint.incident),
                gpus: self.faults.spoilt_gpus(server.epoch).map(ToString::to_string).collect(),
                spared: self.clients.spared_of(server.epoch).map(written).collect(),
                unjudged: self.faults.is_unjudged(server.epoch),
                threads: server.threads,
                limited: server.has_own_limits,
                tells_apart: !server.has_unknown_clients,
            })
            .collect();
        let SavedDefaults { thread_percentage, priority, limits } = SavedDefaults::of(&self.defaults);
        Saved {
            thread_percentage,
            priority,
            limits,
            next_epoch: self.servers.next_epoch(),
            servers,
            next_quarantine: self.clients.offenders().next_quarantine(),
            spares: self.clients.saved_spares(),
            named: self.servers.named().saved(),
            last_entrance: self.servers.named().last(),
            is_file_applied: self.servers.named().is_file_applied,
            defaults_said: Some(self.kept_defaults().said().saved()),
            ..self.faults.saved()
        }
    }

    /// A core that goes on where another stopped, with those of its servers that are alive and connected, and what is
    /// to be done first.
    ///
    /// Each server is asked for its clients, since a process must stay with its server; until it has answered, no
    /// client is sent to it.
    #[must_use]
    pub(crate) fn restored(now: Duration, policy: Policy, saved: &Saved, alive: &[SavedServer]) -> (Self, Vec<Effect>) {
        let mut core = Self::new(policy, saved.defaults());
        core.turn.now = now;
        core.servers.begin_at(saved.next_epoch);
        core.servers.restore_named(saved);
        core.clients.offenders_mut().restore(saved, alive);
        core.clients.restore_spares(now, &saved.spares);
        core.faults = Faults::restored(saved, alive);
        for old in alive {
            let epoch = ServerEpoch(old.epoch);
            let domain = core.servers.restore(now, &core.turn.policy, old);
            core.restore_quarantine(domain, old.group.as_ref().map_or(0, |group| group.quarantine));
            if old.unjudged && old.incident != 0 {
                core.restore_incident(epoch, old.incident);
            }
            core.turn.log(format!("Server {} is taken over from an earlier daemon", old.pid));
            core.servers.ask(&mut core.turn, epoch, Request::Clients, Purpose::Census);
        }
        let effects = core.turn.take();
        (core, effects)
    }
}
