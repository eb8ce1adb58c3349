//! All that reports are made of, at one moment.

use super::{
    ChannelFacts, ClientFacts, DaemonFacts, DomainFacts, DomainPhase, FuneralFacts, GpuFacts, NamedFacts, RegionFacts,
    ServerFacts, StrangerFacts, WitnessFacts,
};
use crate::core::{Entrance, EntranceId, Suspicion};
use remps_proto::admin::module::DEFAULT_NAMESPACE;
use serde::Serialize;
use std::collections::BTreeSet;

/// The whole picture.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Snapshot {
    pub daemon: DaemonFacts,
    /// Its fault domains.
    pub domains: Vec<DomainFacts>,
    /// Its servers, oldest first.
    pub servers: Vec<ServerFacts>,
    /// The servers that somebody has named, and their namespaces, whether or not a process runs for them.
    pub named: Vec<NamedFacts>,
    /// Its clients, and the last few that are gone.
    pub clients: Vec<ClientFacts>,
    pub channels: Vec<ChannelFacts>,
    /// The dead whose descriptors are held.
    pub funerals: Vec<FuneralFacts>,
    pub witnesses: Vec<WitnessFacts>,
    /// The GPUs that servers see, as far as they were looked at.
    pub gpus: Vec<GpuFacts>,
    /// Places of GPUs that may be ill.
    pub suspicions: Vec<Suspicion>,
    /// Who uses them outside MPS; looked for only where compute modes are managed.
    pub strangers: Vec<StrangerFacts>,
    /// The memory that is kept; `vault list` tells it, and not `status`, since there can be thousands.
    #[serde(skip)]
    pub regions: Vec<RegionFacts>,
}

impl Snapshot {
    /// What keeps the daemon from admitting a client now; nothing when it is ready.
    ///
    /// A fault does not, since newcomers wait on their open connections; neither does one domain whose servers keep
    /// failing while another's work.
    pub(crate) fn obstacles(&self) -> Vec<String> {
        let quitting = self.daemon.quitting.then(|| "the daemon is about to end".to_owned());
        let broken = !self.domains.is_empty() && self.domains.iter().all(|domain| domain.phase == DomainPhase::Broken);
        let broken = broken.then(|| "the servers of every domain keep failing".to_owned());
        quitting.into_iter().chain(self.daemon.obstacles.iter().cloned()).chain(broken).collect()
    }

    /// The part of it that belongs to the entrance of a claim, whose server has this name, as if there were nothing else.
    ///
    /// A domain of it has a name that no other has, so whatever has no entrance of its own is found by that. Who is gone
    /// with his server has no such name any more and is not shown; nor is what has no domain.
    #[must_use]
    pub(crate) fn within(mut self, entrance: EntranceId, name: Option<&str>) -> Self {
        let is_of_it = |of: &Option<Entrance>| of.as_ref().is_some_and(|of| of.id == entrance);
        self.domains.retain(|domain| is_of_it(&domain.entrance));
        self.servers.retain(|server| is_of_it(&server.entrance));
        self.named.retain(|named| Some(named.name.as_str()) == name);
        for named in &mut self.named {
            named.namespaces.retain(|namespace| namespace.name == DEFAULT_NAMESPACE);
        }
        let names: BTreeSet<&str> = self.domains.iter().map(|domain| domain.name.as_str()).collect();
        self.clients.retain(|client| names.contains(client.domain.as_str()));
        self.funerals.retain(|funeral| names.contains(funeral.domain.as_str()));
        let processes: BTreeSet<_> = self.clients.iter().map(|client| client.process).collect();
        self.channels.retain(|channel| processes.contains(&channel.process));
        // A server without devices of its own has all.
        let devices: BTreeSet<&String> = self.named.iter().flat_map(|named| &named.devices).collect();
        self.gpus.retain(|gpu| devices.is_empty() || devices.contains(&gpu.uuid));
        self.suspicions.retain(|suspicion| devices.is_empty() || devices.contains(&suspicion.gpu));
        for witness in &mut self.witnesses {
            // They are counted over all claims.
            (witness.attached, witness.refused) = (None, 0);
        }
        self.regions.clear();
        self.strangers.clear();
        self
    }
}
