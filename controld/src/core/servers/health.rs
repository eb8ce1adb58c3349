//! What a server is asked about itself, and what it is taken for until it has answered.
//!
//! A sign of a fault that anybody could have forged makes the daemon ask, and send nobody there meanwhile. A newcomer's
//! question ([`settle`](crate::core::clients::settle)) holds up nobody but those whom it is asked for.

use super::Servers;
use super::questions::Purpose;
use crate::core::effect::Turn;
use crate::core::faults::evidence::Evidence;
use crate::core::ids::ServerEpoch;
use crate::core::{Core, NoReply};
use core::time::Duration;
use remps_proto::mps::server::{Reply, Request};

impl Servers {
    /// Asks a server how it is, for newcomers that may go there then.
    pub(in crate::core) fn ask_for_health(&mut self, turn: &mut Turn, now: Duration, epoch: ServerEpoch) {
        if let Some(server) = self.all.get_mut(&epoch) {
            server.health_asked = Some(now);
            self.ask(turn, epoch, Request::Status, Purpose::Health(now));
        }
    }
}

impl Core {
    /// After a sign that not everybody can give: if the server says nothing either, it has met a fault sooner.
    pub(in crate::core) fn suspect(&mut self, now: Duration, epoch: ServerEpoch) {
        if let Some(server) = self.servers.all.get_mut(&epoch) {
            server.ill_at = Some(now);
            self.ask_how_it_is(now, epoch);
        }
    }

    /// Asks a server whether it is in a fault, and sends nobody there until it has answered.
    pub(in crate::core) fn ask_how_it_is(&mut self, now: Duration, epoch: ServerEpoch) {
        self.faults.relapses(now, epoch);
        let Some(server) = self.servers.all.get_mut(&epoch) else {
            return;
        };
        if server.tainted.is_some() || !server.is_connected() {
            return;
        }
        if server.suspected {
            // It may have answered already, before this came.
            server.suspected_anew = true;
            return;
        }
        server.suspected = true;
        self.servers.ask(&mut self.turn, epoch, Request::Status, Purpose::FaultCheck);
    }

    pub(in crate::core) fn fault_check_answered(
        &mut self,
        now: Duration,
        epoch: ServerEpoch,
        reply: &Result<Reply, NoReply>,
    ) {
        let Some(server) = self.servers.all.get_mut(&epoch) else {
            return;
        };
        server.suspected = false;
        // Once: whoever makes signs without end must not keep newcomers away.
        let is_old = std::mem::take(&mut server.suspected_anew) && !server.asked_again;
        server.asked_again = is_old;
        match reply {
            Ok(Reply::Active(false)) => self.evidence(now, Evidence::ServerStatus { server: epoch }),
            Ok(Reply::Active(true)) if is_old => self.ask_how_it_is(now, epoch),
            Ok(Reply::Active(true)) => self.servers.is_in_no_fault(&mut self.turn, epoch),
            Ok(_) | Err(_) => {}
        }
    }

    /// The answer to a question of that time.
    pub(in crate::core) fn health_answered(
        &mut self,
        now: Duration,
        epoch: ServerEpoch,
        asked_at: Duration,
        reply: &Result<Reply, NoReply>,
    ) {
        let Some(server) = self.servers.all.get_mut(&epoch) else {
            return;
        };
        // A later question may be under way.
        server.health_asked = server.health_asked.filter(|at| *at > asked_at);
        match reply {
            Ok(Reply::Active(false)) => self.evidence(now, Evidence::ServerStatus { server: epoch }),
            Ok(_) => server.healthy_at = server.healthy_at.max(Some(asked_at)),
            // Nobody can know it of this release.
            Err(NoReply::Unsupported) => server.healthy_at = Some(now),
            Err(NoReply::TimedOut) => {}
            // The driver has those come again whom a server was told of that is gone.
            Err(NoReply::Lost) => return,
        }
        self.word_has_come(epoch, asked_at, *reply != Err(NoReply::TimedOut));
    }
}
