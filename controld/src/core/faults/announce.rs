//! Whom a verdict concerns, by name, and when others are told of it.
//!
//! Who a client is, is read while it goes on, and a program that faults at once is judged before that is known. A cluster
//! can be told of a pod by its names alone, so a verdict on somebody who is still being read waits until he is known, for
//! [`PATIENCE`] at the most. Nothing else waits for it: what is done about a fault is done at once.

use crate::core::announcement::Announcement;
use crate::core::clients::client::Process;
use crate::core::effect::Turn;
use crate::core::evidence::ProcessKey;
use crate::core::faults::blame::Death;
use crate::core::gpu::Gpu;
use crate::core::identity::Identity;
use crate::core::ids::{Pid, ServerEpoch};
use crate::core::verdict::{Suspect, SuspectIdentity, Verdict};
use crate::core::{Core, Effect};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long a verdict waits for who somebody is. A reader gives up after a second, and may be late on a busy machine.
pub(in crate::core) const PATIENCE: Duration = Duration::from_secs(5);
/// Verdicts that wait at most; of more the oldest is told as it is.
const MOST_UNTOLD: usize = 64;

/// The verdicts that wait until it is known whom they concern, oldest first.
#[derive(Debug, Default)]
pub(super) struct Untold(Vec<Waiting>);

#[derive(Debug)]
struct Waiting {
    until: Duration,
    announcement: Announcement,
    /// Those that it concerns and that are still being read.
    unread: BTreeSet<ProcessKey>,
}

impl Waiting {
    fn is_due(&self, now: Duration) -> bool {
        self.until <= now || self.unread.is_empty()
    }

    /// More is known of a process.
    fn identity_known(&mut self, pid: Pid, identity: &Identity) {
        // One whose start nobody knew is taken for it.
        let is_it = |known: ProcessKey| known.pid == pid && [0, identity.start_time].contains(&known.start_time);
        let Announcement { verdict, victims, .. } = &mut self.announcement;
        let it = verdict.culprit.iter_mut().chain(victims).filter(|suspect| is_it(suspect.process));
        it.for_each(|suspect| suspect.identity = suspect.identity.completed(identity));
        if !identity.awaits_more {
            self.unread.retain(|known| !is_it(*known));
        }
    }

    fn push(self, turn: &mut Turn) {
        turn.push(Effect::Announce(Box::new(self.announcement)));
    }
}

impl Untold {
    fn add(&mut self, now: Duration, announcement: Announcement, unread: BTreeSet<ProcessKey>) {
        self.0.push(Waiting { until: now.saturating_add(PATIENCE), announcement, unread });
    }

    /// More is known of a process.
    pub(super) fn identity_known(&mut self, pid: Pid, identity: &Arc<Identity>) {
        self.0.iter_mut().for_each(|waiting| waiting.identity_known(pid, identity));
    }

    /// Has those told of which nothing more is to be known. A verdict is never told before one that it may correct.
    pub(super) fn advance(&mut self, turn: &mut Turn) {
        let (mut left, surplus) = (Vec::new(), self.0.len().saturating_sub(MOST_UNTOLD));
        let mut held = BTreeSet::new();
        for (place, waiting) in self.0.drain(..).enumerate() {
            let incident = waiting.announcement.verdict.incident;
            if place < surplus || waiting.is_due(turn.now) && !held.contains(&incident) {
                waiting.push(turn);
            } else {
                held.insert(incident);
                left.push(waiting);
            }
        }
        self.0 = left;
    }

    /// Has all told as they are known.
    pub(super) fn flush(&mut self, turn: &mut Turn) {
        self.0.drain(..).for_each(|waiting| waiting.push(turn));
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.0.iter().map(|waiting| waiting.until).min()
    }
}

impl Suspect {
    /// A process as it is known.
    pub(super) fn of(process: ProcessKey, known: &Process) -> Self {
        Self { process, uid: known.uid, identity: SuspectIdentity::of(&known.identity) }
    }
}

impl Core {
    /// Has those told of a verdict on a fault of this server who look after machines and pods, as soon as it is known whom
    /// it concerns.
    pub(super) fn announce(&mut self, epoch: ServerEpoch, verdict: Verdict, culprit: Option<(ProcessKey, &Process)>) {
        let victims = self.known_of(epoch, &verdict.victims);
        let concerned = victims.iter().map(|(key, process)| (*key, process)).chain(culprit);
        let unread = concerned.filter(|(_, process)| process.identity.awaits_more).map(|(key, _)| key).collect();
        let victims = victims.iter().map(|(key, process)| Suspect::of(*key, process)).collect();
        let uuid =
            verdict.gpus.first().map(Gpu::uuid).or(verdict.fault.as_ref().and_then(|fault| fault.gpu.as_deref()));
        let place = uuid.and_then(|uuid| self.gpus.known().place_of(uuid));
        let (index, bus) = place.map_or((None, None), |(index, place)| (Some(index), Some(place.bus.clone())));
        let announcement = Announcement { victims, index, bus, verdict };
        self.faults.untold.add(self.turn.now, announcement, unread);
        self.faults.untold.advance(&mut self.turn);
    }

    /// What is known of these clients of a server, the living and those that died lately. Of two with the same pid the one
    /// who has failed is meant where the server is not lost, and else the later one.
    fn known_of(&self, epoch: ServerEpoch, pids: &[Pid]) -> Vec<(ProcessKey, Process)> {
        fn known(death: &Death) -> (Pid, (ProcessKey, &Process)) {
            (death.key.pid, (death.key, &death.process))
        }
        let dead = self.faults.deaths().filter(|death| death.process.server == epoch).map(known);
        let failed = self.faults.dead_of(epoch).filter(|_| self.faults.incident_of(epoch).is_none()).map(known);
        let noted = self.faults.clients_noted(epoch).map(|(pid, process)| (*pid, (process.key(*pid), process)));
        let known: BTreeMap<Pid, (ProcessKey, &Process)> = dead.chain(noted).chain(failed).collect();
        pids.iter().filter_map(|pid| known.get(pid).map(|(key, process)| (*key, (*process).clone()))).collect()
    }
}
