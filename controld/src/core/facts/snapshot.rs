//! All that reports are made of, at one moment.

use super::{
    ChannelFacts, ClientFacts, DaemonFacts, DomainFacts, DomainPhase, FuneralFacts, GpuFacts, NamedFacts, RegionFacts,
    ServerFacts, StrangerFacts, WitnessFacts,
};
use crate::core::Suspicion;
use serde::Serialize;

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
}
