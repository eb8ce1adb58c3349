//! What becomes of an incident: a verdict, or nothing.
//!
//! One whose server is known to be lost has a verdict when its window is over, or before by proof, or with its server's
//! end. One that never is ends like this:
//!
//! | what there was | what becomes of it |
//! |---|---|
//! | the kernel has told of a fault of this server or a client of it | a verdict |
//! | an Xid that may be another's, and clients that failed, or were lost with a server that ended by itself | a verdict |
//! | what anybody can write, and such clients | a verdict, but of these only one in [`BETWEEN_DOUBTS`] for each user |
//! | signs alone | they are forgotten |
//!
//! Neither waits for its window where a client's own word points at it and nobody is left who could say otherwise: all
//! clients of the server have ended, whose queues and words are heard before their ends are, and it has answered. Where
//! nobody's word points at anybody, the kernel's line is still waited for, since it may say what kind of fault it was.
//!
//! So it is with a misaligned access on an H200: half of the time the server ends within 10 ms and its clients get 806, or
//! they have all left when it is asked, and it says that it is in no fault.

use super::{Incident, LONGEST_OPEN};
use crate::core::Core;
use crate::core::evidence::End;
use crate::core::faults::Faults;
use crate::core::faults::blame::Death;
use crate::core::ids::{Pid, ServerEpoch};
use crate::core::verdict::Confidence;
use core::time::Duration;
use std::collections::BTreeSet;

/// How much longer an incident stays open whose server has not said how it is.
const STILL_ASKED: Duration = Duration::from_millis(500);
/// How long an incident that was judged and not confirmed takes in what else is said of it, so that one fault has one
/// verdict.
const AFTERWARDS: Duration = Duration::from_secs(1);
/// How long before the first sign a client may have failed of the same fault. The kernel's line of a misaligned access
/// and the end of its clients are milliseconds apart.
const FAILURE_REACH: Duration = Duration::from_secs(2);
/// Between two verdicts on what anybody can write and cause, of the servers of one user: the latest verdicts of all
/// users are few.
pub(in crate::core) const BETWEEN_DOUBTS: Duration = Duration::from_secs(60);
/// Users whose last such verdict is known.
const MAX_DOUBTED: usize = 1024;

impl Faults {
    pub(in crate::core) fn incidents_deadline(&self) -> Option<Duration> {
        self.incidents.values().flat_map(|incident| [incident.judge_at, incident.ask_at]).flatten().min()
    }

    /// Whether an incident whose server is not known to be lost has no verdict, and a client's own word that is one.
    fn has_self_report(&self, epoch: ServerEpoch) -> bool {
        self.incidents.get(&epoch).is_some_and(|incident| {
            !incident.is_confirmed && incident.verdict.is_none() && incident.self_reports.points_at(false).is_some()
        })
    }

    /// Nothing more can come of an incident.
    fn forget_incident(&mut self, now: Duration, epoch: ServerEpoch) {
        self.incidents.remove(&epoch);
        self.talked_of.insert(epoch, now);
    }

    /// The clients that have failed in an incident's time: they ended by a signal or with an error, or said that they
    /// have met one.
    pub(in crate::core) fn failed_in(&self, epoch: ServerEpoch) -> BTreeSet<Pid> {
        let speakers = self.incidents.get(&epoch).into_iter().flat_map(|incident| incident.self_reports.speakers());
        self.dead_of(epoch).map(|death| death.key.pid).chain(speakers).collect()
    }

    /// Those of them that have ended.
    pub(in crate::core::faults) fn dead_of(&self, epoch: ServerEpoch) -> impl Iterator<Item = &Death> {
        let since = self.incidents.get(&epoch).map(|incident| incident.first.saturating_sub(FAILURE_REACH));
        let dead = self.deaths.iter().filter(move |death| death.process.server == epoch);
        let dead = dead.filter(move |death| since.is_some_and(|since| death.died_at >= since));
        dead.filter(|death| death.end != End::Exited(0))
    }
}

impl Core {
    /// The server of an incident is known to be lost.
    pub(in crate::core::faults) fn confirm_incident(&mut self, epoch: ServerEpoch) {
        let window = self.turn.policy.constants.evidence_window;
        let Some(incident) = self.faults.incidents.get_mut(&epoch) else {
            return;
        };
        if incident.is_confirmed {
            return;
        }
        incident.is_confirmed = true;
        incident.ask_at = None;
        incident.judge_at = Some(self.turn.now + window);
        let (id, testimonies) = (incident.id, incident.testimonies.clone());
        self.note_clients(epoch);
        for testimony in &testimonies {
            self.record_sign(epoch, id, testimony);
        }
        self.judge_named(epoch);
        self.judge_by_self_report(epoch);
    }

    /// The server that was meant is known: it is lost.
    pub(in crate::core::faults) fn judge_named(&mut self, epoch: ServerEpoch) {
        let confirmed = self.faults.incidents.get(&epoch).filter(|incident| incident.is_confirmed);
        for process in confirmed.map(|incident| incident.certain.clone()).unwrap_or_default() {
            self.judge_certain(epoch, process);
        }
    }

    /// Asks the servers once more whose answers may be older than the last sign.
    fn ask_once_more(&mut self) {
        let now = self.turn.now;
        let is_due = |incident: &mut Incident| incident.ask_at.take_if(|at| *at <= now).is_some();
        let due = self.faults.incidents.iter_mut().filter_map(|(epoch, incident)| is_due(incident).then_some(*epoch));
        for epoch in due.collect::<Vec<_>>() {
            self.ask_how_it_is(epoch);
        }
    }

    /// Gives the verdicts on incidents of which nobody is left who could say more than a client has said of itself.
    fn judge_where_nobody_is_left(&mut self) {
        let all: Vec<ServerEpoch> = self.faults.incidents.keys().copied().collect();
        for epoch in all {
            let is_asked = self.servers.get(epoch).is_some_and(|server| server.is_suspected());
            let may_be_told_more = is_asked || self.has_clients(epoch);
            if may_be_told_more || !self.faults.has_self_report(epoch) || !self.deserves_verdict(epoch, &[]) {
                continue;
            }
            self.judge_by_signs(epoch);
            let until = self.turn.now + AFTERWARDS;
            self.faults.incidents.entry(epoch).and_modify(|incident| incident.judge_at = Some(until));
        }
    }

    /// Gives the verdicts that are due and forgets signs that nothing came of.
    pub(in crate::core) fn advance_incidents(&mut self) {
        self.ask_once_more();
        self.judge_where_nobody_is_left();
        let now = self.turn.now;
        let due: Vec<ServerEpoch> = self
            .faults
            .incidents
            .iter()
            .filter(|(_, incident)| incident.judge_at.is_some_and(|at| at <= now))
            .map(|(epoch, _)| *epoch)
            .collect();
        for epoch in due {
            let Some(incident) = self.faults.incidents.get_mut(&epoch) else {
                continue;
            };
            incident.judge_at = None;
            let (is_confirmed, is_judged, given) = (incident.is_confirmed, incident.is_judged(), incident.verdict);
            let ends_at = incident.first + LONGEST_OPEN;
            let is_asked = self.servers.get(epoch).is_some_and(|server| server.is_suspected());
            if is_confirmed {
                if !is_judged {
                    self.note_clients_left(epoch);
                    self.judge_by_signs(epoch);
                }
            } else if is_asked && now < ends_at {
                // The server has not said yet.
                if let Some(incident) = self.faults.incidents.get_mut(&epoch) {
                    incident.judge_at = Some((now + STILL_ASKED).min(ends_at));
                }
            } else if given.is_none() && self.deserves_verdict(epoch, &[]) {
                self.judge_by_signs(epoch);
                let until = (now + AFTERWARDS).min(ends_at);
                if until > now {
                    self.faults.incidents.entry(epoch).and_modify(|incident| incident.judge_at = Some(until));
                } else {
                    self.faults.incidents.remove(&epoch);
                }
            } else {
                if given.is_some_and(|last| last.confidence < Confidence::Certain) {
                    // More clients may have failed since.
                    self.judge_by_signs(epoch);
                }
                self.faults.forget_incident(now, epoch);
            }
        }
    }

    /// Of an incident that an earlier daemon has left it is not known who was there, until the server has said.
    fn note_clients_left(&mut self, epoch: ServerEpoch) {
        if self.faults.incidents.get(&epoch).is_some_and(|incident| incident.clients.is_empty()) {
            self.note_clients(epoch);
        }
    }

    /// A server is gone, and nothing more will be heard of its fault.
    pub(in crate::core) fn close_incident(&mut self, epoch: ServerEpoch) {
        let Some((is_confirmed, is_judged, given)) = self
            .faults
            .incidents
            .get(&epoch)
            .map(|incident| (incident.is_confirmed, incident.is_judged(), incident.verdict))
        else {
            return;
        };
        // One that ends without having been told to takes its clients along.
        let is_crash =
            self.servers.get(epoch).is_some_and(|server| !server.is_told_to_end() && server.ready_at.is_some());
        let mut lost = Vec::new();
        if is_crash && !is_confirmed {
            self.note_clients(epoch);
            let unharmed =
                self.faults.incidents.get(&epoch).map(|incident| incident.unharmed.clone()).unwrap_or_default();
            let left = self.clients.processes_of(epoch).into_iter().map(|(pid, _)| pid);
            lost.extend(left.filter(|pid| !unharmed.contains(pid)));
        }
        let is_due = if is_confirmed { !is_judged } else { given.is_none() && self.deserves_verdict(epoch, &lost) };
        if is_due {
            self.note_clients_left(epoch);
            if let Some(incident) = self.faults.incidents.get_mut(&epoch) {
                incident.lost.extend(lost);
            }
            self.judge_by_signs(epoch);
        }
        self.faults.incidents.remove(&epoch);
    }

    /// Whether an incident that was not confirmed has a verdict all the same. `lost` are the clients that a server had
    /// that has ended by itself.
    fn deserves_verdict(&mut self, epoch: ServerEpoch, lost: &[Pid]) -> bool {
        let Some(incident) = self.faults.incidents.get(&epoch) else {
            return false;
        };
        if incident.has_kernels_fault {
            return true;
        }
        // Who caused a fault that was isolated is known, and nobody has lost anything by it.
        let is_of_one = incident.is_isolated && incident.xid.is_none();
        if is_of_one || (self.faults.failed_in(epoch).is_empty() && lost.is_empty()) {
            return false;
        }
        incident.xid.is_some() || self.may_doubt(epoch)
    }

    /// Whether what anybody can write and cause has a verdict now.
    fn may_doubt(&mut self, epoch: ServerEpoch) -> bool {
        let now = self.turn.now;
        let Some(uid) = self.servers.get(epoch).map(|server| server.uid) else {
            return false;
        };
        self.faults.doubted.retain(|_, at| *at + BETWEEN_DOUBTS > now);
        let is_new = self.faults.doubted.len() < MAX_DOUBTED && !self.faults.doubted.contains_key(&uid);
        if is_new {
            self.faults.doubted.insert(uid, now);
        }
        is_new
    }
}
