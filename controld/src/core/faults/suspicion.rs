//! What comes of asking a server how it is: on a sign of a fault that anybody could have forged, and for newcomers.

use crate::core::evidence::{Evidence, ProcessKey};
use crate::core::ids::ServerEpoch;
use crate::core::policy::EndTainted;
use crate::core::servers::health::Suspicion;
use crate::core::{Core, NoReply};
use core::time::Duration;
use remps_proto::mps::server::Reply;

impl Core {
    /// After a sign that not everybody can give.
    pub(super) fn suspect(&mut self, epoch: ServerEpoch) {
        if self.servers.is_ill(self.turn.now, epoch) {
            self.ask_how_it_is(epoch);
        }
    }

    /// Asks a server whether it is in a fault, and sends nobody there until it has answered.
    pub(super) fn ask_how_it_is(&mut self, epoch: ServerEpoch) {
        self.ask_on_suspicion(epoch, false);
    }

    fn ask_on_suspicion(&mut self, epoch: ServerEpoch, is_second: bool) {
        self.faults.relapses(self.turn.now, epoch);
        self.servers.ask_on_suspicion(&mut self.turn, epoch, is_second);
    }

    pub(in crate::core) fn fault_check_answered(&mut self, epoch: ServerEpoch, reply: &Result<Reply, NoReply>) {
        if self.servers.get(epoch).is_none() {
            return;
        }
        let old = self.servers.answers_suspicion(epoch).filter(|suspicion| suspicion.is_anew);
        match (reply, old) {
            (Ok(Reply::Active(false)), _) => self.evidence(Evidence::ServerStatus { server: epoch }),
            // Once: whoever makes signs without end must not keep newcomers away.
            (Ok(Reply::Active(true)), Some(Suspicion { is_second: false, .. })) => self.ask_on_suspicion(epoch, true),
            (Ok(Reply::Active(true)), _) => {
                if old.is_some() {
                    self.faults.is_to_be_asked(self.turn.now, epoch);
                }
                if self.gains_by_early_end(epoch) {
                    self.faults.may_not_know_yet(self.turn.now, epoch);
                }
                self.servers.is_in_no_fault(&mut self.turn, epoch);
            }
            (Err(NoReply::TimedOut), _) => self.ask_until_denied(epoch),
            (Ok(_) | Err(_), _) => {}
        }
    }

    /// Whether it matters how soon a server is known to be lost: its clients go on as soon as it has ended.
    fn gains_by_early_end(&self, epoch: ServerEpoch) -> bool {
        let spares = self.clients.spares();
        let is_ready = |process: ProcessKey| spares.grant_of(process).is_some_and(|grant| grant.standing.is_ready);
        match self.turn.policy.end_tainted {
            EndTainted::Never => false,
            EndTainted::WhenSpared => self.clients.on(epoch).any(|(pid, process)| is_ready(process.key(pid))),
            EndTainted::Always => true,
        }
    }

    /// The answer to a question of that time.
    pub(in crate::core) fn health_answered(
        &mut self,
        epoch: ServerEpoch,
        asked_at: Duration,
        reply: &Result<Reply, NoReply>,
    ) {
        if !self.servers.answers_health(self.turn.now, epoch, asked_at, reply) {
            return;
        }
        match reply {
            Ok(Reply::Active(false)) => self.evidence(Evidence::ServerStatus { server: epoch }),
            // The driver has those come again whom a server was told of that is gone.
            Err(NoReply::Lost) => return,
            Ok(_) | Err(NoReply::TimedOut | NoReply::Unsupported) => {}
        }
        self.word_has_come(epoch, asked_at, *reply != Err(NoReply::TimedOut));
        if *reply == Err(NoReply::TimedOut) {
            self.ask_until_denied(epoch);
        }
    }
}
