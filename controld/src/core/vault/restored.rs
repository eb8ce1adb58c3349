//! What an earlier daemon has kept: put back, and brought to what holds at every moment.

use super::{Caller, Kept, RegionId, Vault};
use crate::core::vault::Key;
use std::collections::BTreeMap;

impl Vault {
    /// Puts back what an earlier daemon kept, whatever the quotas are now.
    pub(crate) fn restore(&mut self, id: RegionId, kept: Kept) {
        self.put(id, kept);
    }

    /// Ends adoptions that an earlier daemon had begun and not finished: where a name has an owner that lives, all
    /// regions of the name are its own, because a name has one owner. Returns those that have changed hands.
    pub(crate) fn finish_adoptions(&mut self) -> Vec<RegionId> {
        let mut moved = Vec::new();
        let in_entries: BTreeMap<Key, Caller> = self.living_entries().into_iter().collect();
        for (name, ids) in self.by_name.clone() {
            let living = ids.iter().filter_map(|id| self.kept.get(id)).find(|kept| kept.until.is_none());
            let Some(owner) = in_entries.get(&name).or(living.map(|kept| &kept.owner)).cloned() else { continue };
            if self.entry_owner(&name).is_some_and(|in_entries| in_entries != owner.process) {
                self.give_entry(&name, &owner);
            }
            let strays: Vec<RegionId> =
                ids.into_iter().filter(|id| self.kept[id].owner.process != owner.process).collect();
            moved.extend(strays.iter().filter(|id| self.give(**id, &owner)));
        }
        moved
    }

    /// Takes out what no process can ask for any more, after an earlier daemon has missed its owner's end.
    pub(crate) fn remove_nameless_orphans(&mut self) -> Vec<RegionId> {
        let is_lost = |kept: &Kept| kept.until.is_some() && kept.region.name.is_empty();
        let lost: Vec<RegionId> = self.kept.iter().filter(|(_, kept)| is_lost(kept)).map(|(id, _)| *id).collect();
        for id in &lost {
            self.remove(*id);
        }
        lost
    }
}
