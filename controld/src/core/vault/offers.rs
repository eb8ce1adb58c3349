//! What is offered: the memory of a name, for a successor to map before it is its own, while the owner ends.
//!
//! ```text
//!          the owner ends, or its work is lost         at rest, and asked for again
//!   owned ─────────────────────────────────► offered ───────────────────────────────► given
//!                                              │ a region comes or goes, or has another owner; the owner goes on
//!                                              └────────────────────────────────────► withdrawn
//! ```
//! An offer gives nobody anything: its regions stay the owner's, and who has mapped them may use them only when they are
//! given, which takes the proof that it always took. It is good for exactly the regions that it was made of. Mapped memory
//! stays although its owner frees it, so nothing is offered while the owner can be expected to go on, and an offer is
//! withdrawn with the first region that is freed.
//!
//! One process has a name's offer at a time, and is waited for a little when the name could be given: what it has
//! mapped would be in vain. That is a preference, no proof of anything.

use super::{Caller, Key, ProcessKey, RegionId, Standing, Vault};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

/// How long others wait for whom something was offered, from then on. To map 64 GiB takes less than a tenth of it.
const PREFERENCE: Duration = Duration::from_secs(1);

/// Why the owner of a name is expected to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// It has ended, or is past doing anything else.
    Ends,
    /// A fault has cost it its contexts, and it does not say that it goes on after one.
    Lost,
}

/// What one process may map.
#[derive(Debug, Clone, Copy)]
struct Offer {
    number: u64,
    to: ProcessKey,
    owner: ProcessKey,
    sign: Sign,
    since: Duration,
}

/// All offers, and what is known of owners for them.
#[derive(Debug, Default)]
pub(super) struct Offers {
    open: BTreeMap<Key, Offer>,
    /// Owners that have not ended yet, and are past doing anything else.
    ending: BTreeSet<ProcessKey>,
    /// Owners whose work was lost and who have done something all the same.
    goes_on: BTreeSet<ProcessKey>,
}

impl Offers {
    pub(super) const fn new() -> Self {
        Self { open: BTreeMap::new(), ending: BTreeSet::new(), goes_on: BTreeSet::new() }
    }

    /// What the offer of a name was made of is no longer so.
    pub(super) fn void(&mut self, key: &Key) {
        if let Some(offer) = self.open.remove(key)
            && offer.sign == Sign::Lost
        {
            self.goes_on.insert(offer.owner);
        }
    }

    /// A process has ended: it neither has an offer any more, nor goes on.
    pub(super) fn forget(&mut self, process: ProcessKey) {
        self.open.retain(|_, offer| offer.to != process);
        self.ending.remove(&process);
        self.goes_on.remove(&process);
    }
}

impl Vault {
    /// An owner has not ended yet, and is past doing anything else.
    pub(crate) fn ends(&mut self, process: ProcessKey) {
        if self.has(process) {
            self.offers.ending.insert(process);
        }
    }

    /// Whether it is known to.
    pub(crate) fn is_ending(&self, process: ProcessKey) -> bool {
        self.offers.ending.contains(&process)
    }

    /// Why the owner of a name is expected to end, if it is. `is_lost` says whether a fault has cost a process its work.
    pub(crate) fn sign(&self, caller: &Caller, name: &str, is_lost: impl Fn(ProcessKey) -> bool) -> Option<Sign> {
        match self.standing(caller, name) {
            Standing::Free(_) => Some(Sign::Ends),
            Standing::Taken => match self.owner_of_name(caller, name)? {
                owner if self.is_ending(owner) => Some(Sign::Ends),
                owner => is_lost(owner).then_some(Sign::Lost),
            },
            Standing::Own | Standing::Nobody => None,
        }
    }

    /// Looks at a name's offer anew: one that was made because of lost work is withdrawn when that is no longer so.
    pub(crate) fn review_offer(&mut self, caller: &Caller, name: &str, sign: Option<Sign>) {
        let key = self.key(caller, name);
        match (self.offers.open.get_mut(&key), sign) {
            (Some(offer), Some(sign)) => offer.sign = sign,
            (Some(Offer { sign: Sign::Lost, .. }), None) => self.offers.void(&key),
            (Some(_) | None, _) => {}
        }
    }

    /// Offers the caller all that there is under a name, in place of an offer that it has had; `None` where there is
    /// nothing, or another process has the offer, or the owner goes on in spite of the sign.
    pub(crate) fn offer(
        &mut self,
        now: Duration,
        caller: &Caller,
        name: &str,
        sign: Sign,
        number: u64,
    ) -> Option<Vec<RegionId>> {
        let key = self.key(caller, name);
        let ids: Vec<RegionId> = self.by_name.get(&key)?.iter().copied().collect();
        let owner = self.owner_of_name(caller, name)?;
        if sign == Sign::Lost && self.offers.goes_on.contains(&owner) || self.is_promised(now, caller, name) {
            return None;
        }
        self.offers.open.insert(key, Offer { number, to: caller.process, owner, sign, since: now });
        Some(ids)
    }

    /// Whether this offer of a name was made to the caller and is good.
    pub(crate) fn is_offered(&self, caller: &Caller, name: &str, number: u64) -> bool {
        let offer = self.offers.open.get(&self.key(caller, name));
        offer.is_some_and(|offer| offer.to == caller.process && offer.number == number)
    }

    /// Whether something is offered to a process, whose end would be the end of that.
    pub(crate) fn has_offer(&self, process: ProcessKey) -> bool {
        self.offers.open.values().any(|offer| offer.to == process)
    }

    /// Whether somebody else is waited for who has an offer of this name.
    pub(crate) fn is_promised(&self, now: Duration, caller: &Caller, name: &str) -> bool {
        let offer = self.offers.open.get(&self.key(caller, name));
        offer.is_some_and(|offer| offer.to != caller.process && now < offer.since.saturating_add(PREFERENCE))
    }

    /// When somebody need not be waited for any more, if that is still to come.
    pub(crate) fn promise_ends(&self, now: Duration) -> Option<Duration> {
        self.offers.open.values().map(|offer| offer.since.saturating_add(PREFERENCE)).filter(|at| *at > now).min()
    }
}
