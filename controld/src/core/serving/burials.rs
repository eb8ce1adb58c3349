//! When a spoilt server is buried whose clients recover: as soon as none of them is waited for any more.
//!
//! | not waited for | since |
//! |---|---|
//! | who has its contexts again, does not recover, or has ended | it says so, or the kernel |
//! | who goes on with its spare copy, or has one that is ready | it needs no new context |
//! | whom the fault has left alone | it has lost none |
//! | who is ended, or whose like is set apart or refused | it is to go |
//!
//! Nor is anybody when the time is over ([`burials`](crate::core::faults)), when a client of the server, or another one of
//! its user, finds no memory, of which the dead may hold some, or when the daemon ends. An operator's order is never held back, nor the end of
//! a server that no other one can start beside, that says nothing, or whose clients all have spare copies
//! ([`early_end`](super::early_end)).

use crate::core::clients::client::Process;
use crate::core::events::{HoldEnd, JournalEvent};
use crate::core::evidence::ProcessKey;
use crate::core::faults::burials::Burial;
use crate::core::ids::{Pid, ServerEpoch, Uid};
use crate::core::servers::server::Server;
use crate::core::{Core, DomainId};
use remps_proto::shim::RecoveryStage;
use std::collections::BTreeSet;

impl Core {
    /// A process says how far it is with going on after a fault.
    pub(in crate::core) fn recovery_stands(&mut self, process: ProcessKey, stage: RecoveryStage) {
        match stage {
            RecoveryStage::ABLE => self.clients.note_able(process, true),
            RecoveryStage::BACK => self.faults.is_back(process),
            RecoveryStage::GIVEN_UP => {
                self.clients.note_able(process, false);
                self.faults.does_not_recover(process);
            }
            RecoveryStage::SHORT => {
                // Whoever has ended needs none: a word may come behind the kernel's.
                let Some(uid) = self.clients.known(process).map(|known| known.uid) else { return };
                let own = self.servers.iter().filter(|server| server.uid == uid).map(|server| server.epoch);
                self.faults.is_short_of_memory(process, &own.collect());
            }
            // One of a later library.
            _ => {}
        }
    }

    /// Buries the servers on whose account nobody is waited for any more.
    pub(in crate::core) fn advance_burials(&mut self) {
        let all: Vec<(ServerEpoch, BTreeSet<ProcessKey>)> =
            self.faults.burials().map(|(epoch, burial)| (epoch, burial.awaited.clone())).collect();
        for (epoch, mut awaited) in all {
            let is_spared = |known: &Process| known.server == epoch && known.gpus.is_spared;
            awaited.retain(|process| {
                self.clients.known(*process).is_some_and(|known| !is_spared(known))
                    && !self.is_sanctioned(*process)
                    && !self.has_ready_spare(*process)
            });
            if let Some(burial) = self.faults.burial_mut(epoch) {
                burial.clients.get_or_insert(awaited.len() + burial.back.len());
                burial.awaited = awaited;
            }
            if let Some(reason) = self.why_buried(epoch)
                && let Some(server) = self.servers.get(epoch)
            {
                let (pid, uid, domain) = (server.pid, server.uid, server.domain);
                self.bury_server(epoch, (pid, uid, domain), reason);
            }
        }
    }

    /// How many servers are not buried yet.
    pub(crate) fn held_burials(&self) -> usize {
        self.faults.burials().count()
    }

    fn why_buried(&self, epoch: ServerEpoch) -> Option<HoldEnd> {
        let burial = self.faults.burial(epoch)?;
        let reasons = [
            (burial.awaited.is_empty(), HoldEnd::Over),
            (self.turn.quit.is_some(), HoldEnd::Quitting),
            (burial.is_short, HoldEnd::Memory),
            (burial.until <= self.turn.now, HoldEnd::TimedOut),
        ];
        reasons.into_iter().find_map(|(is_so, reason)| is_so.then_some(reason))
    }

    /// A server has ended whose burial was held back perhaps.
    pub(in crate::core) fn buried_itself(&mut self, server: &Server) {
        self.bury_server(server.epoch, (server.pid, server.uid, server.domain), HoldEnd::ServerEnded);
    }

    fn bury_server(&mut self, epoch: ServerEpoch, server: (Option<Pid>, Uid, DomainId), reason: HoldEnd) {
        let Some(burial) = self.faults.take_burial(epoch) else { return };
        let now = self.turn.now;
        self.servers.burial_begins(now, epoch);
        self.faults.end_funerals_for_recoveries(&mut self.turn, epoch);
        let Burial { since, back, clients, incident, .. } = burial;
        let clients = clients.unwrap_or_default();
        if clients == 0 {
            return;
        }
        let (pid, uid, domain) = server;
        let (server, domain) = (pid.unwrap_or_default(), self.servers.domain_name(domain));
        let (back, held) = (back.len(), now.saturating_sub(since));
        self.turn.log(format!(
            "Server {server} was not buried for {} ms, as {clients} of its clients recovered, of which {back} have their \
             contexts",
            held.as_millis()
        ));
        let event = JournalEvent::BurialHeld { epoch, server, uid, domain, incident, clients, back, reason, held };
        self.turn.record(event);
    }
}
