//! On which GPUs the processes of the world are, and how far a fault of one reaches, as far as the core can know.

use super::*;
use remps_proto::admin::reply::{DeviceRow, PciAddress};

/// What the driver lists of them.
pub(in crate::core::tests) fn devices() -> Vec<Device> {
    let device = |ordinal: &u32| Device {
        row: DeviceRow {
            ordinal: *ordinal,
            pci: PciAddress { domain: 0, bus: 0, device: 6, function: 0 },
            uuid: uuid(*ordinal).to_string(),
            name: "GPU".to_owned(),
            attributes: None,
        },
        multiprocessors: 132,
        major: 9,
    };
    GPUS.iter().map(device).collect()
}

impl World {
    /// Where a process's next context is: on the first GPU, on the second, or on both in turn. One of them says so.
    pub(super) fn next_gpu(&self, pid: u32) -> u32 {
        match pid % 3 {
            0 => u32::try_from(self.accepted.get(&pid).copied().unwrap_or_default() % 2).expect("0 or 1"),
            other => other - 1,
        }
    }

    /// What a process says in its environment: the truth, if it has one GPU and anything to say.
    pub(super) fn claim(pid: u32) -> Option<u32> {
        (!pid.is_multiple_of(3) && pid.is_multiple_of(2)).then(|| pid % 3 - 1)
    }

    /// The GPUs that a process sees.
    pub(super) fn seen(pid: u32) -> BTreeSet<u32> {
        Self::claim(pid).map_or_else(|| BTreeSet::from(GPUS), |gpu| BTreeSet::from([gpu]))
    }

    /// Where the core knows that a process can have contexts; `None` when it can't know.
    pub(super) fn places(&self, pid: u32) -> Option<BTreeSet<u32>> {
        if self.dispatched.iter().any(|(key, (peer, _))| peer.pid == pid && !self.told.contains(key)) {
            return None;
        }
        let own = self.contexts.get(&pid).map(Vec::as_slice).unwrap_or_default();
        if own.is_empty() || self.listed.contains(&pid) {
            return Some(own.iter().copied().collect());
        }
        self.placed.contains(&pid).then(|| Self::seen(pid))
    }

    /// How far the fault of a server reaches, as the core knows; `None` when it can't know.
    pub(super) fn reach(&self, server: ServerEpoch) -> Option<BTreeSet<u32>> {
        let process = self.servers.get(&server).filter(|process| self.has_gpus && !process.is_uncounted)?;
        let mut reached = process.named.clone();
        let under_way = |pid: u32| self.dispatched.values().filter(|(peer, _)| peer.pid == pid).count();
        let has_several = |pid: &u32| self.contexts.get(pid).map_or(0, Vec::len) + under_way(*pid) > 1;
        let carriers: Option<Vec<_>> =
            process.clients.iter().copied().filter(has_several).map(|pid| self.places(pid)).collect();
        let mut carriers = carriers?;
        while let Some(index) = carriers.iter().position(|own| !own.is_disjoint(&reached)) {
            reached.extend(carriers.swap_remove(index));
        }
        Some(reached).filter(|reached| !reached.is_empty())
    }

    /// Whether the core knows that the fault of a server has left a process alone.
    pub(super) fn is_left_alone(&self, server: ServerEpoch, pid: u32) -> bool {
        let (reached, own) = (self.reach(server), self.places(pid));
        reached.zip(own).is_some_and(|(reached, own)| own.is_disjoint(&reached))
    }

    /// Whether a client has contexts there that the server's fault is known to have left alone. Who has none yet goes
    /// elsewhere.
    pub(super) fn has_unharmed(&self, server: ServerEpoch) -> bool {
        self.servers.get(&server).is_some_and(|process| {
            let is_here = |pid: &&u32| self.homes.get(pid) == Some(&server) && self.contexts.contains_key(pid);
            let mut clients = process.clients.iter().filter(is_here).filter(|pid| !process.hit.contains(pid));
            process.faulted && clients.any(|pid| self.is_left_alone(server, *pid))
        })
    }

    /// A process leaves its server for another one: where it has carried a fault that is known stays known.
    pub(super) fn note_where_it_carried(&mut self, pid: u32) {
        if self.contexts.get(&pid).is_none_or(|own| own.len() < 2) {
            return;
        }
        let left = self.servers.iter().filter(|(_, process)| process.clients.contains(&pid));
        let left: Vec<_> = left.map(|(epoch, _)| (*epoch, self.reach(*epoch))).collect();
        for (epoch, reached) in left {
            let process = self.servers.get_mut(&epoch).expect("it is there still");
            process.is_uncounted |= reached.is_none();
            process.named.extend(reached.into_iter().flatten());
        }
    }
}
