//! Which servers go because they have no clients: those that hold GPU memory for nobody, and those in the way of others.
//!
//! It is asked after every event when the next one is due, so it looks at each domain and each server once.

use super::server::{Role, Server, ServerState};
use super::{Clientele, Servers};
use crate::core::effect::Turn;
use crate::core::ids::{DomainId, ServerEpoch, Uid};
use core::time::Duration;
use std::collections::BTreeMap;

/// Domains, as far as it must be known whether there is one beside a given one.
#[derive(Debug, Default)]
struct Several {
    first: Option<DomainId>,
    has_more: bool,
}

impl Several {
    fn add(&mut self, id: DomainId) {
        self.has_more |= self.first.is_some();
        self.first.get_or_insert(id);
    }

    fn has_another_than(&self, id: DomainId) -> bool {
        self.has_more || self.first.is_some_and(|first| first != id)
    }
}

/// The domains that need a server and could not start one.
#[derive(Debug, Default)]
struct KeptOut {
    /// On a GPU in compute mode `EXCLUSIVE_PROCESS` none starts as long as any other server lives.
    tried: Several,
    /// Theirs would be one too many of the user for whom they were made.
    too_many: BTreeMap<Option<Uid>, Several>,
}

/// Servers without clients, each with the time at which it has been long enough.
#[derive(Debug, Default)]
struct Idle {
    servers: Vec<(ServerEpoch, Duration)>,
    are_in_the_way: bool,
}

impl Servers {
    fn kept_out(&self, clients: &impl Clientele) -> KeptOut {
        let mut all = KeptOut::default();
        for (id, domain) in self.domains.iter() {
            let has_tried = domain.starts.tries() > 0;
            if (has_tried || domain.is_held_up) && clients.wants_server(self, id) {
                if has_tried {
                    all.tried.add(id);
                }
                if domain.is_held_up {
                    all.too_many.entry(domain.founder).or_default().add(id);
                }
            }
        }
        all
    }

    /// Whether a domain other than this one's could not start a server and still needs one.
    fn is_in_the_way(&self, kept_out: &KeptOut, server: &Server) -> bool {
        let founder = self.domains.get(server.domain).and_then(|domain| domain.founder);
        let of_its_user = kept_out.too_many.get(&founder).filter(|_| server.role == Role::Active);
        kept_out.tried.has_another_than(server.domain)
            || of_its_user.is_some_and(|others| others.has_another_than(server.domain))
    }

    /// Servers that are only kept for the next client of their user.
    ///
    /// When all are idle, the one that was used last stays, unless it is in the way of one that can't start.
    fn idle_servers(&self, turn: &Turn, clients: &impl Clientele) -> Idle {
        if turn.quit.is_some() {
            return Idle::default();
        }
        let kept_out = self.kept_out(clients);
        let serving = self.all.values().filter(|server| matches!(server.state, ServerState::Serving));
        let in_the_way: Vec<(ServerEpoch, Duration)> = serving
            .filter(|server| self.is_in_the_way(&kept_out, server))
            .filter_map(|server| Some((server.epoch, server.idle_since?)))
            .collect();
        if !in_the_way.is_empty() {
            return Idle { servers: in_the_way, are_in_the_way: true };
        }
        let Some(timeout) = turn.policy.idle_timeout else {
            return Idle::default();
        };
        let active = self.all.values().filter(|server| server.is_active());
        let idle = |server: &Server| server.idle_since.filter(|_| matches!(server.state, ServerState::Serving));
        let mut due: Vec<(ServerEpoch, Duration)> =
            active.clone().filter_map(|server| Some((server.epoch, idle(server)? + timeout))).collect();
        if due.len() == active.count() {
            due.sort_by_key(|(epoch, at)| (*at, *epoch));
            due.pop();
        }
        Idle { servers: due, are_in_the_way: false }
    }

    pub(in crate::core) fn idle_deadline(&self, turn: &Turn, clients: &impl Clientele) -> Option<Duration> {
        self.idle_servers(turn, clients).servers.into_iter().map(|(_, at)| at).min()
    }

    /// With several servers up, those that have been idle for long go: each holds some 66 MiB of GPU memory.
    pub(in crate::core) fn advance_idle(&mut self, turn: &mut Turn, clients: &impl Clientele) {
        let now = turn.now;
        let Idle { servers, are_in_the_way } = self.idle_servers(turn, clients);
        let why = if are_in_the_way { "another one can't start beside it" } else { "it has been idle" };
        for (epoch, _) in servers.into_iter().filter(|(_, at)| *at <= now) {
            if let Some(server) = self.all.get(&epoch) {
                let (pid, name) = (server.pid.unwrap_or_default(), self.domain_name(server.domain));
                turn.log(format!("Server {pid} of {name} has no clients and is shut down: {why}"));
            }
            self.drain(turn, epoch, None, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Policy;
    use crate::core::servers::domain::{DomainKey, Group};
    use core::cell::Cell;

    const MANY: u32 = 100;

    /// Nobody, who is asked.
    struct Nobody {
        asked: Cell<u32>,
        wants: Option<DomainId>,
    }

    impl Clientele for Nobody {
        fn waiting(&self, _: DomainId) -> usize {
            0
        }

        fn wants_server(&self, _: &Servers, domain: DomainId) -> bool {
            self.asked.set(self.asked.get() + 1);
            self.wants == Some(domain)
        }

        fn are_on(&self, _: ServerEpoch) -> bool {
            false
        }

        fn has_spared(&self, _: ServerEpoch) -> bool {
            false
        }

        fn are_in_handshakes(&self, _: ServerEpoch) -> bool {
            false
        }
    }

    /// As many domains, each with an idle server, whose last start has failed.
    fn scene(policy: &Policy) -> (Servers, Vec<DomainId>) {
        let mut servers = Servers::default();
        let mut domains = Vec::new();
        for uid in 1..=MANY {
            let key = DomainKey { uid, group: Group::All, gpu: None, part: 0, entrance: None };
            let own = policy.for_domain(uid, None, "").clone();
            let id = servers.intern(policy, key, own, uid, Some(uid));
            let _ = servers.domains.get_mut(id).map(|domain| domain.starts.next_delay());
            let epoch = ServerEpoch(u64::from(uid));
            let server = Server::new(epoch, id, uid, Duration::ZERO, ServerState::Serving);
            servers.all.insert(epoch, Server { idle_since: Some(Duration::from_secs(1)), ..server });
            domains.push(id);
        }
        (servers, domains)
    }

    #[test]
    fn each_domain_is_asked_once_for_its_clients_however_many_servers_there_are() {
        let policy = Policy::default();
        let (servers, domains) = scene(&policy);
        let turn = Turn::new(policy);
        let nobody = Nobody { asked: Cell::new(0), wants: None };
        assert!(!servers.idle_servers(&turn, &nobody).are_in_the_way);
        assert_eq!(nobody.asked.get(), MANY);
        // Who waits has all others in his way, and not his own.
        let one = Nobody { asked: Cell::new(0), wants: Some(domains[7]) };
        let idle = servers.idle_servers(&turn, &one);
        assert_eq!((idle.are_in_the_way, idle.servers.len()), (true, domains.len() - 1));
        assert!(idle.servers.iter().all(|(epoch, _)| *epoch != ServerEpoch(8)));
        assert_eq!(one.asked.get(), MANY);
    }
}
