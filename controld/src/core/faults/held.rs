//! How much GPU memory the dead hold, and what is done when it is too much.
//!
//! NVIDIA's driver lists a dead client no longer and counts its memory in the whole alone. So what the dead hold is what
//! is in use and no process on the GPU has, less what that was when nobody's copies were held: 16 MiB on an H200, and
//! 613 MiB more for each client that died with nothing but its context. It is looked at [`LOOK_AFTER`] a death, once for
//! all that died meanwhile. What has come is shared out evenly among them if they are one user's; of several users' it is
//! not known whose it is, and nobody is charged with another one's. Where the management library does not tell
//! (there is none, it lists no processes in a container, a GPU is divided), or nothing was known of before, a dead client
//! is told of as *unknown* and taken for [`TAKEN_FOR`]: so its user's dead are bounded by their number.
//!
//! What a client had while it lived would not do: the driver tells it of the living alone, so it would have to be asked
//! again and again in an idle daemon.
//!
//! When there is too much, a hold is ended: of the user who is over his bound, or of the one who has most where all
//! together are over theirs, so that nobody's crashes take another user's holds. Of his it is first one on a server that
//! has no other client, which harms nobody, and then the one that has been held longest. What that costs: if the work of
//! that client has not ended by then, it faults, and every client of its server is lost.

use super::Faults;
use super::funeral::Funeral;
use crate::core::Policy;
use crate::core::effect::Turn;
use crate::core::events::{FuneralEnd, JournalEvent};
use crate::core::evidence::ProcessKey;
use crate::core::ids::{Pid, Uid};
use crate::core::servers::server::Server;
use crate::core::{Core, Effect};
use core::time::Duration;
use std::collections::BTreeMap;

/// How long after a death the GPUs are looked at: the driver has taken the process out of its list by then.
const LOOK_AFTER: Duration = Duration::from_millis(150);
/// How long it takes until memory is free whose copies were closed: 16 to 184 ms on an H200.
const FREED_AFTER: Duration = Duration::from_secs(1);
/// What a dead client is taken for whose memory is not known, in bytes: what one has on an H200 that has allocated nothing.
pub(super) const TAKEN_FOR: u64 = 613 << 20;
/// More than the driver itself needs for the contexts of a full server, and less than a client has.
const NOTICEABLE: u64 = 64 << 20;

/// The memory of a GPU, as a look at it has found it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct GpuMemory {
    /// What it has, in bytes.
    pub total: u64,
    /// What of it is in use.
    pub used: u64,
    /// What the processes on it have; `None` where that is not told of each of them.
    pub of_processes: Option<u64>,
    /// Those processes.
    pub pids: Vec<Pid>,
}

/// What is known of the dead's memory.
#[derive(Debug, Default)]
pub(in crate::core) struct HeldMemory {
    /// Whether anybody looks: not before the driver says so.
    is_watched: bool,
    look_at: Option<Duration>,
    /// Since when a look is under way.
    looking_since: Option<Duration>,
    /// What no process had when nothing was held, in bytes.
    base: Option<u64>,
    total: Option<u64>,
    /// What the dead hold together, while that is as it was seen.
    together: Option<u64>,
    /// What of it nobody can be told to hold.
    unassigned: u64,
    /// Whether one of those who may hold that is gone.
    is_unassigned_less: bool,
    /// When copies were closed last.
    released_at: Option<Duration>,
    /// Why nothing is known, as it was said last.
    unknown: Option<String>,
    /// What an earlier daemon knew of those whose copies it held.
    before: BTreeMap<ProcessKey, u64>,
}

impl HeldMemory {
    /// As an earlier daemon has left it.
    pub(in crate::core) fn restored(base: Option<u64>, before: BTreeMap<ProcessKey, u64>) -> Self {
        Self { base, before, ..Self::default() }
    }

    /// What no process had when nothing was held.
    pub(super) fn base(&self) -> Option<u64> {
        self.base
    }

    /// What an earlier daemon knew of a dead client, once.
    pub(super) fn take_known(&mut self, process: ProcessKey) -> Option<u64> {
        self.before.remove(&process)
    }
}

impl Faults {
    /// The GPUs can be looked at from now on.
    pub(in crate::core) fn hold_is_watched(&mut self, now: Duration) {
        self.held.is_watched = true;
        if !self.funerals.is_empty() {
            self.held.look_at.get_or_insert(now + LOOK_AFTER);
        }
    }

    /// Somebody's copies are closed.
    pub(super) fn hold_ends(&mut self, now: Duration, was_of_unassigned: bool) {
        self.held.released_at = Some(now);
        self.held.together = None;
        self.held.is_unassigned_less |= was_of_unassigned;
        if self.held.is_watched {
            self.held.look_at = Some(now + FREED_AFTER);
        }
    }

    pub(super) fn held_deadline(&self) -> Option<Duration> {
        self.held.look_at.filter(|_| self.held.looking_since.is_none())
    }

    pub(in crate::core) fn advance_held(&mut self, turn: &mut Turn) {
        let now = turn.now;
        if self.held_deadline().is_some_and(|at| at <= now) {
            self.held.look_at = None;
            self.held.looking_since = Some(now);
            turn.push(Effect::LookAtMemory);
        }
    }

    /// Nobody's copies are held, and this is in use all the same.
    fn nothing_is_held(&mut self, turn: &mut Turn, nobodys: u64) {
        let more = self.held.base.map_or(0, |base| nobodys.saturating_sub(base));
        if more >= NOTICEABLE {
            turn.log(format!(
                "{} MiB of GPU memory are in use that no process on the GPUs has, and no copies are held: something \
                 else keeps them",
                more >> 20
            ));
        }
        if self.held.base.replace(nobodys) != Some(nobodys) {
            turn.save();
        }
    }

    /// The dead hold this much together: what nobody was known to hold is of those who have died since.
    fn share_out(&mut self, turn: &mut Turn, since: Duration, held: u64) {
        let now = turn.now;
        let known: u64 = self.funerals.values().filter_map(|funeral| funeral.pinned).sum();
        let is_new = |funeral: &Funeral| !funeral.is_looked_at && funeral.since + LOOK_AFTER <= since;
        let new: Vec<(ProcessKey, Uid)> = self
            .funerals
            .iter()
            .filter(|(_, funeral)| is_new(funeral))
            .map(|(key, funeral)| (*key, funeral.process.uid))
            .collect();
        let is_one_users = new.windows(2).all(|pair| pair[0].1 == pair[1].1) && !self.held.is_unassigned_less;
        let rest = held.saturating_sub(known);
        let share = rest.saturating_sub(self.held.unassigned) / u64::try_from(new.len()).unwrap_or(1).max(1);
        if !is_one_users || new.is_empty() {
            self.held.unassigned = rest;
            self.held.is_unassigned_less = false;
        }
        for (key, uid) in new {
            let Some(funeral) = self.funerals.get_mut(&key) else {
                continue;
            };
            funeral.is_looked_at = true;
            if is_one_users {
                funeral.pinned = Some(share);
                let domain = funeral.domain.clone();
                turn.record(JournalEvent::FuneralMeasured { process: key, uid, domain, pinned_bytes: share });
                turn.save();
            }
        }
        self.held.together = Some(held);
        if self.funerals.values().any(|funeral| !funeral.is_looked_at) {
            self.held.look_at.get_or_insert(now + LOOK_AFTER);
        }
    }

    /// What the dead hold by what is known or assumed, by user.
    fn held_by_users(&self) -> BTreeMap<Uid, u64> {
        let mut held: BTreeMap<Uid, u64> = BTreeMap::new();
        for funeral in self.funerals.values() {
            *held.entry(funeral.process.uid).or_default() += funeral.bytes();
        }
        held
    }

    /// What the dead of all users may hold: no more than half of what there is.
    fn most_held(&self, policy: &Policy) -> Option<u64> {
        let half = self.held.total.map(|total| total / 2);
        let most = policy.funerals.hold_memory;
        most.into_iter().chain(half).min().filter(|_| most.is_some())
    }
}

impl Core {
    /// Somebody's copies are held from now on.
    pub(super) fn hold_begins(&mut self) {
        if self.faults.held.is_watched {
            self.faults.held.look_at.get_or_insert(self.turn.now + LOOK_AFTER);
        }
        self.bound_holds();
    }

    /// The GPUs' memory was looked at: because it was asked for, or on another occasion.
    pub(in crate::core) fn memory_seen(&mut self, seen: Result<Vec<GpuMemory>, String>, was_asked: bool) {
        let now = self.turn.now;
        let since = if was_asked { self.faults.held.looking_since.take() } else { None };
        let (total, nobodys) = match seen.and_then(|gpus| self.nobodys_memory(&gpus)) {
            Ok(known) => known,
            Err(reason) => {
                if was_asked && self.faults.held.unknown.as_ref() != Some(&reason) {
                    let each = TAKEN_FOR >> 20;
                    self.turn.log(format!(
                        "How much GPU memory dead clients hold is not known, {each} MiB each is assumed: {reason}"
                    ));
                    self.faults.held.unknown = Some(reason);
                }
                return self.bound_holds();
            }
        };
        self.faults.held.unknown = None;
        self.faults.held.total = Some(total);
        let is_settling = self.faults.held.released_at.is_some_and(|at| now < at + FREED_AFTER);
        if self.faults.funerals.is_empty() {
            if !is_settling {
                self.faults.nothing_is_held(&mut self.turn, nobodys);
            }
        } else if let (Some(base), Some(since)) = (self.faults.held.base, since) {
            if self.faults.held.released_at.is_some_and(|at| at + FREED_AFTER > since) {
                // What was closed may have been in use still, or not.
                self.faults.held.look_at = Some(now + FREED_AFTER);
            } else {
                self.faults.share_out(&mut self.turn, since, nobodys.saturating_sub(base));
            }
        }
        self.bound_holds();
    }

    /// What all GPUs have, and what of it is in use that no process on them has.
    fn nobodys_memory(&self, gpus: &[GpuMemory]) -> Result<(u64, u64), String> {
        let mut servers =
            self.servers.iter().filter(|server: &&Server| server.is_connected() && server.ready_at.is_some());
        let is_listed = |pid: Pid| gpus.iter().any(|gpu| gpu.pids.contains(&pid));
        if gpus.is_empty() || !servers.all(|server| server.pid.is_some_and(is_listed)) {
            return Err("the driver does not list the servers among the processes on the GPUs".to_owned());
        }
        let total = gpus.iter().map(|gpu| gpu.total).sum();
        let nobodys = gpus.iter().map(|gpu| Some(gpu.used.saturating_sub(gpu.of_processes?))).sum::<Option<u64>>();
        let nobodys = nobodys.ok_or_else(|| "the driver does not tell how much memory each process has".to_owned())?;
        Ok((total, nobodys))
    }

    /// Ends holds as long as there is too much.
    fn bound_holds(&mut self) {
        loop {
            let held = self.faults.held_by_users();
            let of_one = self.turn.policy.funerals.hold_memory_per_user;
            let is_over = |(_, bytes): &(&Uid, &u64)| of_one.is_some_and(|most| **bytes > most);
            let over = held.iter().find(is_over).map(|(uid, bytes)| (*uid, *bytes, "hold_memory_per_user"));
            let all = held.values().sum::<u64>().max(self.faults.held.together.unwrap_or_default());
            let most = held
                .iter()
                .max_by_key(|(_, bytes)| **bytes)
                .filter(|_| self.faults.most_held(&self.turn.policy).is_some_and(|m| all > m));
            let Some((uid, bytes, bound)) = over.or(most.map(|(uid, _)| (*uid, all, "hold_memory"))) else {
                return;
            };
            let Some(key) = self.hold_to_end(uid) else {
                return;
            };
            self.turn.log(format!(
                "Dead clients hold {} MiB of GPU memory, more than {bound} allows: the copies of client {} are closed",
                bytes >> 20,
                key.pid
            ));
            self.faults.end_funeral(&mut self.turn, key, FuneralEnd::Evicted);
        }
    }

    /// Which of a user's holds is ended first: one with no other client beside it, then the oldest.
    fn hold_to_end(&self, uid: Uid) -> Option<ProcessKey> {
        let own = self.faults.funerals.iter().filter(|(_, funeral)| funeral.process.uid == uid);
        own.min_by_key(|(_, funeral)| (self.has_clients(funeral.process.server), funeral.since)).map(|(key, _)| *key)
    }

    /// Makes room for one more among very many: of the user who has the most.
    pub(super) fn make_room_for_hold(&mut self) {
        let mut count: BTreeMap<Uid, usize> = BTreeMap::new();
        for funeral in self.faults.funerals.values() {
            *count.entry(funeral.process.uid).or_default() += 1;
        }
        let most = count.into_iter().max_by_key(|(_, count)| *count).map(|(uid, _)| uid);
        if let Some(key) = most.and_then(|uid| self.hold_to_end(uid)) {
            self.faults.end_funeral(&mut self.turn, key, FuneralEnd::Evicted);
        }
    }
}
