//! The vault's rules: whose each kept region of GPU memory is, how much a user may keep, and until when.
//!
//! ```text
//!                 its owner ends
//!   escrow ─► owned ─────────────► orphaned, if it has a name ─── its time is over ──► closed
//!               ▲  │                 │        │
//!               │  └─ release ─► closed       └─ discard ─► closed
//!               └──── adopt, by a later process of the same user
//! ```
//! A region without a name is closed with its owner's end: nobody could ask for it. At any time all regions of a name
//! belong to one process, dead or alive, and are adopted all at once. Nothing of one user is ever seen, counted against
//! or given to another, root included: root has other ways. Nor is what belongs to one container seen by or given to
//! another of the same user, unless its owner named it so ([`scope`](Scope)).
//!
//! While its owner ends, a region may be [offered](offers) to who waits for the name, to be mapped and not used.
//!
//! Each name has an entry ([`NameEntry`]): how far its owner has come, and which server it was on.
//!
//! Pure: the driver has the descriptors, and does what this says.
//!
//! # Invariants
//! Every region has an owner that lives or a deadline · what a user has is within its quota at every escrow · a name has
//! one owner · a process has no two regions of one key.

mod names;
mod offers;
mod policy;
mod restored;
mod scope;
#[cfg(test)]
mod tests;

pub(crate) use names::{NameEntry, NameId, Predecessor, Standing};
pub(crate) use offers::Sign;
pub(crate) use policy::VaultPolicy;
pub(crate) use scope::{Reach, Scope};

use super::evidence::ProcessKey;
use super::ids::Uid;
use super::place::Place;
use core::time::Duration;
use remps_proto::shim::{Failure, Region};
use std::collections::{BTreeMap, BTreeSet};

/// A region, by a number that no other gets while a holder lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RegionId(pub u64);

/// Who asks, as the kernel says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub process: ProcessKey,
    pub uid: Uid,
    /// Its cgroup's path; empty when not known.
    pub cgroup: String,
    /// Where it stands.
    pub place: Place,
}

/// A region that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Whose it is, or was.
    pub owner: Caller,
    /// What it is, as its first owner said.
    pub region: Region,
    /// When it is closed; `None` while its owner lives.
    pub until: Option<Duration>,
    /// Among whom its name is looked for.
    pub scope: Scope,
}

/// A sum over regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    /// How many.
    pub regions: usize,
    pub bytes: u64,
}

impl Usage {
    fn add(&mut self, bytes: u64) {
        self.regions += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn exceeds(self, regions: usize, bytes: Option<u64>) -> bool {
        self.regions > regions || bytes.is_some_and(|most| self.bytes > most)
    }
}

/// A name and among whom it is looked for.
type Key = (Scope, String);

/// Everything that is kept.
#[derive(Debug)]
pub(crate) struct Vault {
    policy: VaultPolicy,
    kept: BTreeMap<RegionId, Kept>,
    by_key: BTreeMap<(ProcessKey, u64), RegionId>,
    by_name: BTreeMap<Key, BTreeSet<RegionId>>,
    names: names::Names,
    offers: offers::Offers,
    next: u64,
}

impl Vault {
    /// An empty one.
    pub(crate) const fn new(policy: VaultPolicy) -> Self {
        Self {
            policy,
            kept: BTreeMap::new(),
            by_key: BTreeMap::new(),
            by_name: BTreeMap::new(),
            names: names::Names::new(),
            offers: offers::Offers::new(),
            next: 1,
        }
    }

    /// The rules in force.
    pub(crate) const fn policy(&self) -> &VaultPolicy {
        &self.policy
    }

    /// Keeps a region; the same one again is kept under the same number, with its new descriptor.
    ///
    /// # Errors
    /// `SWITCHED_OFF`, `KEY_IN_USE`, `NAME_IN_USE`, `QUOTA`.
    pub(crate) fn escrow(&mut self, caller: &Caller, region: Region) -> Result<RegionId, Failure> {
        if !self.policy.enabled {
            return Err(Failure::SWITCHED_OFF);
        }
        if let Some(id) = self.by_key.get(&(caller.process, region.key)) {
            let Some(kept) = self.kept.get(id).filter(|kept| kept.region == region) else {
                return Err(Failure::KEY_IN_USE);
            };
            // Its descriptor is another one from now on.
            self.offers.void(&(kept.scope.clone(), region.name));
            return Ok(*id);
        }
        let scope = self.key(caller, &region.name).0;
        if self.owner_of_name(caller, &region.name).is_some_and(|owner| owner != caller.process) {
            return Err(Failure::NAME_IN_USE);
        }
        let mut all = self.usage(|_| true);
        let mut own = self.usage(|kept| kept.owner.uid == caller.uid);
        all.add(region.bytes);
        own.add(region.bytes);
        let VaultPolicy { user_bytes, user_regions, bytes, regions, .. } = self.policy;
        if own.exceeds(user_regions, user_bytes) || all.exceeds(regions, bytes) {
            return Err(Failure::QUOTA);
        }
        let id = RegionId(self.next);
        self.put(id, Kept { owner: caller.clone(), region, until: None, scope });
        Ok(id)
    }

    /// Takes a region of the caller out.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub(crate) fn release(&mut self, caller: &Caller, key: u64) -> Result<(RegionId, Kept), Failure> {
        let id = *self.by_key.get(&(caller.process, key)).ok_or(Failure::NOT_FOUND)?;
        Ok((id, self.remove(id).ok_or(Failure::NOT_FOUND)?))
    }

    /// Takes a region out whoever has it: it could not be made safe.
    pub(crate) fn remove(&mut self, id: RegionId) -> Option<Kept> {
        let kept = self.kept.remove(&id)?;
        self.by_key.remove(&(kept.owner.process, kept.region.key));
        let name = (kept.scope.clone(), kept.region.name.clone());
        self.offers.void(&name);
        if let Some(ids) = self.by_name.get_mut(&name) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_name.remove(&name);
                self.tidy_entry(&name);
            }
        }
        Some(kept)
    }

    /// The caller's own regions.
    pub(crate) fn of_process(&self, process: ProcessKey) -> impl Iterator<Item = RegionId> {
        self.by_key.range((process, 0)..=(process, u64::MAX)).map(|(_, id)| *id)
    }

    /// Gives the caller all regions of a name at once, or tells those that it has of it already.
    ///
    /// # Errors
    /// `NOT_FOUND`, `OWNER_LIVES`, and `KEY_IN_USE` when the caller has other regions with the same keys.
    pub(crate) fn adopt(&mut self, caller: &Caller, name: &str) -> Result<Vec<RegionId>, Failure> {
        let ids = self.orphans(caller, name)?;
        for id in &ids {
            let holder = self.by_key.get(&(caller.process, self.kept[id].region.key));
            if holder.is_some_and(|other| other != id) {
                return Err(Failure::KEY_IN_USE);
            }
        }
        // Two dead owners can have left the same key under one name when an adoption of theirs was cut short.
        let keys: BTreeSet<u64> = ids.iter().map(|id| self.kept[id].region.key).collect();
        if keys.len() != ids.len() {
            return Err(Failure::KEY_IN_USE);
        }
        self.settle(caller, name);
        self.give_entry(&self.key(caller, name), caller);
        for id in &ids {
            self.give(*id, caller);
        }
        Ok(ids)
    }

    /// Takes all regions of a name out.
    ///
    /// # Errors
    /// `NOT_FOUND`, `OWNER_LIVES`.
    pub(crate) fn discard(&mut self, caller: &Caller, name: &str) -> Result<Vec<(RegionId, Kept)>, Failure> {
        let ids = self.orphans(caller, name)?;
        self.discard_entry(&self.key(caller, name));
        Ok(ids.into_iter().filter_map(|id| Some((id, self.remove(id)?))).collect())
    }

    /// The regions of a name that has no living owner but the caller.
    fn orphans(&self, caller: &Caller, name: &str) -> Result<Vec<RegionId>, Failure> {
        match self.standing(caller, name) {
            Standing::Nobody => Err(Failure::NOT_FOUND),
            Standing::Taken => Err(Failure::OWNER_LIVES),
            Standing::Own | Standing::Free(_) => {
                let ids = self.by_name.get(&self.key(caller, name));
                Ok(ids.into_iter().flatten().copied().collect())
            }
        }
    }

    /// A process has ended: its named regions get a deadline. Returns those, and those that are taken out at once.
    pub(crate) fn ended(&mut self, now: Duration, process: ProcessKey) -> (Vec<RegionId>, Vec<(RegionId, Kept)>) {
        let ids: Vec<RegionId> = self.of_process(process).collect();
        let (named, nameless): (Vec<_>, Vec<_>) = ids.into_iter().partition(|id| !self.kept[id].region.name.is_empty());
        let until = now.saturating_add(self.policy.ttl);
        for id in &named {
            if let Some(kept) = self.kept.get_mut(id) {
                kept.until.get_or_insert(until);
            }
        }
        let closed = nameless.into_iter().filter_map(|id| Some((id, self.remove(id)?))).collect();
        self.offers.forget(process);
        self.entries_of_ended(process, until);
        (named, closed)
    }

    /// When the next region's time is over.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.kept.values().filter_map(|kept| kept.until).chain(self.entries_deadline()).min()
    }

    /// Takes out the regions whose time is over.
    pub(crate) fn expire(&mut self, now: Duration) -> Vec<(RegionId, Kept)> {
        let due: Vec<RegionId> =
            self.kept.iter().filter(|(_, kept)| kept.until.is_some_and(|at| at <= now)).map(|(id, _)| *id).collect();
        self.expire_entries(now);
        due.into_iter().filter_map(|id| Some((id, self.remove(id)?))).collect()
    }

    /// A region.
    pub(crate) fn get(&self, id: RegionId) -> Option<&Kept> {
        self.kept.get(&id)
    }

    /// All regions, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RegionId, &Kept)> {
        self.kept.iter().map(|(id, kept)| (*id, kept))
    }

    /// The sum over some regions.
    pub(crate) fn usage(&self, counts: impl Fn(&Kept) -> bool) -> Usage {
        let mut usage = Usage::default();
        self.kept.values().filter(|kept| counts(kept)).for_each(|kept| usage.add(kept.region.bytes));
        usage
    }

    /// Whether a process has a region or a name.
    pub(crate) fn has(&self, process: ProcessKey) -> bool {
        self.of_process(process).next().is_some() || self.has_entry(process)
    }

    /// Whose a name is, alive or not.
    pub(crate) fn owner_of_name(&self, caller: &Caller, name: &str) -> Option<ProcessKey> {
        if name.is_empty() {
            return None;
        }
        let key = self.key(caller, name);
        let ids = self.by_name.get(&key);
        let of_region = ids.and_then(|ids| ids.first()).and_then(|id| self.kept.get(id)).map(|kept| kept.owner.process);
        of_region.or_else(|| self.entry_owner(&key))
    }

    fn put(&mut self, id: RegionId, kept: Kept) {
        self.next = self.next.max(id.0 + 1);
        self.by_key.insert((kept.owner.process, kept.region.key), id);
        if !kept.region.name.is_empty() {
            let name = (kept.scope.clone(), kept.region.name.clone());
            self.offers.void(&name);
            self.by_name.entry(name).or_default().insert(id);
        }
        self.kept.insert(id, kept);
    }

    /// Makes a region somebody's; whether it could be, which another region of the new owner with this key prevents.
    fn give(&mut self, id: RegionId, owner: &Caller) -> bool {
        let Some(kept) = self.kept.get_mut(&id) else { return false };
        if self.by_key.get(&(owner.process, kept.region.key)).is_some_and(|other| *other != id) {
            return false;
        }
        self.by_key.remove(&(kept.owner.process, kept.region.key));
        self.by_key.insert((owner.process, kept.region.key), id);
        self.offers.void(&(kept.scope.clone(), kept.region.name.clone()));
        kept.owner = owner.clone();
        kept.until = None;
        true
    }
}
