//! What becomes of a server that is [silent](crate::core::servers::silence): its domain gets another one, and where there was
//! a sign of a fault it counts as one.

use super::statement::Statement;
use super::taint::Cause;
use crate::core::Core;
use crate::core::ids::{DomainId, ServerEpoch};
use core::time::Duration;

/// How long a silent server of which the kernel itself says that it met an error may still take to drain.
const KERNELS_PATIENCE: Duration = Duration::from_secs(1);

impl Core {
    /// Finds servers that seem to be silent, and those that block their replacement.
    pub(in crate::core) fn advance_silence(&mut self) {
        if self.turn.quit.is_some() {
            return;
        }
        for domain in self.servers.advance_silence(&mut self.turn, &self.clients) {
            self.end_first_silent(domain, "its replacement does not get ready");
        }
    }

    /// Everything has been told that had come when a server seemed to be silent.
    pub(in crate::core) fn caught_up(&mut self, epoch: ServerEpoch) {
        if self.servers.caught_up(&self.turn, &self.clients, epoch) && self.turn.quit.is_none() {
            self.is_silent(epoch);
        }
    }

    fn end_first_silent(&mut self, domain: DomainId, why: &str) -> bool {
        let first = self.servers.first_silent(&self.clients, domain);
        let Some((epoch, pid)) = first.map(|server| (server.epoch, server.pid)) else {
            return false;
        };
        self.turn.log(format!("Server {} is silent and {why}: it is ended", pid.unwrap_or_default()));
        self.list_victims(epoch);
        self.servers.force(&mut self.turn, epoch);
        true
    }

    fn is_silent(&mut self, epoch: ServerEpoch) {
        let now = self.turn.now;
        let Some(server) = self.servers.get(epoch) else {
            return;
        };
        let (domain, has_sign) = (server.domain, self.servers.has_sign(server));
        let is_first = !self.servers.is_another_silent(domain);
        if self.end_first_silent(domain, "so is the server in its place") || !is_first {
            // The first one may be what this one waits for, or the machine is slow: a third one would do no better.
            self.servers.has_time_again(now, epoch);
            return;
        }
        let kernels_word = self.faults.has_kernels_word(epoch);
        let cause = if has_sign {
            let statement = Statement::new("server-status", None, "no answer".to_owned());
            Cause::Fault(self.testify(epoch, statement))
        } else {
            Cause::Silence
        };
        self.taint(epoch, cause);
        self.servers.falls_silent(now, epoch);
        if has_sign && kernels_word {
            self.servers.hurry(epoch, now + KERNELS_PATIENCE);
        }
    }
}
