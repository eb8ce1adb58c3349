//! Who it was: merges what the witnesses of one server's fault say into a verdict, or into an honest "unknown".
//!
//! | rule | confidence |
//! |---|---|
//! | a UVM event or a notice names its process | certain, at once |
//! | exactly one process has told of an error of its own that no victim can have then ([`self_report`](super::self_report)) | likely, as soon as the server is known to be lost |
//! | a memory fault of which no living client's tools queue knows, soon after exactly one client died | likely: it died in a kernel |
//! | everything else | unknown |
//!
//! Two pointers can contradict each other, so nothing is done to anybody who is only likely. Evidence that comes after a
//! verdict of less confidence corrects it; a verdict that would say the same again is not given.
//!
//! The server's log points at nobody: whoever can write to the FIFO can write any record in any server's name, also
//! right after a fault of his own that the server confirms. Whom it names in the one phrase that was right whenever a
//! server wrote it is told with the verdict, as a hint without proof. The time of such a record proves nothing either:
//! which deaths a fault may come from is reckoned from the first sign that is no hearsay.

use super::Faults;
use super::incident::Pronounced;
use crate::core::Core;
use crate::core::clients::client::Process;
use crate::core::events::JournalEvent;
use crate::core::evidence::{End, ProcessKey};
use crate::core::ids::{Pid, ServerEpoch, Uid};
use crate::core::verdict::{Confidence, Suspect, Verdict};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The latest verdicts, to which late evidence may be added; those that can be asked for are the recorder's.
const MAX_VERDICTS: usize = 16;
/// How long after a client's death, or after its descriptors were closed, a memory fault may be its doing. On an H200
/// the fault came 150 to 190 ms after.
pub(super) const DEATH_REACH: Duration = Duration::from_secs(2);
/// Deaths remembered.
const MAX_DEATHS: usize = 256;

/// A client that died lately.
#[derive(Debug, Clone)]
pub(in crate::core) struct Death {
    /// Since when its work may fault: its death, or the end of its descriptors.
    pub(in crate::core) at: Duration,
    pub(super) died_at: Duration,
    pub(in crate::core) key: ProcessKey,
    pub(in crate::core) process: Process,
    pub(in crate::core) end: End,
}

impl Faults {
    /// A client's process has ended: it may have been in the middle of its work.
    pub(super) fn remember_death(&mut self, now: Duration, key: ProcessKey, process: &Process, end: End) {
        if self.deaths.len() >= MAX_DEATHS {
            self.deaths.pop_front();
        }
        self.deaths.push_back(Death { at: now, died_at: now, key, process: process.clone(), end });
    }

    /// A dead client's descriptors are closed: what its work still does faults from now on.
    pub(super) fn renew_death(&mut self, now: Duration, key: ProcessKey) {
        // Of a process that was on several servers there are several.
        let (mut renewed, others): (Deaths, Deaths) = self.deaths.drain(..).partition(|death| death.key == key);
        renewed.iter_mut().for_each(|death| death.at = now);
        self.deaths = others;
        self.deaths.append(&mut renewed);
    }
}

impl Core {
    /// The latest verdicts, oldest first.
    pub(crate) fn verdicts(&self) -> impl DoubleEndedIterator<Item = &Verdict> + ExactSizeIterator {
        self.faults.verdicts.iter()
    }

    /// A witness that can't be wrong has named the process.
    pub(super) fn judge_certain(&mut self, epoch: ServerEpoch, key: ProcessKey) {
        let Some(process) = self.clients.known_on(epoch, key).cloned() else {
            return;
        };
        let Some(incident) = self.faults.incidents.get_mut(&epoch) else {
            return;
        };
        if incident.judged.contains(&key) || (incident.is_isolated && process.condemned) {
            return;
        }
        incident.judged.push(key);
        let is_isolated = incident.is_isolated;
        let Some(verdict) = self.pronounce(epoch, Some((key, &process)), Confidence::Certain, "memory fault") else {
            return;
        };
        let policy = self.servers.get(epoch).and_then(|server| self.servers.domain(server.domain));
        if let Some(policy) = policy.map(|domain| domain.policy.faults.clone()) {
            self.sanction(&verdict, &process, &policy);
        }
        // The module has cut it off from its memory: whatever it computes from self.turn.now on is wrong.
        if is_isolated {
            self.clients.condemn(key.pid);
            self.end_client(key, &process);
        }
    }

    /// A client's own word may be enough before the window is over, or be contradicted afterwards.
    pub(super) fn judge_by_self_report(&mut self, epoch: ServerEpoch) {
        let Some(incident) = self.faults.incidents.get(&epoch).filter(|incident| incident.is_confirmed) else {
            return;
        };
        let is_due = match incident.verdict.map(|last| last.confidence) {
            None | Some(Confidence::Unknown) => incident.self_reports.points_at(true).is_some(),
            Some(Confidence::Likely) => incident.self_reports.speakers().next().is_some(),
            Some(Confidence::Certain) => false,
        };
        if is_due {
            self.judge_by_signs(epoch);
        }
    }

    /// The window is over and nobody who can know has spoken.
    pub(super) fn judge_by_signs(&mut self, epoch: ServerEpoch) {
        let Some(incident) = self.faults.incidents.get(&epoch) else {
            return;
        };
        let self_report = incident.self_reports.points_at(incident.is_confirmed);
        let pointed_at: BTreeSet<Pid> = incident.pointed_at.iter().copied().chain(self_report).collect();
        let first = incident.first_fact.unwrap_or(incident.first);
        let kind = match incident.xid {
            Some(31) => "memory fault",
            Some(13 | 43) => "exception",
            _ if incident.fault.is_some() => "memory fault",
            _ => "fault",
        };
        let living = incident.clients.iter().map(|(pid, process)| (process.key(*pid), process));
        let buried = self.faults.deaths.iter().filter(|death| death.process.server == epoch);
        let buried = buried.filter(|death| incident.clients.iter().all(|(pid, _)| *pid != death.key.pid));
        let guests = self.clients.guests().on(epoch).map(|(pid, process)| (process.key(pid), process));
        let pointed: BTreeMap<ProcessKey, Process> = living
            .chain(guests)
            .chain(buried.map(|death| (death.key, &death.process)))
            .filter(|(key, _)| pointed_at.contains(&key.pid))
            .map(|(key, process)| (key, process.clone()))
            .collect();
        let pointed: Vec<(ProcessKey, Process)> = pointed.into_iter().collect();
        let strangers = pointed_at.len() != pointed.len();
        let all_tracked = incident.clients.iter().all(|(_, process)| process.tracked);
        let reach = first.saturating_sub(DEATH_REACH);
        let dead: Vec<&Death> = self
            .faults
            .deaths
            .iter()
            .filter(|death| death.process.server == epoch && death.at >= reach && death.at <= first)
            .filter(|death| !matches!(death.end, End::Exited(_)))
            .collect();
        let (culprit, kind) = match (&pointed[..], &dead[..]) {
            // Who has died suddenly just before may have been in a kernel.
            ([(key, _)], dead) if self_report == Some(key.pid) && dead.iter().any(|death| death.key != *key) => {
                (None, kind)
            }
            ([one], _) if !strangers => (Some(one.clone()), if kind == "fault" { "exception" } else { kind }),
            ([], [one]) if !strangers && kind == "memory fault" && all_tracked && !incident.is_isolated => {
                (Some((one.key, one.process.clone())), "death in a kernel")
            }
            _ => (None, kind),
        };
        let confidence = if culprit.is_some() { Confidence::Likely } else { Confidence::Unknown };
        let culprit = culprit.as_ref().map(|(key, process)| (*key, process));
        let (who, last) = (culprit.map(|(key, _)| key), incident.verdict);
        let is_same = |last: &Pronounced| (last.culprit, last.confidence) == (who, confidence);
        if let Some(last) = last.filter(is_same) {
            let (is_confirmed, victims) = (incident.is_confirmed, self.victims_of(epoch, who).len());
            // What more is lost than was said is told; a server that is known to be lost has no other clients to lose.
            if last.is_confirmed || last.victims == victims {
                if let Some(last) = self.faults.incidents.get_mut(&epoch).and_then(|incident| incident.verdict.as_mut())
                {
                    last.is_confirmed |= is_confirmed;
                }
                return;
            }
        }
        let _ = self.pronounce(epoch, culprit, confidence, kind);
    }

    fn pronounce(
        &mut self,
        epoch: ServerEpoch,
        culprit: Option<(ProcessKey, &Process)>,
        confidence: Confidence,
        kind: &'static str,
    ) -> Option<Verdict> {
        let now = self.turn.now;
        // What has become known just now counts.
        self.find_spared(epoch);
        let suspicion = self.suspect_hardware(epoch, culprit.map(|(key, _)| key));
        let incident = self.faults.incidents.get(&epoch)?;
        let server = self.servers.get(epoch)?;
        let who = culprit.map(|(key, _)| key);
        let culprit_pid = who.map(|key| key.pid);
        let victims = self.victims_of(epoch, who);
        let others = incident.clients.iter().filter(|(pid, _)| Some(*pid) != culprit_pid);
        let is_spared = |(pid, then): &&(Pid, Process)| self.was_spared_then(epoch, *pid, then);
        let spared: Vec<Pid> = others.clone().filter(is_spared).map(|(pid, _)| *pid).collect();
        let mut users: Vec<Uid> = others.filter(|other| !is_spared(other)).map(|(_, process)| process.uid).collect();
        let dead =
            self.faults.deaths.iter().filter(|death| death.process.server == epoch && victims.contains(&death.key.pid));
        users.extend(dead.map(|death| death.process.uid));
        users.extend(culprit.map(|(_, process)| process.uid));
        users.sort_unstable();
        users.dedup();
        // What is better known, what was said before it was known that the server is lost, and what was said too soon.
        let is_corrected = |last: &Pronounced| {
            let is_of_less = !last.is_confirmed && last.confidence <= confidence;
            last.confidence < confidence || is_of_less || (last.confidence == Confidence::Likely && who.is_none())
        };
        let corrects = incident.verdict.filter(is_corrected).map(|last| last.number);
        let lost = victims.len();
        let verdict = Verdict {
            number: self.faults.next_verdict,
            incident: incident.id,
            server: server.pid.unwrap_or_default(),
            epoch,
            domain: self.servers.domain_name(server.domain),
            within: self.servers.domain(server.domain).and_then(|it| Some(it.key.entrance.as_ref()?.id)),
            culprit: culprit.map(|(process, known)| Suspect::of(process, known)),
            confidence,
            kind,
            fault: incident.fault.clone(),
            isolated: incident.is_isolated && !incident.is_confirmed,
            channel: incident.channel,
            xid: incident.xid,
            victims,
            gpus: incident.gpus.iter().cloned().collect(),
            spared: if incident.is_confirmed { spared } else { Vec::new() },
            witnesses: incident.testimonies.clone(),
            more_witnesses: incident.more,
            named_by_log: incident.hinted_at.iter().copied().filter(|pid| Some(*pid) != culprit_pid).collect(),
            suspicion,
            delay: now.saturating_sub(incident.first),
            corrects,
        };
        self.faults.next_verdict += 1;
        if let Some(incident) = self.faults.incidents.get_mut(&epoch) {
            let (number, is_confirmed) = (verdict.number, incident.is_confirmed);
            incident.verdict = Some(Pronounced { number, culprit: who, confidence, is_confirmed, victims: lost });
        }
        // Before anybody reads the number, or a successor would give it to another one.
        self.turn.save();
        if self.faults.verdicts.len() >= MAX_VERDICTS {
            self.faults.verdicts.pop_front();
        }
        self.faults.verdicts.push_back(verdict.clone());
        self.turn.log(verdict.to_string());
        self.turn.record(if corrects.is_some() {
            JournalEvent::VerdictCorrected { verdict: verdict.clone(), users }
        } else {
            JournalEvent::Verdict { verdict: verdict.clone(), users }
        });
        self.announce(epoch, verdict.clone(), culprit);
        Some(verdict)
    }

    /// The clients of a server that have lost something by its fault, other than who has caused it: where the server is
    /// lost, all that were there and have something on the GPU of the fault; else those that have failed.
    fn victims_of(&self, epoch: ServerEpoch, culprit: Option<ProcessKey>) -> Vec<Pid> {
        let Some(incident) = self.faults.incidents.get(&epoch) else {
            return Vec::new();
        };
        let is_other = |pid: &Pid| culprit.is_none_or(|culprit| culprit.pid != *pid);
        if !incident.is_confirmed {
            let failed = if incident.is_isolated { BTreeSet::new() } else { self.faults.failed_in(epoch) };
            return failed.union(&incident.lost).copied().filter(is_other).collect();
        }
        let is_hit = |(pid, then): &&(Pid, Process)| {
            is_other(pid)
                && !incident.unharmed.contains(pid)
                && !self.was_spared_then(epoch, *pid, then)
                && !self.was_let_in_only(epoch, *pid, then)
        };
        incident.clients.iter().filter(is_hit).map(|(pid, _)| *pid).collect()
    }

    /// Whether a client whose connection was under way at a fault has its own by now, and nothing else that it could have
    /// lost there.
    fn was_let_in_only(&self, epoch: ServerEpoch, pid: Pid, then: &Process) -> bool {
        let is_it = |known: &&Process| known.is(then.key(pid)) && known.server == epoch && known.connections > 0;
        self.clients.process(pid).filter(is_it).is_some_and(|now| !self.has_reached(epoch, pid, now))
    }

    /// Whether a client that was there at a fault has nothing on its GPU.
    fn was_spared_then(&self, epoch: ServerEpoch, pid: Pid, then: &Process) -> bool {
        let is_it = |known: &&Process| known.is(then.key(pid)) && known.server == epoch;
        self.clients.process(pid).filter(is_it).unwrap_or(then).gpus.is_spared
    }
}

/// All that is kept between verdicts.
pub(in crate::core) type Verdicts = VecDeque<Verdict>;
/// The clients that died lately, oldest first.
pub(in crate::core) type Deaths = VecDeque<Death>;
