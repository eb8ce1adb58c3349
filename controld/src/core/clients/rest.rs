//! Whether what somebody gave to the GPU is at rest: nothing of it can write to GPU memory any more.
//!
//! The one proof is that of a succession ([`Rest::SERVER`](remps_proto::shim::Rest)): the process has ended, and the
//! server that it was on is reaped, so that no channel of either is left. A client that is gone from its server's list
//! proves nothing, because a kernel that it had launched may still run there, and nothing tells when that ends
//! (`core/faults/funeral.rs`). Nothing here is a time that has passed.
//!
//! What isn't remembered can't be proven: a server that somebody was on whom nobody could name, that an earlier daemon
//! had, or whose former clients made room for others is waited for by all who may have been there.

use super::fate::Home;
use crate::core::Core;
use crate::core::evidence::ProcessKey;
use crate::core::ids::{Pid, ServerEpoch, Uid};
use crate::core::policy::Sharing;
use crate::core::servers::server::Server;
use remps_proto::admin::Whose;
use serde::Serialize;
use std::collections::BTreeSet;

/// What is known of the rest of somebody's work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct RestFacts {
    /// What must end first; nothing when the work is at rest.
    pub awaited: Vec<Awaited>,
    /// The processes that have ended.
    pub processes: BTreeSet<Pid>,
    /// The servers that are reaped, or 0 for one whose pid was never known.
    pub servers: BTreeSet<Pid>,
}

/// What must end before somebody's work is at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub(crate) enum Awaited {
    /// A process that may give the GPU more.
    Process {
        /// Its pid.
        pid: Pid,
    },
    /// A server that a kernel may still run on.
    Server {
        /// Its pid; `None` while it has none.
        pid: Option<Pid>,
        /// Whether it is waited for because not all of its former clients are known.
        unremembered: bool,
    },
}

impl RestFacts {
    /// Whether there is proof.
    pub(crate) fn is_proven(&self) -> bool {
        self.awaited.is_empty()
    }

    fn awaits(&mut self, what: Awaited) {
        if !self.awaited.contains(&what) {
            self.awaited.push(what);
        }
    }
}

impl Core {
    /// What is known of somebody's rest, where `may_see` says of whose work it may be told and `lives` whether a process
    /// that is no client now has not ended. `None` when there is nobody whom anything may be told of.
    pub(crate) fn rest_of(
        &self,
        whose: Whose,
        may_see: impl Fn(Uid) -> bool,
        lives: impl Fn(ProcessKey) -> bool,
    ) -> Option<RestFacts> {
        let mut facts = RestFacts::default();
        match whose {
            Whose::Server(pid) => self.rest_of_server(&mut facts, pid, may_see)?,
            Whose::Process(pid) => {
                let users = self.rest_of_clients(&mut facts, |key, uid| key == pid && may_see(uid), lives);
                if users.is_empty() {
                    return None;
                }
                self.await_unremembered(&mut facts, |server| {
                    self.may_have_served(server, &users) && self.is_forgotten(server)
                });
            }
            Whose::User(uid) => {
                if !may_see(uid) {
                    return None;
                }
                self.rest_of_clients(&mut facts, |_, of| of == uid, lives);
                let users = BTreeSet::from([uid]);
                let is_doubtful = |server: &Server| server.has_hidden_clients || self.is_forgotten(server);
                self.await_unremembered(&mut facts, |server| {
                    self.may_have_served(server, &users) && is_doubtful(server)
                });
            }
        }
        facts.awaited.sort_unstable();
        Some(facts)
    }

    /// Adds what is known of the clients that are meant; the users whose they are.
    fn rest_of_clients(
        &self,
        facts: &mut RestFacts,
        is_meant: impl Fn(Pid, Uid) -> bool,
        lives: impl Fn(ProcessKey) -> bool,
    ) -> BTreeSet<Uid> {
        let mut users = BTreeSet::new();
        let waiting = self.clients.iter().map(|client| (client.peer.pid, client.peer.uid));
        let known = self.clients.processes().map(|(pid, process)| (pid, process.uid));
        for (pid, uid) in known.chain(waiting).filter(|(pid, uid)| is_meant(*pid, *uid)) {
            users.insert(uid);
            facts.awaits(Awaited::Process { pid });
        }
        for Home { key, uid, server } in
            self.clients.former_homes.iter().filter(|home| is_meant(home.key.pid, home.uid))
        {
            users.insert(*uid);
            if lives(*key) {
                facts.awaits(Awaited::Process { pid: key.pid });
            } else {
                facts.processes.insert(key.pid);
            }
            match self.servers.get(*server) {
                Some(server) => facts.awaits(Awaited::Server { pid: server.pid, unremembered: false }),
                None => facts.servers.extend([self.servers.pid_of_reaped(*server).unwrap_or_default()]),
            }
        }
        users
    }

    fn rest_of_server(&self, facts: &mut RestFacts, pid: Pid, may_see: impl Fn(Uid) -> bool) -> Option<()> {
        if let Some(server) = self.servers.iter().find(|server| server.pid == Some(pid) && may_see(server.uid)) {
            facts.awaits(Awaited::Server { pid: server.pid, unremembered: false });
            return Some(());
        }
        let is_known = self.servers.reaped().any(|reaped| reaped.pid == pid && may_see(reaped.uid));
        facts.servers.extend(is_known.then_some(pid));
        is_known.then_some(())
    }

    /// Adds the living servers of which too little is known, unless they are waited for already.
    fn await_unremembered(&self, facts: &mut RestFacts, is_doubtful: impl Fn(&Server) -> bool) {
        for server in self.servers.iter().filter(|server| is_doubtful(server)) {
            if !facts.awaited.contains(&Awaited::Server { pid: server.pid, unremembered: false }) {
                facts.awaits(Awaited::Server { pid: server.pid, unremembered: true });
            }
        }
    }

    fn may_have_served(&self, server: &Server, users: &BTreeSet<Uid>) -> bool {
        self.turn.policy.sharing == Sharing::MultiUser || users.contains(&server.uid)
    }

    /// Whether a former client of this server may have made room for others.
    fn is_forgotten(&self, server: &Server) -> bool {
        self.clients.former_homes.forgotten().is_some_and(|newest: ServerEpoch| server.epoch <= newest)
    }
}
