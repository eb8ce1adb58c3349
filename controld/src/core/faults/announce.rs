//! Whom a verdict concerns, by name.

use crate::core::Core;
use crate::core::announcement::Announcement;
use crate::core::clients::client::Process;
use crate::core::evidence::ProcessKey;
use crate::core::gpu::Gpu;
use crate::core::ids::{Pid, ServerEpoch};
use crate::core::verdict::{Suspect, SuspectIdentity, Verdict};
use std::collections::BTreeMap;

impl Suspect {
    /// A process as it is known.
    pub(super) fn of(process: ProcessKey, known: &Process) -> Self {
        Self { process, uid: known.uid, identity: SuspectIdentity::of(&known.identity) }
    }
}

impl Core {
    /// Tells of a verdict on a fault of this server.
    pub(super) fn announce(&self, epoch: ServerEpoch, verdict: Verdict) -> Announcement {
        let victims = self.known_of(epoch, &verdict.victims);
        let uuid =
            verdict.gpus.first().map(Gpu::uuid).or(verdict.fault.as_ref().and_then(|fault| fault.gpu.as_deref()));
        let place = uuid.and_then(|uuid| self.gpus.known().place_of(uuid));
        let (index, bus) = place.map_or((None, None), |(index, place)| (Some(index), Some(place.bus.clone())));
        Announcement { victims, index, bus, verdict }
    }

    /// What is known of these clients of a server, the living and those that died lately.
    fn known_of(&self, epoch: ServerEpoch, pids: &[Pid]) -> Vec<Suspect> {
        let dead = self.faults.deaths().filter(|death| death.process.server == epoch);
        let dead = dead.map(|death| (death.key.pid, Suspect::of(death.key, &death.process)));
        let noted =
            self.faults.clients_noted(epoch).map(|(pid, process)| (*pid, Suspect::of(process.key(*pid), process)));
        let known: BTreeMap<Pid, Suspect> = dead.chain(noted).collect();
        pids.iter().filter_map(|pid| known.get(pid).cloned()).collect()
    }
}
