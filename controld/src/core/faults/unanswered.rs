//! What the kernel has said of a fault of a server on a GPU, as long as the server has not said since that it is in none.
//!
//! The signs of an incident are forgotten after a while, unless its server is known to be lost. Where the server has said
//! that it is in no fault, nothing has come of them. One that has said nothing may be in that fault still: who has contexts
//! on that GPU is not known to be left alone by a later fault on another one, and what it says of itself later is about
//! that GPU. It is asked again and again meanwhile, so that this ends: a server that goes on answers.
//!
//! Nobody can write the kernel's lines, and those that name nobody may be about another server.

use super::Faults;
use crate::core::clients::client::Process;
use crate::core::gpu::GpuSet;
use crate::core::ids::{Pid, RequestId, ServerEpoch};
use crate::core::servers::questions::Purpose;
use crate::core::servers::server::Server;
use crate::core::{Core, NoReply};
use core::time::Duration;
use remps_proto::mps::server::Reply;

/// What a server has not answered.
#[derive(Debug)]
pub(super) struct Unanswered {
    /// The GPUs that the kernel has named.
    gpus: GpuSet,
    /// The first question to the server that is later than that.
    since: RequestId,
    /// When the first sign of it came.
    pub(super) first: Duration,
    /// The server's clients then: who has gone since may have carried it to other GPUs.
    pub(super) clients: Vec<(Pid, Process)>,
}

impl Faults {
    /// Whether the kernel has spoken of a fault of a server that this has not denied.
    fn is_unanswered(&self, server: ServerEpoch) -> bool {
        self.unanswered.contains_key(&server)
    }

    /// The GPUs that signs of a fault name, and those of what its server has not answered before.
    pub(super) fn with_unanswered(&self, server: ServerEpoch, gpus: &GpuSet) -> GpuSet {
        let before = self.unanswered.get(&server).into_iter().flat_map(|before| &before.gpus);
        gpus.iter().chain(before).cloned().collect()
    }

    /// What a server says to this question: that it is in no fault, or that it can't know.
    pub(in crate::core) fn may_be_denied(
        &mut self,
        server: ServerEpoch,
        question: RequestId,
        purpose: &Purpose,
        reply: &Result<Reply, NoReply>,
    ) {
        let is_about_that = matches!(purpose, Purpose::FaultCheck | Purpose::Health(_));
        match reply {
            Ok(Reply::Active(true)) => {}
            Err(NoReply::Unsupported) if is_about_that => {}
            Ok(_) | Err(_) => return,
        }
        self.unanswered.retain(|epoch, unanswered| *epoch != server || question < unanswered.since);
    }
}

impl Core {
    /// The kernel has spoken of a fault of a server on these GPUs.
    pub(super) fn is_to_be_denied(&mut self, server: ServerEpoch, gpus: &GpuSet) {
        // What is heard of one that is known to be lost counts at once.
        if gpus.is_empty() || self.is_lost(server) {
            return;
        }
        let since = self.servers.next_question();
        let Some(incident) = self.faults.incidents.get(&server) else { return };
        let new = || Unanswered { gpus: GpuSet::new(), since, first: incident.first, clients: Vec::new() };
        let unanswered = self.faults.unanswered.entry(server).or_insert_with(new);
        unanswered.gpus.extend(gpus.iter().cloned());
        unanswered.since = since;
        for (pid, process) in &incident.clients {
            let is_it = |(known, then): &(Pid, Process)| known == pid && process.is(then.key(*pid));
            if !unanswered.clients.iter().any(is_it) {
                unanswered.clients.push((*pid, process.clone()));
            }
        }
    }

    /// A server has not answered in time how it is. The next question holds up nobody.
    pub(super) fn ask_until_denied(&mut self, epoch: ServerEpoch) {
        let may_answer = |server: &Server| server.is_connected() && !server.is_lost() && server.health_asked.is_none();
        if self.faults.is_unanswered(epoch) && self.servers.get(epoch).is_some_and(may_answer) {
            self.servers.ask_for_health(&mut self.turn, epoch);
        }
    }
}
