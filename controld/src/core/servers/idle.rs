//! Which servers go because they have no clients: those that hold GPU memory for nobody, and those in the way of others.

use super::domain::Domain;
use super::server::{Role, Server, ServerState};
use super::{Clientele, Servers};
use crate::core::effect::Turn;
use crate::core::ids::ServerEpoch;
use core::time::Duration;

impl Servers {
    /// Whether a domain other than this one could not start a server and still needs one: on a GPU in compute mode
    /// `EXCLUSIVE_PROCESS` that is so as long as any other server lives. Or it is one too many of its user's.
    fn is_in_the_way(&self, clients: &impl Clientele, server: &Server) -> bool {
        let founder = self.domains.get(server.domain).and_then(|domain| domain.founder);
        let is_too_many =
            |domain: &Domain| domain.is_held_up && domain.founder == founder && server.role == Role::Active;
        let is_kept_out = |domain: &Domain| domain.starts.tries() > 0 || is_too_many(domain);
        self.domains
            .iter()
            .any(|(id, domain)| id != server.domain && is_kept_out(domain) && clients.wants_server(self, id))
    }

    /// Servers that are only kept for the next client of their user, with the time at which they have been long enough.
    ///
    /// When all are idle, the one that was used last stays, unless it is in the way of one that can't start.
    fn idle_servers(&self, turn: &Turn, clients: &impl Clientele) -> Vec<(ServerEpoch, Duration)> {
        if turn.quit.is_some() {
            return Vec::new();
        }
        let serving = self.all.values().filter(|server| matches!(server.state, ServerState::Serving));
        let in_the_way: Vec<(ServerEpoch, Duration)> = serving
            .filter(|server| self.is_in_the_way(clients, server))
            .filter_map(|server| Some((server.epoch, server.idle_since?)))
            .collect();
        if !in_the_way.is_empty() {
            return in_the_way;
        }
        let Some(timeout) = turn.policy.idle_timeout else {
            return Vec::new();
        };
        let active = self.all.values().filter(|server| server.is_active());
        let idle = |server: &Server| server.idle_since.filter(|_| matches!(server.state, ServerState::Serving));
        let mut due: Vec<(ServerEpoch, Duration)> =
            active.clone().filter_map(|server| Some((server.epoch, idle(server)? + timeout))).collect();
        if due.len() == active.count() {
            due.sort_by_key(|(epoch, at)| (*at, *epoch));
            due.pop();
        }
        due
    }

    pub(in crate::core) fn idle_deadline(&self, turn: &Turn, clients: &impl Clientele) -> Option<Duration> {
        self.idle_servers(turn, clients).into_iter().map(|(_, at)| at).min()
    }

    /// With several servers up, those that have been idle for long go: each holds some 66 MiB of GPU memory.
    pub(in crate::core) fn advance_idle(&mut self, turn: &mut Turn, clients: &impl Clientele) {
        let now = turn.now;
        for (epoch, _) in self.idle_servers(turn, clients).into_iter().filter(|(_, at)| *at <= now) {
            if let Some(server) = self.all.get(&epoch) {
                let (pid, name) = (server.pid.unwrap_or_default(), self.domain_name(server.domain));
                let why = if self.is_in_the_way(clients, server) {
                    "another one can't start beside it"
                } else {
                    "it has been idle"
                };
                turn.log(format!("Server {pid} of {name} has no clients and is shut down: {why}"));
            }
            self.drain(turn, epoch, None, true);
        }
    }
}
