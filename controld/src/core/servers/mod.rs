//! The servers: which there are, what each is asked, and when one starts, drains, is forced and is given up.
//!
//! | part | decides |
//! |---|---|
//! | [`server`] | the states that one server goes through |
//! | [`domain`] | what a domain is, and how its servers start |
//! | [`named`] | which servers and namespaces somebody has named, and whom they let in |
//! | [`allowances`] | what a server's clients may have |
//! | [`quarantine`] | which domains are those of repeat offenders |
//! | [`start`], [`lifecycle`] | when a server starts, drains, is forced, is given up and started again |
//! | `handshakes` | what it notices of clients that come and go |
//! | [`idle`] | which servers go for want of clients |
//! | [`questions`] | what servers are asked, and what an answer is for |
//! | [`health`], [`silence`] | whether one is sound, and what becomes of one that says nothing |
//! | [`reaped`] | which servers were, by their pids |
//! | [`replacement`] | what takes the place of one that is spoilt |
//! | [`standby`] | which one spare copies stand on |

mod allowances;
pub(super) mod backoff;
pub(super) mod domain;
mod handshakes;
pub(super) mod health;
pub(super) mod idle;
pub(super) mod joined;
mod lifecycle;
pub(super) mod named;
pub(super) mod quarantine;
pub(super) mod questions;
mod reaped;
pub(super) mod replacement;
mod restored;
pub(super) mod server;
pub(super) mod silence;
pub(super) mod standby;
pub(super) mod start;

use crate::core::evidence::ProcessKey;
use crate::core::ids::{DomainId, EntranceId, Pid, RequestId, ServerEpoch, Uid};
use crate::core::policy::{DomainPolicy, Policy};
use core::time::Duration;
use domain::{Domain, DomainKey, Domains, Swap};
use health::Health;
use named::Named;
use questions::Question;
use reaped::Reaped;
use server::{Drain, Server, ServerState};
use std::collections::BTreeMap;

/// What servers must know of those whom they serve.
pub(super) trait Clientele {
    /// How many of a domain wait.
    fn waiting(&self, domain: DomainId) -> usize;
    /// Whether one of these waits for a server to be started, and not just for the answer of its own; or somebody else
    /// has asked for one.
    fn wants_server(&self, servers: &Servers, domain: DomainId) -> bool;
    /// Whether a server has any.
    fn are_on(&self, server: ServerEpoch) -> bool;
    /// Whether anybody lives whom the fault of a server has left alone.
    fn has_spared(&self, server: ServerEpoch) -> bool;
    /// Whether a server may be busy with handshakes: those of clients that it was told of after a question which it has
    /// not answered yet have not begun.
    fn are_in_handshakes(&self, server: ServerEpoch) -> bool;
}

/// All servers, and the domains that they serve.
#[derive(Debug)]
pub(super) struct Servers {
    all: BTreeMap<ServerEpoch, Server>,
    reaped: Reaped,
    domains: Domains,
    named: Named,
    questions: BTreeMap<RequestId, Question>,
    /// Those whose end a successor of a client waits for, with a client that is past doing anything.
    awaited_ends: BTreeMap<ServerEpoch, Option<ProcessKey>>,
    next_epoch: u64,
    next_request: u64,
}

impl Default for Servers {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            reaped: Reaped::default(),
            domains: Domains::default(),
            named: Named::default(),
            questions: BTreeMap::new(),
            awaited_ends: BTreeMap::new(),
            next_epoch: 1,
            next_request: 1,
        }
    }
}

impl Servers {
    pub(super) fn get(&self, epoch: ServerEpoch) -> Option<&Server> {
        self.all.get(&epoch)
    }

    /// Oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Server> {
        self.all.values()
    }

    /// Whether a process of this pid is one.
    pub(super) fn is_one(&self, pid: Pid) -> bool {
        self.iter().any(|server| server.pid == Some(pid))
    }

    pub(super) fn are_none(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn domain(&self, id: DomainId) -> Option<&Domain> {
        self.domains.get(id)
    }

    /// Whether the namespace that a server is of is there no more.
    pub(super) fn is_of_removed_namespace(&self, server: &Server) -> bool {
        let entrance = self.domain(server.domain).and_then(|domain| domain.key.entrance.as_ref());
        entrance.is_some_and(|own| self.named().entrances().all(|entrance| entrance.id != own.id))
    }

    pub(super) fn domains(&self) -> impl Iterator<Item = (DomainId, &Domain)> {
        self.domains.iter()
    }

    /// The servers that somebody has named.
    pub(super) fn named(&self) -> &Named {
        &self.named
    }

    pub(super) fn named_mut(&mut self) -> &mut Named {
        &mut self.named
    }

    /// The domain that is found by this.
    pub(super) fn domain_by(&self, key: &DomainKey) -> Option<DomainId> {
        self.domains.find(key)
    }

    /// The domain of this key, made if it is new.
    pub(super) fn intern(
        &mut self,
        policy: &Policy,
        key: DomainKey,
        own: DomainPolicy,
        gid: u32,
        founder: Option<Uid>,
    ) -> DomainId {
        self.domains.intern(policy, key, own, gid, founder)
    }

    /// Says which quarantine a domain is.
    pub(super) fn set_quarantine(&mut self, id: DomainId, number: Option<u64>) {
        if let Some(domain) = self.domains.get_mut(id) {
            domain.quarantine = number;
        }
    }

    /// A fault has cost a domain its active server, and it needs another one, whether or not a client waits.
    pub(super) fn needs_another(&mut self, id: DomainId, swap: Swap) {
        if let Some(domain) = self.domains.get_mut(id) {
            domain.swap.get_or_insert(swap);
            domain.requested = true;
        }
    }

    /// No server is to be started for nobody any more.
    pub(super) fn forget_requests(&mut self) {
        self.domains.iter_mut().for_each(|(_, domain)| domain.requested = false);
    }

    /// The same of the domains of these namespaces.
    pub(super) fn forget_requests_within(&mut self, entrances: &[EntranceId]) {
        let is_within =
            |domain: &Domain| domain.key.entrance.as_ref().is_some_and(|entrance| entrances.contains(&entrance.id));
        let within = self.domains.iter_mut().filter(|(_, domain)| is_within(domain));
        within.for_each(|(_, domain)| domain.requested = false);
    }

    fn with(&mut self, epoch: ServerEpoch, change: impl FnOnce(&mut Server)) {
        if let Some(server) = self.all.get_mut(&epoch) {
            change(server);
        }
    }

    /// A server that was taken over has named its clients, or can't; its user.
    pub(super) fn census_over(&mut self, epoch: ServerEpoch) -> Option<Uid> {
        let server = self.all.get_mut(&epoch)?;
        server.census_due = false;
        Some(server.uid)
    }

    /// Somebody waits for the end of a server, on which this process may be past doing anything.
    pub(super) fn await_end(&mut self, epoch: ServerEpoch, dying: Option<ProcessKey>) {
        if self.all.contains_key(&epoch) {
            let known = self.awaited_ends.entry(epoch).or_default();
            *known = dying.or(*known);
        }
    }

    /// The servers whose end somebody waits for.
    pub(super) fn awaited_ends(&self) -> impl Iterator<Item = &Server> {
        self.awaited_ends.keys().filter_map(|epoch| self.all.get(epoch))
    }

    /// Whether somebody waits for the end of a server.
    pub(super) fn is_end_awaited(&self, epoch: ServerEpoch) -> bool {
        self.awaited_ends.contains_key(&epoch)
    }

    /// A process of a server whose end is waited for that is past doing anything.
    pub(super) fn dying_on(&self, epoch: ServerEpoch) -> Option<ProcessKey> {
        self.awaited_ends.get(&epoch).copied().flatten()
    }

    /// A fault alone neither ends a server nor has it asked to end before then.
    pub(super) fn hold_burial(&mut self, epoch: ServerEpoch, until: Duration) {
        self.with(epoch, |server| server.held_until = Some(until));
    }

    /// That is over: it is asked at once where it drains.
    pub(super) fn burial_begins(&mut self, now: Duration, epoch: ServerEpoch) {
        self.with(epoch, |server| {
            if server.held_until.take().is_some()
                && let ServerState::Draining(Drain { ask_at: Some(at), .. }) = &mut server.state
            {
                *at = (*at).min(now);
            }
        });
    }

    /// One that drains is forced by then at the latest.
    pub(super) fn hurry(&mut self, epoch: ServerEpoch, at: Duration) {
        self.with(epoch, |server| {
            if let ServerState::Draining(drain) = &mut server.state {
                drain.force_at = Some(drain.force_at.map_or(at, |known| known.min(at)));
            }
        });
    }

    /// Nothing but an order ends a server any longer that a fault was to end; whether it serves again.
    pub(super) fn stays_after_fault(&mut self, epoch: ServerEpoch) -> bool {
        let Some(server) = self.all.get_mut(&epoch) else {
            return false;
        };
        let ServerState::Draining(drain) = &mut server.state else {
            return false;
        };
        drain.force_at = drain.ordered_force_at;
        // Its answer may be that it ends, so one is waited for that was asked.
        let is_called_off = !drain.is_ordered && drain.ask_at.is_some();
        if is_called_off {
            server.state = ServerState::Serving;
            // A successor takes it for idle until it has named its clients.
            server.idle_since = None;
        }
        is_called_off
    }

    /// A server gets no client any more.
    pub(super) fn is_tainted(&mut self, epoch: ServerEpoch, now: Duration, incident: u64) {
        self.with(epoch, |server| server.taint(now, incident));
    }

    /// A fault has reached more of a server than the one that spoilt it.
    pub(super) fn is_hit_again(&mut self, epoch: ServerEpoch, now: Duration) {
        self.with(epoch, |server| {
            if let Health::Tainted(taint) = &mut server.health {
                taint.at = now;
            }
        });
    }

    /// A server is known to be in no fault at this time.
    pub(super) fn is_sound_at(&mut self, epoch: ServerEpoch, at: Duration) {
        self.with(epoch, |server| server.healthy_at = server.healthy_at.max(Some(at)));
    }

    /// The epoch of the next server.
    pub(super) fn next_epoch(&self) -> u64 {
        self.next_epoch
    }
}

#[cfg(test)]
impl Servers {
    pub(super) fn questions(&self) -> &BTreeMap<RequestId, Question> {
        &self.questions
    }
}
