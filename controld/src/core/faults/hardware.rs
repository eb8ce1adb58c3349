//! Tells a bad program from a bad GPU: where faults come at one place of a GPU, and no one program or tenant was there at
//! enough of them to have made them all, the place is suspected.
//!
//! A place is a TPC of a GPC, as a line of Xid 13 or 31 names it, or 2 MiB of addresses. NVIDIA's catalogue has the rule
//! for Xid 13 (`WORKFLOW_XID_13`: "Repeat TPC and GPC: RUN_DCGMEUD (possible HW issue)", quoted in NVSentinel issue 270),
//! and leaves out what a node with one tenant need not ask: whether it was one program that runs there again and again. So
//! what explains faults is a program, by its command line, or a tenant, by its pod, container, cgroup or user; of a fault
//! whose culprit nobody knows all clients of that time may be it. Whatever explains all but one of them is the better
//! explanation, and nobody is suspected.
//!
//! It is said and nothing is done: with few tenants chance looks like this as well, and programs that are made alike fault
//! alike. Whoever wants to make a GPU suspect needs two tenants for it. A successor of the daemon begins anew.

use super::blame::{DEATH_REACH, Death};
use super::incident::Pronounced;
use crate::core::Core;
use crate::core::clients::client::Process;
use crate::core::events::JournalEvent;
use crate::core::evidence::ProcessKey;
use crate::core::gpu::Gpu;
use crate::core::ids::ServerEpoch;
use crate::core::verdict::Suspicion;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::DefaultHasher;

/// How long a fault counts.
const REACH: Duration = Duration::from_secs(24 * 60 * 60);
/// Faults that the best explanation must leave unexplained.
const UNEXPLAINED: usize = 2;
/// Places that are remembered, and faults of each; the oldest make room.
const MOST_PLACES: usize = 32;
const MOST_FAULTS: usize = 8;
/// Addresses that belong together: a page of the GPU's memory.
const BLOCK: u64 = 2 << 20;

/// A place on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core) enum Spot {
    /// A processor.
    Processor { gpc: u32, tpc: u32 },
    /// A block of addresses, by its first one.
    Addresses(u64),
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Processor { gpc, tpc } => write!(f, "GPC {gpc}, TPC {tpc}"),
            Self::Addresses(first) => write!(f, "addresses {first:#x} to {:#x}", first + (BLOCK - 1)),
        }
    }
}

impl Spot {
    /// The processor that a line of the kernel names: `(GPC 1, TPC 2, SM 0)`, or `GPC1 GPCCLIENT_T1_4`, where the client
    /// that has met the fault is the first-level cache of the fifth TPC.
    pub(in crate::core) fn of_line(text: &str) -> Option<Self> {
        let number = |after: &str| {
            let rest = text.split_once(after)?.1;
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..digits].parse().ok()
        };
        let of_exception = || Some(Self::Processor { gpc: number("(GPC ")?, tpc: number(", TPC ")? });
        let of_fault = || Some(Self::Processor { gpc: number(" GPC")?, tpc: number("GPCCLIENT_T1_")? });
        of_exception().or_else(of_fault)
    }

    /// Those around an address. None around 0, where every program faults that follows an empty pointer.
    pub(in crate::core) fn of_address(address: u64) -> Option<Self> {
        (address >= BLOCK).then_some(Self::Addresses(address & !(BLOCK - 1)))
    }
}

/// One fault at a place: when it was, and what explains it.
type Fault = (Duration, BTreeSet<u64>);

/// The faults of each place.
#[derive(Debug, Default)]
pub(super) struct Suspicions {
    places: BTreeMap<(String, Spot), Vec<Fault>>,
    /// The places that are known to be suspect, and until when that is.
    told: BTreeMap<(String, Spot), Duration>,
}

impl Suspicions {
    /// A fault at a place, and what explains it.
    fn note(&mut self, now: Duration, gpu: &str, spot: Spot, by: BTreeSet<u64>) {
        let key = (gpu.to_owned(), spot);
        if self.places.len() >= MOST_PLACES && !self.places.contains_key(&key) {
            let latest = |faults: &Vec<Fault>| faults.last().map(|(at, _)| *at);
            let oldest = self.places.iter().min_by_key(|(_, faults)| latest(faults)).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.places.remove(&key));
        }
        let faults = self.places.entry(key).or_default();
        faults.retain(|(at, _)| *at + REACH > now);
        if faults.len() >= MOST_FAULTS {
            faults.remove(0);
        }
        faults.push((now, by));
    }

    /// What is suspected now.
    fn all(&self, now: Duration) -> impl Iterator<Item = (&(String, Spot), Suspicion)> {
        self.places.iter().filter_map(move |(key, faults)| {
            let faults: Vec<&BTreeSet<u64>> =
                faults.iter().filter(|(at, _)| *at + REACH > now).map(|(_, by)| by).collect();
            let explained = |by: &u64| faults.iter().filter(|fault| fault.contains(by)).count();
            let best = faults.iter().copied().flatten().map(explained).max().unwrap_or_default();
            let (gpu, place) = (key.0.clone(), key.1.to_string());
            let is_suspect = faults.len() >= best + UNEXPLAINED && best > 0;
            is_suspect.then_some((key, Suspicion { gpu, place, faults: faults.len() }))
        })
    }

    /// What is suspected since this was asked last.
    fn newly(&mut self, now: Duration) -> Vec<Suspicion> {
        self.told.retain(|_, until| *until > now);
        let new: Vec<_> = self.all(now).filter(|(key, _)| !self.told.contains_key(*key)).collect();
        let new: Vec<_> = new.into_iter().map(|(key, suspicion)| (key.clone(), suspicion)).collect();
        let tell = |(key, suspicion)| {
            self.told.insert(key, now + REACH);
            suspicion
        };
        new.into_iter().map(tell).collect()
    }
}

/// What explains a fault of a client: its program, and its tenant.
fn explanations(process: &Process) -> [u64; 2] {
    let identity = &process.identity;
    let hashed = |what: &str, of: &dyn fmt::Debug| {
        let mut hasher = DefaultHasher::new();
        (what, format!("{of:?}")).hash(&mut hasher);
        hasher.finish()
    };
    let tenant = identity.pod.as_ref().or(identity.container.as_ref());
    let tenant = tenant.or(Some(&identity.cgroup).filter(|cgroup| !cgroup.is_empty()));
    [hashed("program", &identity.command), hashed("tenant", &(tenant, process.uid))]
}

impl Core {
    /// Counts a fault, which has its verdict, at the places that are known of it, each once. Gives what is suspected of
    /// its GPU.
    pub(super) fn suspect_hardware(&mut self, epoch: ServerEpoch, culprit: Option<ProcessKey>) -> Option<Suspicion> {
        let now = self.turn.now;
        let incident = self.faults.incidents.get_mut(&epoch)?;
        let of_fault = || incident.fault.as_ref().and_then(|fault| fault.gpu.as_deref());
        let gpu = incident.gpus.first().map(Gpu::uuid).or_else(of_fault)?.to_owned();
        let spots = core::mem::take(&mut incident.spots);
        let clients = incident.clients.iter().filter(|(pid, _)| culprit.is_none_or(|culprit| culprit.pid == *pid));
        let mut by: BTreeSet<u64> = clients.flat_map(|(_, process)| explanations(process)).collect();
        let since = incident.first.saturating_sub(DEATH_REACH);
        let is_it = |death: &&Death| {
            let is_meant = culprit.map_or(death.died_at >= since, |culprit| culprit == death.key);
            death.process.server == epoch && is_meant
        };
        by.extend(self.faults.deaths.iter().filter(is_it).flat_map(|death| explanations(&death.process)));
        for spot in spots {
            self.faults.suspicions.note(now, &gpu, spot, by.clone());
        }
        for Suspicion { gpu, place, faults } in self.faults.suspicions.newly(now) {
            self.turn.record(JournalEvent::HardwareSuspected { gpu, place, faults });
        }
        let of_gpu = self.faults.suspicions.all(now).map(|(_, suspicion)| suspicion).filter(|known| known.gpu == gpu);
        of_gpu.max_by_key(|known| known.faults)
    }

    /// A line of the kernel names a place after the verdict.
    pub(super) fn suspect_late(&mut self, epoch: ServerEpoch) {
        let judged = self.faults.incidents.get(&epoch).and_then(|incident| incident.verdict);
        if let Some(Pronounced { culprit, .. }) = judged {
            let _ = self.suspect_hardware(epoch, culprit);
        }
    }

    /// What is suspected now.
    pub(in crate::core) fn suspicions(&self) -> Vec<Suspicion> {
        self.faults.suspicions.all(self.turn.now).map(|(_, suspicion)| suspicion).collect()
    }
}

#[cfg(test)]
impl Core {
    /// The faults that count at any place.
    pub(in crate::core) fn faults_counted(&self) -> usize {
        self.faults.suspicions.places.values().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "GPU-a";
    const SPOT: Spot = Spot::Processor { gpc: 1, tpc: 2 };

    fn suspected(faults: &[&[u64]]) -> usize {
        let mut suspicions = Suspicions::default();
        for (at, by) in (0..).zip(faults) {
            suspicions.note(Duration::from_secs(at), GPU, SPOT, by.iter().copied().collect());
        }
        let now = Duration::from_secs(faults.len() as u64);
        let first = suspicions.newly(now);
        assert_eq!(suspicions.newly(now), [], "it is told once");
        first.first().map_or(0, |suspicion| suspicion.faults)
    }

    #[test]
    fn lines_name_processors() {
        let of_line = |text| Spot::of_line(text).map(|spot| spot.to_string());
        let exception = "Graphics SM Warp Exception on (GPC 1, TPC 2, SM 0): Misaligned Address";
        assert_eq!(of_line(exception), Some("GPC 1, TPC 2".to_owned()));
        let fault = "intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_4 faulted @ 0x0_00000000.";
        assert_eq!(of_line(fault), Some("GPC 1, TPC 4".to_owned()));
        for text in ["MMU Fault: ENGINE CE2 HUBCLIENT_CE0 faulted", "(GPC x, TPC 2", "", "(GPC 99999999999, TPC 1"] {
            assert_eq!(of_line(text), None, "{text}");
        }
        assert_eq!(Spot::of_address(0x10), None);
        assert_eq!(Spot::of_address(0x7f00_0012_3456), Spot::of_address(0x7f00_001f_ffff));
    }

    #[test]
    fn one_program_that_faults_again_and_again_is_no_sign_of_a_bad_gpu() {
        assert_eq!(suspected(&[&[1], &[1], &[1], &[1], &[1]]), 0);
        // Nor with another one's fault by chance, nor where it may always have been it.
        assert_eq!(suspected(&[&[1], &[1], &[2], &[1]]), 0);
        assert_eq!(suspected(&[&[1, 2], &[1, 3], &[1, 4]]), 0);
        // Nor is one tenant's many programs: the tenant, 9, explains them.
        assert_eq!(suspected(&[&[1, 9], &[2, 9], &[3, 9]]), 0);
    }

    #[test]
    fn several_programs_that_fault_at_one_place_are() {
        assert_eq!(suspected(&[&[1], &[2], &[3]]), 3);
        assert_eq!(suspected(&[&[1], &[2], &[1], &[2]]), 4);
        assert_eq!(suspected(&[&[1, 2], &[3, 4], &[5]]), 3);
        // Of clients of whom nothing is known nothing follows.
        assert_eq!(suspected(&[&[], &[], &[]]), 0);
    }

    #[test]
    fn what_was_a_day_ago_counts_no_more_and_places_without_end_take_a_bounded_room() {
        let mut suspicions = Suspicions::default();
        for by in 1..=3 {
            suspicions.note(Duration::ZERO, GPU, SPOT, BTreeSet::from([by]));
        }
        assert_eq!(suspicions.all(REACH - Duration::from_secs(1)).count(), 1);
        assert_eq!(suspicions.all(REACH).count(), 0);
        for number in 0..10_000 {
            let spot = Spot::Addresses(number * BLOCK);
            suspicions.note(Duration::from_secs(number), GPU, spot, BTreeSet::from([number]));
        }
        assert_eq!(suspicions.places.len(), MOST_PLACES);
    }
}
