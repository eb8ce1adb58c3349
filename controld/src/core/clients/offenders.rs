//! Whose like has caused faults: who is refused for a while, and who gets a domain of his own.
//!
//! A culprit is gone after its fault, so what is remembered is its like: the user's processes of the same workload and
//! program, for as long as a fault of it counts or a sanction lasts.

use crate::core::events::Sanction;
use crate::core::identity::Identity;
use crate::core::ids::{DomainId, Uid};
use crate::core::policy::FaultPolicy;
use crate::core::saved::{Saved, SavedServer};
use crate::core::servers::quarantine::{Offender, name};
use crate::core::{Core, Peer};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

/// How many offenders are remembered; the one whose last fault is oldest makes room.
const MAX_OFFENDERS: usize = 1024;

/// When an offender's faults were, oldest first, and what followed.
#[derive(Debug, Default)]
struct Record {
    faults: VecDeque<Duration>,
    quarantined_until: Option<Duration>,
    refused_until: Option<Duration>,
    /// For how long a fault of it counts.
    window: Duration,
    /// The number of its quarantine, if it has had one.
    quarantine: Option<u64>,
}

impl Record {
    /// When it is of no more consequence.
    fn forgotten_at(&self) -> Duration {
        let counts = self.faults.back().map_or(Duration::ZERO, |last| last.saturating_add(self.window));
        [self.quarantined_until, self.refused_until].into_iter().flatten().fold(counts, Duration::max)
    }
}

/// All offenders, and the quarantines that they have been given.
#[derive(Debug)]
pub(in crate::core) struct Offenders {
    all: BTreeMap<Offender, Record>,
    next_quarantine: u64,
}

impl Default for Offenders {
    fn default() -> Self {
        Self { all: BTreeMap::new(), next_quarantine: 1 }
    }
}

impl Offenders {
    /// The number of an offender's quarantine, if it has had one.
    fn quarantine(&self, offender: &Offender) -> Option<u64> {
        self.all.get(offender)?.quarantine
    }

    /// Notes the number of an offender's quarantine.
    fn set_quarantine(&mut self, offender: &Offender, number: u64) {
        if let Some(record) = self.all.get_mut(offender) {
            record.quarantine = Some(number);
        }
    }

    /// Counts a fault and says what follows by the policy.
    pub(in crate::core) fn count(
        &mut self,
        now: Duration,
        offender: Offender,
        policy: &FaultPolicy,
    ) -> Vec<(Sanction, Duration)> {
        if policy.quarantine_after == 0 && policy.refuse_after == 0 {
            return Vec::new();
        }
        if self.all.len() >= MAX_OFFENDERS
            && !self.all.contains_key(&offender)
            && let Some(oldest) =
                self.all.iter().min_by_key(|(_, record)| record.faults.back().copied()).map(|(key, _)| key.clone())
        {
            self.all.remove(&oldest);
        }
        let record = self.all.entry(offender).or_default();
        record.faults.push_back(now);
        record.window = policy.quarantine_window;
        let since = now.saturating_sub(policy.quarantine_window);
        record.faults.retain(|at| *at >= since);
        // No more are needed to see that a limit is reached.
        let enough = policy.quarantine_after.max(policy.refuse_after).max(1) as usize;
        while record.faults.len() > enough {
            record.faults.pop_front();
        }
        let reached = |limit: u32| limit > 0 && record.faults.len() >= limit as usize;
        let mut sanctions = Vec::new();
        if reached(policy.quarantine_after) {
            record.quarantined_until = Some(now.saturating_add(policy.quarantine_window));
            sanctions.push((Sanction::Quarantine, policy.quarantine_window));
        }
        if reached(policy.refuse_after) {
            record.refused_until = Some(now.saturating_add(policy.refuse_for));
            sanctions.push((Sanction::Refuse, policy.refuse_for));
        }
        sanctions
    }

    /// Whether anybody has caused a fault that counts.
    pub(in crate::core) fn are_any(&self) -> bool {
        !self.all.is_empty()
    }

    pub(in crate::core) fn is_quarantined(&self, now: Duration, offender: &Offender) -> bool {
        self.all.get(offender).and_then(|record| record.quarantined_until).is_some_and(|until| until > now)
    }

    /// Whether newcomers of its like are refused or set apart now.
    pub(in crate::core) fn is_punished(&self, now: Duration, uid: Uid, identity: &Identity) -> bool {
        let of_like = self.all.get(&Offender::of(uid, identity));
        let ends = of_like.into_iter().flat_map(|record| [record.quarantined_until, record.refused_until]);
        ends.flatten().any(|until| until > now)
    }

    /// Forgets offenders whose faults count no longer: who a newcomer is then matters as little as before.
    pub(in crate::core) fn advance(&mut self, now: Duration) {
        self.all.retain(|_, record| record.forgotten_at() > now);
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.all.values().map(Record::forgotten_at).min()
    }

    /// The number of the next quarantine.
    pub(in crate::core) fn next_quarantine(&self) -> u64 {
        self.next_quarantine
    }

    /// Those to come get numbers that are none of an earlier daemon's.
    pub(in crate::core) fn restore(&mut self, saved: &Saved, alive: &[SavedServer]) {
        let noted = alive.iter().filter_map(|old| old.group.as_ref()).map(|group| group.quarantine).max();
        self.next_quarantine = saved.next_quarantine.max(noted.unwrap_or_default().saturating_add(1));
    }

    fn new_quarantine(&mut self) -> u64 {
        let number = self.next_quarantine;
        self.next_quarantine = number.saturating_add(1);
        number
    }
}

impl Core {
    /// Why a newcomer is refused, if its like has caused too many faults.
    pub(in crate::core) fn refused_offender(&self, peer: Peer, identity: &Identity) -> Option<String> {
        let now = self.turn.now;
        // A process that has a server keeps it: its contexts live and die together.
        if self.clients.process(peer.pid).is_some() {
            return None;
        }
        let offender = Offender::of(peer.uid, identity);
        let until = self.clients.offenders.all.get(&offender)?.refused_until.filter(|until| *until > now)?;
        Some(format!("{offender} has caused too many faults, for {} s more", (until - now).as_secs() + 1))
    }

    /// The number of an offender's quarantine: the one that it has, else a new one.
    pub(in crate::core) fn quarantine_number(&mut self, offender: &Offender) -> u64 {
        let of_domain = self.servers.quarantine_of(offender);
        let offenders = &mut self.clients.offenders;
        let known = of_domain.or(offenders.quarantine(offender));
        let number = known.unwrap_or_else(|| offenders.new_quarantine());
        offenders.set_quarantine(offender, number);
        if known.is_none() {
            self.turn.log(format!("{} is the quarantine of {offender}", name(number)));
        }
        number
    }

    /// Gives a domain that was taken over the number that was noted of it, if it is a quarantine; 0 is one of a daemon
    /// that gave no numbers.
    pub(in crate::core) fn restore_quarantine(&mut self, id: DomainId, noted: u64) {
        let Some(domain) = self.servers.domain(id) else {
            return;
        };
        if domain.quarantine.is_some() || domain.offender().is_none() {
            return;
        }
        let number = if noted == 0 { self.clients.offenders.new_quarantine() } else { noted };
        self.servers.set_quarantine(id, Some(number));
    }
}
