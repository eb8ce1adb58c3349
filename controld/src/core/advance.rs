//! What follows from the state and the time and not from one input alone, and when it is due next.

use super::Core;
use super::ids::{DomainId, ServerEpoch};
use super::servers::Clientele as _;
use super::servers::domain::Domain;
use super::servers::server::Server;
use core::time::Duration;

/// How often the steps that follow from the time are done for one input; each makes at most the next one due.
const MAX_ROUNDS: usize = 8;

impl Core {
    /// When [`Input::Tick`] is due, if nothing else happens; `None` is never.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let servers = self.servers.iter().filter_map(Server::deadline);
        let retries = self
            .servers
            .domains()
            .filter(|(id, _)| self.clients.wants_server(&self.servers, *id))
            .filter_map(|(_, domain)| domain.retry_at);
        let one_fits = self.gpus.fits_one_server();
        let wants_standby = |(id, domain): (DomainId, &Domain)| {
            domain.standby_retry_at.filter(|_| self.servers.wants_standby(&self.turn, one_fits, id))
        };
        let standbys = self.servers.domains().filter_map(wants_standby);
        let rooms = [self.commands.deadline(), self.clients.deadline(), self.faults.deadline(), self.gpus.deadline()];
        let across = [
            self.servers.silence_deadline(&self.turn, &self.clients),
            self.settle_deadline(),
            self.spared_deadline(),
            self.spares_deadline(),
            self.joined_deadline(),
        ];
        let ends = [self.servers.idle_deadline(&self.turn, &self.clients), self.servers.quit_deadline(&self.turn)];
        let others = rooms.into_iter().chain(across).chain(ends).flatten();
        servers.chain(retries).chain(standbys).chain(others).min()
    }

    /// Starts servers where clients wait, and makes room for them where only one may run.
    fn advance_domains(&mut self) {
        let domains: Vec<DomainId> = self.servers.domains().map(|(id, _)| id).collect();
        let one_fits = self.gpus.fits_one_server();
        for domain in domains {
            self.dispatch_waiting(domain);
            if self.turn.quit.is_none() {
                self.servers.start_if_wanted(&mut self.turn, &self.clients, one_fits, domain);
            }
        }
        self.servers.forget_unneeded(self.turn.now, &self.clients);
    }

    /// Acts on the deadlines of servers.
    fn advance_servers(&mut self) {
        let epochs: Vec<ServerEpoch> = self.servers.iter().map(|server| server.epoch).collect();
        for epoch in epochs {
            if self.servers.is_overdue(self.turn.now, epoch) {
                self.list_victims(epoch);
                self.servers.force(&mut self.turn, epoch);
            } else {
                self.servers.advance(&mut self.turn, epoch);
            }
        }
    }

    /// Everything that follows from the state and the time and not from one input alone.
    pub(super) fn advance(&mut self) {
        let now = self.turn.now;
        if self.is_over() {
            return;
        }
        // One step may make another one due that came before it: a server that is forced leaves clients without one.
        for _ in 0..MAX_ROUNDS {
            self.advance_whereabouts();
            self.advance_silence();
            self.advance_incidents();
            self.advance_burials();
            self.advance_funerals();
            self.advance_spared();
            self.faults.advance_teardowns(&mut self.turn);
            self.faults.advance_endings(&mut self.turn);
            self.clients.offenders_mut().advance(now);
            self.servers.advance_idle(&mut self.turn, &self.clients);
            self.advance_spares();
            self.end_spoilt_servers();
            self.end_awaited_servers();
            self.advance_guests();
            self.advance_domains();
            self.advance_settling();
            self.advance_servers();
            self.advance_deferred();
            self.advance_joined();
            self.gpus.advance_gpus(&mut self.turn);
            self.faults.advance_held(&mut self.turn);
            self.faults.advance_untold(&mut self.turn);
            self.advance_quit();
            if self.is_over() || self.next_deadline().is_none_or(|at| at > now) {
                break;
            }
        }
    }
}
