//! How far the fault of a server reaches.
//!
//! A fault takes the contexts of one GPU. NVIDIA's server then takes down every process that had one there, with all that
//! it has on other GPUs, and every other client on those gets 719 (measured on two H200s with 580: 23 of 23 beside a
//! program with contexts on both, 0.03 to 0.9 s after the victims on the first, whatever that program does, stopped or
//! not, and also when it is the culprit; 0 of 14 where nobody had any on both, or had given one of them up before). So
//! who is hit carries the fault to all GPUs that it has contexts on, and who has one context carries it nowhere.
//!
//! Whoever may have several and may be anywhere carries it anywhere, as far as anybody knows.

use super::blame::DEATH_REACH;
use crate::core::Core;
use crate::core::clients::client::Process;
use crate::core::evidence::End;
use crate::core::gpu::{GpuSet, are_apart};
use crate::core::ids::{Pid, ServerEpoch};

/// On which GPUs a process may have contexts that go together; `None` when nobody knows.
type Carried = Option<GpuSet>;

impl Core {
    /// The GPUs that the fault of a server reaches; `None` when it may be all.
    pub(in crate::core) fn reach_of(&self, epoch: ServerEpoch) -> Option<GpuSet> {
        self.servers.get(epoch).filter(|server| !server.has_hidden_clients)?;
        let mut reached: GpuSet = self.faults.spoilt_gpus(epoch).cloned().collect();
        if reached.is_empty() {
            return None;
        }
        let mut carriers = self.carriers_of(epoch).into_iter().collect::<Option<Vec<GpuSet>>>()?;
        loop {
            let (hit, others): (Vec<_>, Vec<_>) = carriers.into_iter().partition(|own| !are_apart(own, &reached));
            if hit.is_empty() {
                return Some(reached);
            }
            reached.extend(hit.into_iter().flatten());
            carriers = others;
        }
    }

    /// What those clients of a server have that may have several contexts: the living that no earlier fault has left
    /// alone, and those that were there at the first sign of this one, or of one before it that the server has not denied,
    /// or have died of it before anybody knew.
    fn carriers_of(&self, epoch: ServerEpoch) -> Vec<Carried> {
        let is_alive = |pid: Pid, then: &Process| {
            let is_it = |now: &Process| now.server == epoch && now.is(then.key(pid));
            self.clients.process(pid).is_some_and(is_it)
        };
        let living = self.clients.on(epoch).filter(|(_, process)| !process.gpus.is_spared);
        let (incident, before) = (self.faults.incidents.get(&epoch), self.faults.unanswered.get(&epoch));
        let gone = incident.map(|incident| &incident.clients).into_iter().chain(before.map(|before| &before.clients));
        let gone = gone.flatten();
        let gone = gone.filter(|(pid, then)| !is_alive(*pid, then)).map(|(pid, then)| (*pid, then));
        let first = incident.map(|incident| incident.first).into_iter().chain(before.map(|before| before.first)).min();
        let since = first.unwrap_or(self.turn.now).saturating_sub(DEATH_REACH);
        let died = self.faults.deaths.iter().filter(|death| death.process.server == epoch && death.at >= since);
        // Who has ended well in that time had no error.
        let died = died.filter(|death| death.end != End::Exited(0)).map(|death| (death.key.pid, &death.process));
        let all = living.chain(gone).chain(died);
        all.filter(|(pid, process)| self.may_have_several_contexts(*pid, process))
            .map(|(pid, process)| self.gpus_of(pid, process))
            .collect()
    }
}
