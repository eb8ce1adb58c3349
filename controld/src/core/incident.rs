//! The signs of one server's fault, from the first one until nothing more can come of it.
//!
//! An incident is confirmed when the server is known to be lost; signs that nothing came of are forgotten. Whose doing it
//! was is [`blame`](super::blame)'s.
//!
//! Signs that anybody can give, such as a record of the log, have no price for others: of each witness a few statements
//! are kept and the rest is counted, whom the log names is remembered only if it is a client of that server, and until
//! the server is known to be lost they hold an incident open for [`LONGEST_OPEN`] at most.

use super::Core;
use super::admission::Process;
use super::evidence::{MemoryFault, ProcessKey};
use super::gpu::GpuSet;
use super::ids::{Pid, ServerEpoch};
use super::journal::JournalEvent;
use super::verdict::{Confidence, Identity, Testimony};
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Statements of one witness that are kept of one incident; the rest is counted. Who makes many of one kind leaves room
/// for all others.
pub(super) const MAX_OF_WITNESS: usize = 16;
/// How much longer an incident stays open whose server has not said how it is.
const STILL_ASKED: Duration = Duration::from_millis(500);
/// How long an incident stays open at most, from its first sign, whose server has not been found lost. Whoever makes
/// signs without end makes the server be asked without end.
pub(super) const LONGEST_OPEN: Duration = Duration::from_secs(10);

/// What one witness says, in the form that all have in common.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Statement {
    witness: &'static str,
    names: Option<Pid>,
    text: String,
    fault: Option<MemoryFault>,
    /// The client that this statement is evidence against; other names are only repeated.
    pub(super) points_at: Option<Pid>,
    /// The client that it names without any proof: told, and never believed.
    pub(super) hints_at: Option<Pid>,
    /// Whether anybody, or any client, can say this whenever he likes.
    pub(super) is_hearsay: bool,
    pub(super) channel: Option<u32>,
    pub(super) xid: Option<u32>,
    pub(super) isolated: bool,
    /// Whether the kernel says it, and of this server and no other.
    pub(super) is_kernels_word: bool,
    /// The GPUs that it names, where nobody but the kernel can have named them.
    gpus: GpuSet,
}

impl Statement {
    pub(super) fn new(witness: &'static str, names: Option<Pid>, text: String) -> Self {
        Self {
            witness,
            names,
            text,
            fault: None,
            points_at: None,
            hints_at: None,
            is_hearsay: false,
            channel: None,
            xid: None,
            isolated: false,
            is_kernels_word: false,
            gpus: GpuSet::new(),
        }
    }

    pub(super) fn on(mut self, gpus: GpuSet) -> Self {
        self.gpus = gpus;
        self
    }

    pub(super) fn about(mut self, fault: MemoryFault) -> Self {
        self.fault = Some(fault);
        self
    }
}

/// The signs of one server that come together.
#[derive(Debug)]
pub(super) struct Incident {
    pub(super) id: u64,
    pub(super) first: Duration,
    /// The first sign that is no hearsay.
    pub(super) first_fact: Option<Duration>,
    /// When a verdict is given with what is known then; before it is confirmed: when it is forgotten.
    pub(super) judge_at: Option<Duration>,
    /// Whether the server is known to be lost.
    pub(super) is_confirmed: bool,
    pub(super) testimonies: Vec<Testimony>,
    /// Statements that were not kept.
    pub(super) more: u64,
    pub(super) fault: Option<MemoryFault>,
    pub(super) xid: Option<u32>,
    pub(super) channel: Option<u32>,
    pub(super) is_isolated: bool,
    pub(super) has_kernels_word: bool,
    pub(super) pointed_at: BTreeSet<Pid>,
    /// Clients of the server whom the log names in the one phrase that was right whenever a server wrote it.
    pub(super) hinted_at: BTreeSet<Pid>,
    /// The GPUs that its signs name.
    pub(super) gpus: GpuSet,
    /// The server's clients when it was lost.
    pub(super) clients: Vec<(Pid, Process)>,
    pub(super) judged: Vec<ProcessKey>,
    /// The last verdict.
    pub(super) verdict: Option<Pronounced>,
}

/// What was said last of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pronounced {
    pub(super) number: u64,
    pub(super) culprit: Option<ProcessKey>,
    pub(super) confidence: Confidence,
}

impl Incident {
    /// More is known of a client.
    pub(super) fn identity_known(&mut self, pid: Pid, identity: &Arc<Identity>) {
        if let Some((_, process)) = self.clients.iter_mut().find(|(known, _)| *known == pid) {
            process.identity = Arc::clone(identity);
        }
    }
}

impl Core {
    /// Adds a statement to its server's incident, which begins with its first sign. Returns the incident's number.
    pub(super) fn testify(&mut self, now: Duration, epoch: ServerEpoch, statement: Statement) -> u64 {
        let window = self.evidence_window(epoch);
        if !self.incidents.contains_key(&epoch) {
            let incident = Incident {
                id: self.next_incident,
                first: now,
                first_fact: None,
                judge_at: Some(now + window),
                is_confirmed: false,
                testimonies: Vec::new(),
                more: 0,
                fault: None,
                xid: None,
                channel: None,
                is_isolated: false,
                has_kernels_word: false,
                pointed_at: BTreeSet::new(),
                hinted_at: BTreeSet::new(),
                gpus: GpuSet::new(),
                clients: self.processes_of(epoch),
                judged: Vec::new(),
                verdict: None,
            };
            self.next_incident += 1;
            self.incidents.insert(epoch, incident);
        }
        let Some(incident) = self.incidents.get_mut(&epoch) else {
            return 0;
        };
        let id = incident.id;
        let Statement { witness, names, text, fault, channel, xid, isolated, is_kernels_word, gpus, .. } = statement;
        let Statement { points_at, hints_at, is_hearsay, .. } = statement;
        if !is_hearsay {
            incident.first_fact.get_or_insert(now);
        }
        if incident.fault.is_none() {
            incident.fault = fault;
        }
        incident.channel = incident.channel.or(channel);
        incident.xid = incident.xid.or(xid);
        incident.is_isolated |= isolated;
        incident.has_kernels_word |= is_kernels_word;
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
                && let Some(verdict) = self.verdicts.iter_mut().find(|verdict| verdict.number == last.number)
            {
                verdict.witnesses.push(testimony.clone());
            }
            // What is not confirmed may be forged, and must not fill the journal.
            if is_confirmed {
                self.record_sign(epoch, id, &testimony);
            }
        }
        self.spoil(epoch, &gpus);
        let is_late = |incident: &Incident| incident.verdict.is_some_and(|last| last.confidence == Confidence::Unknown);
        if points_at.is_some() && self.incidents.get(&epoch).is_some_and(is_late) {
            self.judge_by_signs(now, epoch);
        }
        id
    }

    fn record_sign(&mut self, epoch: ServerEpoch, incident: u64, testimony: &Testimony) {
        let Some(server) = self.servers.get(&epoch) else {
            return;
        };
        let (pid, uid, domain) = (server.pid.unwrap_or_default(), server.uid, self.domain_name(server.domain));
        let Testimony { witness, names, ref text, .. } = *testimony;
        let text = text.clone();
        self.record(JournalEvent::FaultSign { incident, server: pid, uid, domain, witness, names, text });
    }

    fn evidence_window(&self, epoch: ServerEpoch) -> Duration {
        let domain = self.servers.get(&epoch).and_then(|server| self.domains.get(server.domain));
        domain.map_or(Duration::ZERO, |domain| domain.policy.faults.evidence_window)
    }

    /// The server of an incident is known to be lost.
    pub(super) fn confirm_incident(&mut self, now: Duration, epoch: ServerEpoch) {
        let window = self.evidence_window(epoch);
        let clients = self.processes_of(epoch);
        let Some(incident) = self.incidents.get_mut(&epoch) else {
            return;
        };
        if incident.is_confirmed {
            return;
        }
        incident.is_confirmed = true;
        incident.judge_at = Some(now + window);
        for (pid, process) in clients {
            if incident.clients.iter().all(|(known, _)| *known != pid) {
                incident.clients.push((pid, process));
            }
        }
        let (id, testimonies) = (incident.id, incident.testimonies.clone());
        for testimony in &testimonies {
            self.record_sign(epoch, id, testimony);
        }
    }

    pub(super) fn incident_of(&self, server: ServerEpoch) -> Option<u64> {
        self.incidents.get(&server).filter(|incident| incident.is_confirmed).map(|incident| incident.id)
    }

    /// Whether the kernel has said that this very server met an error.
    pub(super) fn has_kernels_word(&self, server: ServerEpoch) -> bool {
        self.incidents.get(&server).is_some_and(|incident| incident.has_kernels_word)
    }

    pub(super) fn incidents_deadline(&self) -> Option<Duration> {
        self.incidents.values().filter_map(|incident| incident.judge_at).min()
    }

    /// Gives the verdicts that are due and forgets signs that nothing came of.
    pub(super) fn advance_incidents(&mut self, now: Duration) {
        let due: Vec<ServerEpoch> = self
            .incidents
            .iter()
            .filter(|(_, incident)| incident.judge_at.is_some_and(|at| at <= now))
            .map(|(epoch, _)| *epoch)
            .collect();
        for epoch in due {
            let Some(incident) = self.incidents.get_mut(&epoch) else {
                continue;
            };
            incident.judge_at = None;
            let (is_confirmed, is_open) = (incident.is_confirmed, incident.verdict.is_none());
            let ends_at = incident.first + LONGEST_OPEN;
            let is_asked = self.servers.get(&epoch).is_some_and(|server| server.suspected);
            if !is_confirmed && is_asked && now < ends_at {
                // The server has not said yet.
                if let Some(incident) = self.incidents.get_mut(&epoch) {
                    incident.judge_at = Some((now + STILL_ASKED).min(ends_at));
                }
            } else if !is_confirmed {
                self.incidents.remove(&epoch);
            } else if is_open {
                self.judge_by_signs(now, epoch);
            }
        }
    }

    /// A server is gone, and nothing more will be heard of its fault.
    pub(super) fn close_incident(&mut self, now: Duration, epoch: ServerEpoch) {
        if self.incidents.get(&epoch).is_some_and(|incident| incident.is_confirmed && incident.verdict.is_none()) {
            self.judge_by_signs(now, epoch);
        }
        self.incidents.remove(&epoch);
    }
}
