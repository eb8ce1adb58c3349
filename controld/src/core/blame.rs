//! Who it was: merges what the witnesses of one server's fault say into a verdict, or into an honest "unknown".
//!
//! | rule | confidence |
//! |---|---|
//! | a UVM event or a notice names its process | certain, at once |
//! | after `evidence_window` exactly one process was pointed at by its own report or by the server's log, in the one phrase that has been right | likely |
//! | a memory fault of which no living client's tools queue knows, soon after exactly one client died | likely: it died in a kernel |
//! | everything else | unknown |
//!
//! The log can be forged and two pointers can contradict each other, so nothing is done to anybody who is only likely.
//! Evidence that comes after a verdict of less confidence corrects it.

use super::Core;
use super::admission::Process;
use super::evidence::{End, MemoryFault, ProcessKey};
use super::ids::{Pid, ServerEpoch, Uid};
use super::journal::JournalEvent;
use super::verdict::{Confidence, Identity, Suspect, SuspectIdentity, Testimony, Verdict};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Statements kept of one incident; the rest is counted.
const MAX_TESTIMONIES: usize = 64;
/// The latest verdicts, to which late evidence may be added; those that can be asked for are the recorder's.
const MAX_VERDICTS: usize = 16;
/// How long after a client's death, or after its descriptors were closed, a memory fault may be its doing. On an H200
/// the fault came 150 to 190 ms after.
const DEATH_REACH: Duration = Duration::from_secs(2);
/// How much longer an incident stays open whose server has not said how it is.
const STILL_ASKED: Duration = Duration::from_millis(500);
/// Deaths remembered.
const MAX_DEATHS: usize = 256;

/// What one witness says, in the form that all have in common.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Statement {
    witness: &'static str,
    names: Option<Pid>,
    text: String,
    fault: Option<MemoryFault>,
    /// The client that this statement is evidence against; other names are only repeated.
    pub(super) points_at: Option<Pid>,
    pub(super) channel: Option<u32>,
    pub(super) xid: Option<u32>,
    pub(super) isolated: bool,
    /// Whether the kernel says it, and of this server and no other.
    pub(super) is_kernels_word: bool,
}

impl Statement {
    pub(super) fn new(witness: &'static str, names: Option<Pid>, text: String) -> Self {
        Self {
            witness,
            names,
            text,
            fault: None,
            points_at: None,
            channel: None,
            xid: None,
            isolated: false,
            is_kernels_word: false,
        }
    }

    pub(super) fn about(mut self, fault: MemoryFault) -> Self {
        self.fault = Some(fault);
        self
    }
}

/// The signs of one server that come together.
#[derive(Debug)]
pub(super) struct Incident {
    id: u64,
    first: Duration,
    /// When a verdict is given with what is known then; before it is confirmed: when it is forgotten.
    judge_at: Option<Duration>,
    /// Whether the server is known to be lost.
    is_confirmed: bool,
    testimonies: Vec<Testimony>,
    fault: Option<MemoryFault>,
    xid: Option<u32>,
    channel: Option<u32>,
    is_isolated: bool,
    has_kernels_word: bool,
    pointed_at: BTreeSet<Pid>,
    /// The server's clients when it was lost.
    clients: Vec<(Pid, Process)>,
    judged: Vec<ProcessKey>,
    /// The last verdict and its confidence.
    verdict: Option<(u64, Confidence)>,
}

impl Incident {
    /// More is known of a client.
    pub(super) fn identity_known(&mut self, pid: Pid, identity: &Arc<Identity>) {
        if let Some((_, process)) = self.clients.iter_mut().find(|(known, _)| *known == pid) {
            process.identity = Arc::clone(identity);
        }
    }
}

/// A client that died lately.
#[derive(Debug, Clone)]
pub(super) struct Death {
    pub(super) at: Duration,
    pub(super) key: ProcessKey,
    pub(super) process: Process,
    pub(super) end: End,
}

impl Core {
    /// The latest verdicts, oldest first.
    pub fn verdicts(&self) -> impl DoubleEndedIterator<Item = &Verdict> + ExactSizeIterator {
        self.verdicts.iter()
    }

    /// Adds a statement to its server's incident, which begins with its first sign. Returns the incident's number.
    pub(super) fn testify(&mut self, now: Duration, epoch: ServerEpoch, statement: Statement) -> u64 {
        let window = self.evidence_window(epoch);
        if !self.incidents.contains_key(&epoch) {
            let incident = Incident {
                id: self.next_incident,
                first: now,
                judge_at: Some(now + window),
                is_confirmed: false,
                testimonies: Vec::new(),
                fault: None,
                xid: None,
                channel: None,
                is_isolated: false,
                has_kernels_word: false,
                pointed_at: BTreeSet::new(),
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
        let Statement { witness, names, text, fault, points_at, channel, xid, isolated, is_kernels_word } = statement;
        if incident.fault.is_none() {
            incident.fault = fault;
        }
        incident.channel = incident.channel.or(channel);
        incident.xid = incident.xid.or(xid);
        incident.is_isolated |= isolated;
        incident.has_kernels_word |= is_kernels_word;
        incident.pointed_at.extend(points_at);
        let after = now.saturating_sub(incident.first);
        let testimony = Testimony { witness, names, after, text };
        let is_confirmed = incident.is_confirmed;
        if incident.testimonies.len() < MAX_TESTIMONIES {
            incident.testimonies.push(testimony.clone());
            if let Some((number, _)) = incident.verdict
                && let Some(verdict) = self.verdicts.iter_mut().find(|verdict| verdict.number == number)
            {
                verdict.witnesses.push(testimony.clone());
            }
            // What is not confirmed may be forged, and must not fill the journal.
            if is_confirmed {
                self.record_sign(epoch, id, &testimony);
            }
        }
        let is_late = |incident: &Incident| incident.verdict.is_some_and(|(_, sure)| sure == Confidence::Unknown);
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

    /// A witness that can't be wrong has named the process.
    pub(super) fn judge_certain(&mut self, now: Duration, epoch: ServerEpoch, key: ProcessKey) {
        let Some(process) = self.client_process(key).cloned() else {
            return;
        };
        let Some(incident) = self.incidents.get_mut(&epoch) else {
            return;
        };
        if incident.judged.contains(&key) || (incident.is_isolated && process.condemned) {
            return;
        }
        incident.judged.push(key);
        let is_isolated = incident.is_isolated;
        let Some(verdict) = self.pronounce(now, epoch, Some((key, &process)), Confidence::Certain, "memory fault")
        else {
            return;
        };
        let policy = self.servers.get(&epoch).and_then(|server| self.domains.get(server.domain));
        if let Some(policy) = policy.map(|domain| domain.policy.faults.clone()) {
            self.sanction(now, &verdict, &process, &policy);
        }
        // The module has cut it off from its memory: whatever it computes from now on is wrong.
        if is_isolated {
            if let Some(process) = self.processes.get_mut(&key.pid) {
                process.condemned = true;
            }
            self.end_client(now, key, &process);
        }
    }

    /// The window is over and nobody who can know has spoken.
    fn judge_by_signs(&mut self, now: Duration, epoch: ServerEpoch) {
        let Some(incident) = self.incidents.get(&epoch) else {
            return;
        };
        let first = incident.first;
        let kind = match incident.xid {
            Some(31) => "memory fault",
            Some(13 | 43) => "exception",
            _ if incident.fault.is_some() => "memory fault",
            _ => "fault",
        };
        let living = incident.clients.iter().map(|(pid, process)| (process.key(*pid), process));
        let buried = self.deaths.iter().filter(|death| death.process.server == epoch);
        let buried = buried.filter(|death| incident.clients.iter().all(|(pid, _)| *pid != death.key.pid));
        let pointed: BTreeMap<ProcessKey, Process> = living
            .chain(buried.map(|death| (death.key, &death.process)))
            .filter(|(key, _)| incident.pointed_at.contains(&key.pid))
            .map(|(key, process)| (key, process.clone()))
            .collect();
        let pointed: Vec<(ProcessKey, Process)> = pointed.into_iter().collect();
        let strangers = incident.pointed_at.len() != pointed.len();
        let all_tracked = incident.clients.iter().all(|(_, process)| process.tracked);
        let reach = first.saturating_sub(DEATH_REACH);
        let dead: Vec<&Death> = self
            .deaths
            .iter()
            .filter(|death| death.process.server == epoch && death.at >= reach && death.at <= first)
            .filter(|death| !matches!(death.end, End::Exited(_)))
            .collect();
        let (culprit, kind) = match (&pointed[..], &dead[..]) {
            ([one], _) if !strangers => (Some(one.clone()), if kind == "fault" { "exception" } else { kind }),
            ([], [one]) if !strangers && kind == "memory fault" && all_tracked => {
                (Some((one.key, one.process.clone())), "death in a kernel")
            }
            _ => (None, kind),
        };
        let confidence = if culprit.is_some() { Confidence::Likely } else { Confidence::Unknown };
        let culprit = culprit.as_ref().map(|(key, process)| (*key, process));
        let _ = self.pronounce(now, epoch, culprit, confidence, kind);
    }

    fn pronounce(
        &mut self,
        now: Duration,
        epoch: ServerEpoch,
        culprit: Option<(ProcessKey, &Process)>,
        confidence: Confidence,
        kind: &'static str,
    ) -> Option<Verdict> {
        let incident = self.incidents.get(&epoch)?;
        let server = self.servers.get(&epoch)?;
        let culprit_pid = culprit.map(|(key, _)| key.pid);
        let others = incident.clients.iter().filter(|(pid, _)| Some(*pid) != culprit_pid);
        let victims: Vec<Pid> = others.clone().map(|(pid, _)| *pid).collect();
        let mut users: Vec<Uid> = others.map(|(_, process)| process.uid).collect();
        users.extend(culprit.map(|(_, process)| process.uid));
        users.sort_unstable();
        users.dedup();
        let corrects = incident.verdict.filter(|(_, sure)| *sure < confidence).map(|(number, _)| number);
        let verdict = Verdict {
            number: self.next_verdict,
            incident: incident.id,
            server: server.pid.unwrap_or_default(),
            epoch,
            domain: self.domain_name(server.domain),
            culprit: culprit.map(|(process, known)| Suspect {
                process,
                uid: known.uid,
                identity: SuspectIdentity {
                    cgroup: known.identity.cgroup.clone(),
                    container: known.identity.container.clone(),
                    pod: known.identity.pod.clone(),
                    command: known.identity.command.clone(),
                },
            }),
            confidence,
            kind,
            fault: incident.fault.clone(),
            isolated: incident.is_isolated && !incident.is_confirmed,
            channel: incident.channel,
            xid: incident.xid,
            victims: if incident.is_confirmed { victims } else { Vec::new() },
            witnesses: incident.testimonies.clone(),
            delay: now.saturating_sub(incident.first),
            corrects,
        };
        self.next_verdict += 1;
        if let Some(incident) = self.incidents.get_mut(&epoch) {
            incident.verdict = Some((verdict.number, confidence));
        }
        if self.verdicts.len() >= MAX_VERDICTS {
            self.verdicts.pop_front();
        }
        self.verdicts.push_back(verdict.clone());
        self.log(verdict.to_string());
        self.record(if corrects.is_some() {
            JournalEvent::VerdictCorrected { verdict: verdict.clone(), users }
        } else {
            JournalEvent::Verdict { verdict: verdict.clone(), users }
        });
        Some(verdict)
    }

    /// A client's process has ended: it may have been in the middle of its work.
    pub(super) fn remember_death(&mut self, now: Duration, key: ProcessKey, process: &Process, end: End) {
        if self.deaths.len() >= MAX_DEATHS {
            self.deaths.pop_front();
        }
        self.deaths.push_back(Death { at: now, key, process: process.clone(), end });
    }

    /// A dead client's descriptors are closed: what its work still does faults from now on.
    pub(super) fn renew_death(&mut self, now: Duration, key: ProcessKey) {
        if let Some(at) = self.deaths.iter().position(|death| death.key == key)
            && let Some(mut death) = self.deaths.remove(at)
        {
            death.at = now;
            self.deaths.push_back(death);
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
            let is_asked = self.servers.get(&epoch).is_some_and(|server| server.suspected);
            if !is_confirmed && is_asked {
                // The server has not said yet.
                if let Some(incident) = self.incidents.get_mut(&epoch) {
                    incident.judge_at = Some(now + STILL_ASKED);
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

/// All that is kept between verdicts.
pub(super) type Verdicts = VecDeque<Verdict>;
/// The clients that died lately, oldest first.
pub(super) type Deaths = VecDeque<Death>;
