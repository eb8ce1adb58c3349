//! A server that an exception has spoilt is ended at once where its clients lose nothing by that.
//!
//! An exception such as a trap stops nothing but the server's own channels, and its clients hear of it late: the end of
//! the server is what they have to wait for then, and it comes sooner when the server is killed
//! ([`nature`](crate::core::faults) has the figures). With a memory fault it does not, so that is left alone.
//!
//! | | needed |
//! |---|---|
//! | proof | the server itself has said that it is in a fault. What clients say of an error only makes the daemon ask, and says of what kind it was; a server that says nothing has its time |
//! | nobody is harmed | each client of it has a spare copy that is ready, by its word, and that a sound server has accepted. Who has none, or is on its way to this server, keeps it |
//! | nobody is spared | no client may be where the fault has not reached: with several GPUs it is known of each that it has lost something |
//!
//! `end_tainted = "always"` does without the second. Whoever comes meanwhile waits for the server in its place, as with
//! every tainted server.

use crate::core::clients::client::Process;
use crate::core::events::{EarlyEnd, JournalEvent};
use crate::core::gpu::are_apart;
use crate::core::ids::{Pid, ServerEpoch};
use crate::core::policy::EndTainted;
use crate::core::servers::Clientele as _;
use crate::core::servers::server::{Server, ServerState};
use crate::core::{Core, ProcessKey};

impl Core {
    /// Ends the servers that are of no use to anybody.
    pub(in crate::core) fn end_spoilt_servers(&mut self) {
        let reason = match self.turn.policy.end_tainted {
            EndTainted::Never => return,
            EndTainted::WhenSpared => EarlyEnd::AllHaveSpares,
            EndTainted::Always => EarlyEnd::Always,
        };
        if self.turn.quit.is_some() {
            return;
        }
        let may_end = |server: &&Server| server.is_lost() && !server.census_due && is_left_to_its_clients(server);
        let lost: Vec<ServerEpoch> = self.servers.iter().filter(may_end).map(|server| server.epoch).collect();
        for epoch in lost {
            if let Some(incident) = self.faults.exception_of(epoch)
                && self.may_be_ended(epoch, reason)
            {
                self.end_spoilt_server(epoch, incident, reason);
            }
        }
    }

    fn may_be_ended(&self, epoch: ServerEpoch, reason: EarlyEnd) -> bool {
        // Without clients it ends by itself.
        if !self.clients.are_on(epoch) || !self.are_all_reached(epoch) {
            return false;
        }
        let can_go_on = |pid: Pid, process: &Process| self.has_ready_spare(process.key(pid));
        let on_their_way = self.clients.iter().filter(|client| client.spare.is_none());
        let mut on_their_way = on_their_way.filter(|client| client.stage.server() == Some(epoch));
        reason == EarlyEnd::Always
            || (self.clients.on(epoch).all(|(pid, process)| can_go_on(pid, process))
                && on_their_way.all(|client| self.has_ready_spare(client.process())))
    }

    /// Whether a process has a spare copy to go on with: it says so, and a sound server has accepted it.
    pub(super) fn has_ready_spare(&self, process: ProcessKey) -> bool {
        let grant =
            self.clients.spares().grant_of(process).filter(|grant| grant.standing.is_ready && grant.connections > 0);
        let host = grant.and_then(|grant| self.servers.get(grant.server));
        host.is_some_and(|host| host.hosts_spares() && !host.is_suspected())
    }

    /// Whether the fault of a server has reached all of its clients, as is known.
    fn are_all_reached(&self, epoch: ServerEpoch) -> bool {
        if self.clients.has_spared(epoch) {
            return false;
        }
        let known = self.gpus.known();
        if !known.are_several() || known.of_server(epoch).len() == 1 {
            return true;
        }
        let Some(reached) = self.reach_of(epoch) else { return false };
        let is_reached = |(pid, process): (Pid, &Process)| {
            self.gpus_of(pid, process).is_some_and(|own| !own.is_empty() && !are_apart(&own, &reached))
        };
        self.clients.on(epoch).all(is_reached)
    }

    fn end_spoilt_server(&mut self, epoch: ServerEpoch, incident: u64, reason: EarlyEnd) {
        let Some(server) = self.servers.get(epoch) else { return };
        let (pid, uid, domain) = (server.pid.unwrap_or_default(), server.uid, self.servers.domain_name(server.domain));
        let clients = self.clients.on(epoch).count();
        let why = match reason {
            EarlyEnd::AllHaveSpares => "all its clients have spare copies",
            EarlyEnd::Always => "so it is wanted",
        };
        self.turn.log(format!("Server {pid} is ended at once after an exception, incident {incident}: {why}"));
        self.turn.record(JournalEvent::ServerEndedEarly { epoch, server: pid, uid, domain, incident, clients, reason });
        self.servers.kill_spoilt(&mut self.turn, epoch, reason);
    }
}

/// Whether a server is neither starting nor told to end.
fn is_left_to_its_clients(server: &Server) -> bool {
    server.pid.is_some() && matches!(server.state, ServerState::Serving | ServerState::Draining(_))
}
