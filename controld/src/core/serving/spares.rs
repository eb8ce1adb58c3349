//! Where programs' spare copies stand, until when, and when a program goes on with its own.
//!
//! | what happens | what becomes of the grant |
//! |---|---|
//! | the program says that it goes on with the spare copy | over: the server is the program's own from now on |
//! | the program's own server is gone, and the spare copy has a connection | the same |
//! | the server of the grant is tainted, is to end or is gone; the program is on it by itself; the daemon ends | void: the program is told, and may ask again |
//! | the program is ended by the daemon, its like is set apart or refused, or its server has limits of its own | void |
//! | the program gives it up, or ends | over |
//!
//! A connection that shows a token goes to the server of that grant or is closed: a spare copy on any other server would
//! be no spare. After a change of daemons nothing is concluded until the servers have named their clients.

mod connections;

use crate::core::clients::client::Process;
use crate::core::clients::spares::{Grant, Standing, Wish};
use crate::core::events::{JournalEvent, SpareEnd};
use crate::core::evidence::ProcessKey;
use crate::core::ids::{DomainId, Pid, ServerEpoch};
use crate::core::servers::Clientele as _;
use crate::core::servers::server::Server;
use crate::core::{Core, Effect};
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How long a server that is to end, and has no clients, waits for programs to give up their spare copies there.
const PATIENCE: Duration = Duration::from_secs(5);

impl Core {
    /// A process wants a place for a spare copy.
    pub(in crate::core) fn spare_wanted(&mut self, process: ProcessKey, wish: Wish) {
        let is_census_over = !self.servers.iter().any(|server| server.census_due);
        let is_granted = self.clients.spares().grant_of(process).is_some();
        if !is_granted && (!is_census_over || self.spare_domain(process).is_some()) {
            self.clients.spares_mut().wish(process, wish);
        }
    }

    /// The domain whose server a spare copy of this client may stand on, if there can be any.
    fn spare_domain(&self, process: ProcessKey) -> Option<DomainId> {
        let own = self.servers.get(self.clients.known(process)?.server)?;
        if self.may_have_none(process) {
            return None;
        }
        let can = self.servers.can_host_spares(&self.turn, self.gpus.fits_one_server(), own.domain);
        can.then_some(own.domain)
    }

    /// A program says how far its spare copy is.
    pub(in crate::core) fn spare_stands(&mut self, process: ProcessKey, token: u64, standing: Standing) {
        let now = self.turn.now;
        let Some(grant) = self.clients.spares_mut().grant_mut(process, token) else {
            return;
        };
        grant.standing = standing;
        if standing.is_ready && !core::mem::replace(&mut grant.was_ready, true) {
            let (uid, epoch, after) = (grant.uid, grant.server, now.saturating_sub(grant.since));
            let (server, domain) = self.server_and_domain(epoch);
            self.turn.record(JournalEvent::SpareReady { process, uid, domain, server, after });
            self.turn.save();
        }
    }

    /// A program goes on with its spare copy.
    pub(in crate::core) fn spare_lives(&mut self, process: ProcessKey, token: u64) {
        if let Some(grant) = self.clients.spares_mut().take(process, token) {
            self.goes_on(process, &grant);
        }
    }

    /// A program has given its spare copy up.
    pub(in crate::core) fn spare_gone(&mut self, process: ProcessKey, token: u64) {
        if let Some(grant) = self.clients.spares_mut().take(process, token) {
            self.record_spare_end(process, &grant, SpareEnd::GivenUp);
            self.turn.save();
        }
    }

    /// A server is gone whose clients go on with the spare copies that they have elsewhere.
    pub(in crate::core) fn spares_live_after(&mut self, gone: ServerEpoch) {
        self.clients.spares_mut().server_gone(gone);
        self.clients.guests_mut().server_gone(gone);
        let on_it = |process: ProcessKey| self.clients.known(process).is_some_and(|known| known.server == gone);
        let mut able = self.able_spares();
        able.retain(|(process, _)| on_it(*process));
        for (process, token) in able {
            self.spare_lives(process, token);
        }
    }

    /// The spare copies that have a connection to a sound server.
    fn able_spares(&self) -> Vec<(ProcessKey, u64)> {
        let grants = self.clients.spares().grants();
        let able = grants.filter(|(_, grant)| grant.connections > 0 && self.is_hosted(grant.server));
        able.map(|(process, grant)| (process, grant.token)).collect()
    }

    fn is_hosted(&self, server: ServerEpoch) -> bool {
        self.servers.get(server).is_some_and(Server::hosts_spares)
    }

    /// Whether a process may have no place, whatever there is: it is sanctioned, or somebody has set limits of its own
    /// server alone, which another server would not have.
    fn may_have_none(&self, process: ProcessKey) -> bool {
        let own = self.clients.known(process).and_then(|known| self.servers.get(known.server));
        own.is_some_and(|own| own.has_own_limits) || self.is_sanctioned(process)
    }

    fn server_and_domain(&self, epoch: ServerEpoch) -> (Pid, String) {
        let server = self.servers.get(epoch);
        let domain = server.map_or_else(String::new, |server| self.servers.domain_name(server.domain));
        (server.and_then(|server| server.pid).unwrap_or_default(), domain)
    }

    fn goes_on(&mut self, process: ProcessKey, grant: &Grant) {
        let (former, is_known) = self.clients.goes_on_with(process, grant);
        self.faults.is_back(process);
        self.servers.is_used(grant.server, process.pid);
        if let Some(former) = former.filter(|former| *former != grant.server) {
            self.servers.client_left(self.turn.now, former, !self.clients.are_on(former));
        }
        if !is_known {
            self.turn.push(Effect::WatchProcess { pid: process.pid, connection: None });
        }
        self.look_at(process.pid);
        let (server, domain) = self.server_and_domain(grant.server);
        let from = former.and_then(|former| self.servers.get(former)).and_then(|former| former.pid);
        let (uid, was_ready) = (grant.uid, grant.standing.is_ready);
        self.turn.log(format!("Client {} goes on with its spare copy on server {server}", process.pid));
        self.turn.record(JournalEvent::SpareLives { process, uid, domain, from, to: server, ready: was_ready });
        self.turn.save();
    }

    fn record_spare_end(&mut self, process: ProcessKey, grant: &Grant, reason: SpareEnd) {
        let (server, mut domain) = self.server_and_domain(grant.server);
        let uid = grant.uid;
        if domain.is_empty() {
            domain = format!("user {uid}");
        }
        self.turn.record(JournalEvent::SpareEnded { process, uid, domain, server, reason });
    }

    /// A process has ended: where nobody but its spare copy was, a server may be idle. What it was a guest as.
    pub(in crate::core) fn spares_process_gone(&mut self, pid: Pid) -> Vec<Process> {
        self.clients.spares_mut().process_gone(pid);
        let gone = self.clients.guests_mut().process_gone(pid);
        for guest in &gone {
            self.servers.client_left(self.turn.now, guest.server, !self.clients.are_on(guest.server));
        }
        gone
    }

    /// What follows for spare copies from everything else.
    pub(in crate::core) fn advance_spares(&mut self) {
        let is_census_over = !self.servers.iter().any(|server| server.census_due);
        if is_census_over {
            self.orphans_live();
        }
        self.void_grants(is_census_over);
        self.grant_wishes(is_census_over);
        self.dispatch_spares();
        let spares = self.clients.spares();
        let of_wishes = spares.wishes().filter_map(|(process, _)| self.spare_domain(process));
        let of_grants = spares.grants().filter_map(|(_, grant)| Some(self.servers.get(grant.server)?.domain));
        let domains: BTreeSet<DomainId> = of_wishes.chain(of_grants).collect();
        if is_census_over {
            self.servers.note_spares(&mut self.turn, &domains);
        }
        self.oust_spares();
    }

    /// After a change of daemons: those whose own server is gone go on with the spare copy.
    fn orphans_live(&mut self) {
        let mut able = self.able_spares();
        able.retain(|(process, _)| self.clients.process(process.pid).is_none());
        for (process, token) in able {
            self.spare_lives(process, token);
        }
    }

    /// Ends the grants that are of no use any more, and has their programs told.
    pub(super) fn void_grants(&mut self, is_census_over: bool) {
        let mut void = Vec::new();
        for (process, grant) in self.clients.spares().grants() {
            let home = self.clients.known(process).map(|known| known.server);
            let reason = if self.turn.quit.is_some() {
                SpareEnd::Quitting
            } else if !self.is_hosted(grant.server) {
                SpareEnd::ServerLost
            } else if self.may_have_none(process) {
                SpareEnd::Refused
            } else if home == Some(grant.server) {
                SpareEnd::Moved
            } else if home.is_none() && is_census_over {
                SpareEnd::NoClient
            } else {
                continue;
            };
            void.push((process, grant.token, reason));
        }
        for (process, token, reason) in void {
            if let Some(grant) = self.clients.spares_mut().take(process, token) {
                self.record_spare_end(process, &grant, reason);
                self.turn.save();
                self.turn.push(Effect::SpareVoid { process, token });
            }
        }
    }

    fn grant_wishes(&mut self, is_census_over: bool) {
        let now = self.turn.now;
        let wishes: Vec<(ProcessKey, Wish)> = self.clients.spares().wishes().collect();
        for (process, wish) in wishes {
            let domain = self.spare_domain(process);
            let is_known = domain.is_some() || !is_census_over;
            if !is_known || wish.until <= now || self.clients.spares().grant_of(process).is_some() {
                self.clients.spares_mut().forget_wish(process);
                continue;
            }
            let Some((domain, known)) = domain.zip(self.clients.known(process)) else { continue };
            // Who has lost his contexts has something else to do first.
            let is_hit = known.is_hit(&self.servers);
            let Some(server) = self.servers.host_for_spare(domain, known.server).filter(|_| !is_hit) else { continue };
            if !self.has_left(server, process.pid) {
                continue;
            }
            let (uid, identity) = (known.uid, Arc::clone(&known.identity));
            let (token, since) = (wish.token, now);
            if let Some(guest) = self.clients.guests_mut().get_mut(server, process.pid) {
                (guest.leaves, guest.process.connections) = (None, 0);
            }
            let grant = Grant {
                token,
                server,
                uid,
                identity,
                since,
                standing: Standing::default(),
                was_ready: false,
                connections: 0,
            };
            self.clients.spares_mut().grant(process, grant);
            let (pid, domain) = self.server_and_domain(server);
            self.turn.record(JournalEvent::SpareGranted { process, uid, domain, server: pid });
            self.turn.save();
        }
    }

    /// A server that is to end does not wait for spare copies.
    fn oust_spares(&mut self) {
        let now = self.turn.now;
        for epoch in self.clients.guests().hosts() {
            if !self.servers.waits_for_nobody(&self.clients, epoch) {
                self.clients.spares_mut().ousted.remove(&epoch);
                continue;
            }
            let since = *self.clients.spares_mut().ousted.entry(epoch).or_insert(now);
            self.servers.hurry(epoch, since + PATIENCE);
        }
    }

    /// When something must be done on account of spare copies alone.
    pub(in crate::core) fn spares_deadline(&self) -> Option<Duration> {
        let wishes = self.clients.spares().wishes().map(|(_, wish)| wish.until).min();
        [wishes, self.servers.standby_deadline(), self.clients.guests().deadline()].into_iter().flatten().min()
    }
}
