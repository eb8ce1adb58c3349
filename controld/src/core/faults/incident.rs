//! The signs of one server's fault, from the first one until nothing more can come of it.
//!
//! An incident is confirmed when the server is known to be lost; what becomes of it, and of one that never is, is in
//! [`outcome`]. Whose doing it was is [`blame`](super::blame)'s.
//!
//! Signs that anybody can give, such as a record of the log, have no price for others: of each witness a few statements
//! are kept and the rest is counted, whom the log names is remembered only if it is a client of that server, and until
//! the server is known to be lost they hold an incident open for [`LONGEST_OPEN`] at most.

mod outcome;

#[cfg(test)]
pub(in crate::core) use outcome::BETWEEN_DOUBTS;

use super::Faults;
use super::hardware::Spot;
use super::nature::{ASKED_SOON, Nature};
use super::self_report::SelfReports;
use super::statement::Statement;
use crate::core::Core;
use crate::core::clients::client::{BEFORE_CONTEXTS, Process, Stage};
use crate::core::events::JournalEvent;
use crate::core::evidence::{MemoryFault, ProcessKey};
use crate::core::gpu::GpuSet;
use crate::core::identity::Identity;
use crate::core::ids::{Pid, ServerEpoch};
use crate::core::verdict::{Confidence, Testimony};
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Statements of one witness that are kept of one incident; the rest is counted. Who makes many of one kind leaves room
/// for all others.
pub(in crate::core) const MAX_OF_WITNESS: usize = 16;
/// How long an incident stays open at most, from its first sign, whose server has not been found lost. Whoever makes
/// signs without end makes the server be asked without end.
pub(in crate::core) const LONGEST_OPEN: Duration = Duration::from_secs(10);

/// How long after an answer that may be older than the last sign its server is asked once more. Whoever makes signs
/// without end has it asked no more often than that.
pub(super) const ASKED_AGAIN: Duration = Duration::from_millis(50);

/// The signs of one server that come together.
#[derive(Debug)]
pub(in crate::core) struct Incident {
    pub(in crate::core) id: u64,
    pub(in crate::core) first: Duration,
    /// The first sign that is no hearsay.
    pub(super) first_fact: Option<Duration>,
    /// When a verdict is given with what is known then; before it is confirmed: when it is forgotten.
    pub(super) judge_at: Option<Duration>,
    /// When its server is asked once more: its last answer may be older than the last sign.
    pub(super) ask_at: Option<Duration>,
    /// How long after the next answer that it is in no fault it is asked again, because a client has said that it has
    /// met an exception, which the server may not know yet; `None` if nobody has, or it was asked often enough.
    pub(super) asked_soon: Option<Duration>,
    /// What kind of fault it was.
    pub(super) nature: Nature,
    /// Whether the server is known to be lost.
    pub(in crate::core) is_confirmed: bool,
    pub(in crate::core) testimonies: Vec<Testimony>,
    /// Statements that were not kept.
    pub(in crate::core) more: u64,
    pub(in crate::core) fault: Option<MemoryFault>,
    pub(in crate::core) xid: Option<u32>,
    pub(in crate::core) channel: Option<u32>,
    pub(super) is_isolated: bool,
    pub(in crate::core) has_kernels_word: bool,
    pub(super) has_kernels_fault: bool,
    pub(super) pointed_at: BTreeSet<Pid>,
    /// What clients have said of themselves.
    pub(super) self_reports: SelfReports,
    /// Clients of the server whom the log names in the one phrase that was right whenever a server wrote it.
    pub(in crate::core) hinted_at: BTreeSet<Pid>,
    /// The GPUs that its signs name.
    pub(in crate::core) gpus: GpuSet,
    /// Places on its GPU that were not counted yet.
    pub(super) spots: BTreeSet<Spot>,
    /// The server's clients when it was lost.
    pub(in crate::core) clients: Vec<(Pid, Process)>,
    /// Those of them that had nothing there to lose: they were on their way, or were taken back from there.
    pub(in crate::core) unharmed: BTreeSet<Pid>,
    /// Those that a server had that has ended by itself.
    pub(in crate::core) lost: BTreeSet<Pid>,
    /// Whom a witness that can't be wrong has named of several servers, of which this one may be meant.
    pub(super) certain: BTreeSet<ProcessKey>,
    pub(in crate::core) judged: Vec<ProcessKey>,
    /// The last verdict.
    pub(in crate::core) verdict: Option<Pronounced>,
}

/// What was said last of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) struct Pronounced {
    pub(in crate::core) number: u64,
    pub(in crate::core) culprit: Option<ProcessKey>,
    pub(in crate::core) confidence: Confidence,
    /// Whether the server was known to be lost then.
    pub(in crate::core) is_confirmed: bool,
    /// How many victims it had.
    pub(in crate::core) victims: usize,
}

impl Incident {
    /// One that has just begun.
    fn new(id: u64, now: Duration, judge_at: Duration) -> Self {
        Self {
            id,
            first: now,
            first_fact: None,
            judge_at: Some(judge_at),
            ask_at: None,
            asked_soon: None,
            nature: Nature::default(),
            is_confirmed: false,
            testimonies: Vec::new(),
            more: 0,
            fault: None,
            xid: None,
            channel: None,
            is_isolated: false,
            has_kernels_word: false,
            has_kernels_fault: false,
            pointed_at: BTreeSet::new(),
            self_reports: SelfReports::default(),
            hinted_at: BTreeSet::new(),
            gpus: GpuSet::new(),
            spots: BTreeSet::new(),
            clients: Vec::new(),
            unharmed: BTreeSet::new(),
            lost: BTreeSet::new(),
            certain: BTreeSet::new(),
            judged: Vec::new(),
            verdict: None,
        }
    }

    /// Whether there is a verdict that knows what has become of the server.
    fn is_judged(&self) -> bool {
        self.verdict.is_some_and(|last| last.is_confirmed || !self.is_confirmed)
    }

    /// More is known of a client.
    fn identity_known(&mut self, pid: Pid, identity: &Arc<Identity>) {
        if let Some((_, process)) = self.clients.iter_mut().find(|(known, _)| *known == pid) {
            Identity::complete(&mut process.identity, identity);
        }
    }
}

impl Faults {
    /// More is known of a client.
    pub(in crate::core) fn identity_known(&mut self, pid: Pid, identity: &Arc<Identity>) {
        self.incidents.values_mut().for_each(|incident| incident.identity_known(pid, identity));
        let dead = self.deaths.iter_mut().filter(|death| death.key.pid == pid);
        dead.for_each(|death| Identity::complete(&mut death.process.identity, identity));
        self.untold.identity_known(pid, identity);
    }

    /// Whether the fault of a server still is to have its verdict.
    pub(in crate::core) fn is_unjudged(&self, epoch: ServerEpoch) -> bool {
        self.incidents.get(&epoch).is_some_and(|incident| incident.is_confirmed && !incident.is_judged())
    }

    /// The clients of a server that its incident knows of.
    pub(super) fn clients_noted(&self, epoch: ServerEpoch) -> impl Iterator<Item = &(Pid, Process)> {
        self.incidents.get(&epoch).into_iter().flat_map(|incident| &incident.clients)
    }

    pub(super) fn incident_of(&self, server: ServerEpoch) -> Option<u64> {
        self.incidents.get(&server).filter(|incident| incident.is_confirmed).map(|incident| incident.id)
    }

    /// A server has answered that it is in no fault, and may have done so before the last sign.
    pub(in crate::core) fn is_to_be_asked(&mut self, now: Duration, epoch: ServerEpoch) {
        if let Some(incident) = self.incidents.get_mut(&epoch).filter(|incident| !incident.is_confirmed) {
            incident.ask_at.get_or_insert(now + ASKED_AGAIN);
        }
    }

    /// Whether the kernel has said that this very server met an error.
    pub(in crate::core) fn has_kernels_word(&self, server: ServerEpoch) -> bool {
        self.incidents.get(&server).is_some_and(|incident| incident.has_kernels_word)
    }
}

impl Core {
    /// Adds a statement to its server's incident, which begins with its first sign. Returns the incident's number.
    pub(in crate::core) fn testify(&mut self, epoch: ServerEpoch, statement: Statement) -> u64 {
        let now = self.turn.now;
        let window = self.turn.policy.constants.evidence_window;
        if !self.faults.incidents.contains_key(&epoch) {
            let mut incident = Incident::new(self.faults.next_incident, now, now + window);
            incident.self_reports = SelfReports::after(self.faults.talked_of.get(&epoch).copied(), now);
            self.faults.next_incident += 1;
            self.faults.incidents.insert(epoch, incident);
            self.note_clients(epoch);
        }
        let Some(incident) = self.faults.incidents.get_mut(&epoch) else {
            return 0;
        };
        let id = incident.id;
        let was_exception = incident.nature.is_exception();
        incident.nature.hear(&statement);
        if !was_exception && incident.nature.is_exception() {
            incident.asked_soon = Some(ASKED_SOON);
        }
        let Statement { witness, names, text, fault, channel, xid, isolated, is_kernels_word, gpus, .. } = statement;
        let Statement { points_at, hints_at, is_hearsay, is_kernels_fault, self_report, certain, .. } = statement;
        if !is_hearsay {
            incident.first_fact.get_or_insert(now);
        }
        if incident.fault.is_none() {
            incident.spots.extend(fault.as_ref().and_then(|fault| Spot::of_address(fault.address)));
            incident.fault = fault;
        }
        incident.spots.extend(xid.and_then(|_| Spot::of_line(&text)));
        incident.channel = incident.channel.or(channel);
        incident.xid = incident.xid.or(xid);
        incident.is_isolated |= isolated;
        incident.has_kernels_word |= is_kernels_word;
        incident.has_kernels_fault |= is_kernels_fault;
        incident.self_reports.hear(now, self_report, xid);
        incident.certain.extend(certain);
        incident.pointed_at.extend(points_at);
        incident.hinted_at.extend(hints_at);
        // An isolated fault has spoilt nothing for anybody else.
        let gpus = if isolated { GpuSet::new() } else { gpus };
        incident.gpus.extend(gpus.iter().cloned());
        let after = now.saturating_sub(incident.first);
        let testimony = Testimony { witness, names, after, text };
        let is_confirmed = incident.is_confirmed;
        let of_witness = incident.testimonies.iter().filter(|other| other.witness == witness).count();
        if of_witness >= MAX_OF_WITNESS {
            incident.more = incident.more.saturating_add(1);
        } else {
            incident.testimonies.push(testimony.clone());
            if let Some(last) = incident.verdict
                && let Some(verdict) = self.faults.verdicts.iter_mut().find(|verdict| verdict.number == last.number)
            {
                verdict.witnesses.push(testimony.clone());
            }
            // What is not confirmed may be forged, and must not fill the journal.
            if is_confirmed {
                self.record_sign(epoch, id, &testimony);
            }
        }
        self.spoil(epoch, &gpus);
        if is_kernels_fault {
            self.is_to_be_denied(epoch, &gpus);
        }
        let is_late = |incident: &Incident| incident.verdict.is_some_and(|last| last.confidence == Confidence::Unknown);
        if points_at.is_some() && self.faults.incidents.get(&epoch).is_some_and(is_late) {
            self.judge_by_signs(epoch);
        }
        self.judge_by_self_report(epoch);
        id
    }

    /// Notes who is on the server of an incident, and who of them has nothing there to lose.
    fn note_clients(&mut self, epoch: ServerEpoch) {
        let known = self.clients.processes_of(epoch);
        let unharmed: Vec<Pid> = known
            .iter()
            .filter(|(pid, process)| !self.has_reached(epoch, *pid, process))
            .map(|(pid, _)| *pid)
            .collect();
        let Some(incident) = self.faults.incidents.get_mut(&epoch) else {
            return;
        };
        for (pid, process) in known {
            incident.unharmed.remove(&pid);
            if incident.clients.iter().all(|(known, _)| *known != pid) {
                incident.clients.push((pid, process));
            }
        }
        incident.unharmed.extend(unharmed);
    }

    /// Whether a process has anything on its server that a fault could cost it: a context, or its end of a connection
    /// that is under way. With its own connection alone it goes to another server.
    pub(super) fn has_reached(&self, epoch: ServerEpoch, pid: Pid, process: &Process) -> bool {
        let mut own = self.clients.iter().filter(|client| client.peer.pid == pid);
        process.connections > BEFORE_CONTEXTS || own.any(|client| client.stage == Stage::HasEnd { server: epoch })
    }

    fn record_sign(&mut self, epoch: ServerEpoch, incident: u64, testimony: &Testimony) {
        let Some(server) = self.servers.get(epoch) else {
            return;
        };
        let (pid, uid, domain) = (server.pid.unwrap_or_default(), server.uid, self.servers.domain_name(server.domain));
        let Testimony { witness, names, ref text, .. } = *testimony;
        let text = text.clone();
        self.turn.record(JournalEvent::FaultSign { incident, server: pid, uid, domain, witness, names, text });
    }

    /// Goes on with an incident of an earlier daemon, which has given no verdict on it.
    pub(in crate::core) fn restore_incident(&mut self, epoch: ServerEpoch, id: u64) {
        let now = self.turn.now;
        let mut incident = Incident::new(id, now, now + self.turn.policy.constants.evidence_window);
        incident.is_confirmed = true;
        let (witness, text) = ("server-status", "FAULT, by an earlier daemon".to_owned());
        incident.testimonies.push(Testimony { witness, names: None, after: Duration::ZERO, text });
        self.faults.incidents.insert(epoch, incident);
    }
}
