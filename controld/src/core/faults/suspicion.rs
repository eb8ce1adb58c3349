//! What comes of asking a server how it is: on a sign of a fault that anybody could have forged, and for newcomers.

use crate::core::evidence::Evidence;
use crate::core::ids::ServerEpoch;
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
        // Once: whoever makes signs without end must not keep newcomers away.
        let asked = self.servers.answers_suspicion(epoch);
        let is_old = asked.is_some_and(|suspicion| suspicion.is_anew && !suspicion.is_second);
        match reply {
            Ok(Reply::Active(false)) => self.evidence(Evidence::ServerStatus { server: epoch }),
            Ok(Reply::Active(true)) if is_old => self.ask_on_suspicion(epoch, true),
            Ok(Reply::Active(true)) => self.servers.is_in_no_fault(&mut self.turn, epoch),
            Ok(_) | Err(_) => {}
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
    }
}
