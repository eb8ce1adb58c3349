//! What becomes of culprits: ended, put into a domain of their own, or refused for a while.
//!
//! Only a verdict that is certain counts. A culprit is gone after its fault, so what is remembered is its like: the
//! user's processes of the same workload and program, and for as long as a fault of it counts or a sanction lasts.
//!
//! Whom the daemon ends it first has terminated by the server, which takes the client's work off the GPU, and then asks
//! its process to end, and kills after `kill_timeout`: a client that is killed at work takes the others along.

use super::{Faults, quarantine};
use crate::core::clients::admission::Process;
use crate::core::effect::Turn;
use crate::core::evidence::ProcessKey;
use crate::core::identity::Identity;
use crate::core::ids::Uid;
use crate::core::journal::{JournalEvent, Sanction};
use crate::core::policy::{CulpritAction, FaultPolicy, cgroup_unit};
use crate::core::servers::questions::Purpose;
use crate::core::servers::server::Server;
use crate::core::verdict::Verdict;
use crate::core::{Core, Effect, Peer};
use core::fmt;
use core::time::Duration;
use remps_proto::mps::server::Request;
use std::collections::{BTreeMap, VecDeque};

/// How many offenders are remembered; the one whose last fault is oldest makes room.
const MAX_OFFENDERS: usize = 1024;

/// Processes that are taken for each other's like.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core) struct Offender {
    uid: Uid,
    /// Pod, container, job or unit.
    unit: String,
    /// The first word of the command line.
    program: String,
}

impl Offender {
    pub(in crate::core) fn of(uid: Uid, identity: &Identity) -> Self {
        let program = identity.command.split_whitespace().next().unwrap_or_default().to_owned();
        Self { uid, unit: cgroup_unit(&identity.cgroup).to_owned(), program }
    }
}

impl fmt::Display for Offender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, unit, program } = self;
        write!(f, "{} of user {uid}", if program.is_empty() { "a program" } else { program })?;
        if unit.is_empty() { Ok(()) } else { write!(f, " in {unit}") }
    }
}

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

/// All offenders.
#[derive(Debug, Default)]
pub(in crate::core) struct Offenders(BTreeMap<Offender, Record>);

impl Offenders {
    /// The number of an offender's quarantine, if it has had one.
    pub(in crate::core) fn quarantine(&self, offender: &Offender) -> Option<u64> {
        self.0.get(offender)?.quarantine
    }

    /// Notes the number of an offender's quarantine.
    pub(super) fn set_quarantine(&mut self, offender: &Offender, number: u64) {
        if let Some(record) = self.0.get_mut(offender) {
            record.quarantine = Some(number);
        }
    }

    /// Counts a fault and says what follows by the policy.
    fn count(&mut self, now: Duration, offender: Offender, policy: &FaultPolicy) -> Vec<(Sanction, Duration)> {
        if policy.quarantine_after == 0 && policy.refuse_after == 0 {
            return Vec::new();
        }
        if self.0.len() >= MAX_OFFENDERS
            && !self.0.contains_key(&offender)
            && let Some(oldest) =
                self.0.iter().min_by_key(|(_, record)| record.faults.back().copied()).map(|(key, _)| key.clone())
        {
            self.0.remove(&oldest);
        }
        let record = self.0.entry(offender).or_default();
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
}

impl Faults {
    /// Whether anybody has caused a fault that counts.
    pub(in crate::core) fn has_offenders(&self) -> bool {
        !self.offenders.0.is_empty()
    }

    pub(in crate::core) fn is_quarantined(&self, now: Duration, offender: &Offender) -> bool {
        self.offenders.0.get(offender).and_then(|record| record.quarantined_until).is_some_and(|until| until > now)
    }

    /// The server has ended the client's work, or can't; now its process.
    pub(in crate::core) fn client_terminated(&mut self, turn: &mut Turn, key: ProcessKey) {
        if let Some(ending) = self.endings.get_mut(&key)
            && !ending.is_asked
        {
            ending.is_asked = true;
            turn.push(Effect::EndProcess { process: key, force: false });
        }
    }

    /// Kills those that did not end.
    pub(in crate::core) fn advance_endings(&mut self, turn: &mut Turn) {
        let now = turn.now;
        let due: Vec<ProcessKey> =
            self.endings.iter().filter(|(_, ending)| ending.kill_at <= now).map(|(key, _)| *key).collect();
        for key in due {
            self.endings.remove(&key);
            turn.push(Effect::EndProcess { process: key, force: true });
        }
    }

    /// Forgets offenders whose faults count no longer: who a newcomer is then matters as little as before.
    pub(in crate::core) fn advance_offenders(&mut self, now: Duration) {
        self.offenders.0.retain(|_, record| record.forgotten_at() > now);
    }

    pub(super) fn offenders_deadline(&self) -> Option<Duration> {
        self.offenders.0.values().map(Record::forgotten_at).min()
    }

    pub(super) fn endings_deadline(&self) -> Option<Duration> {
        self.endings.values().map(|ending| ending.kill_at).min()
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
        let until = self.faults.offenders.0.get(&offender)?.refused_until.filter(|until| *until > now)?;
        Some(format!("{offender} has caused too many faults, for {} s more", (until - now).as_secs() + 1))
    }

    /// Does what the policy says to the culprit of a verdict that is certain.
    pub(in crate::core) fn sanction(&mut self, verdict: &Verdict, process: &Process, policy: &FaultPolicy) {
        let Some(culprit) = &verdict.culprit else {
            return;
        };
        let key = culprit.process;
        let (number, uid, domain) = (verdict.number, culprit.uid, verdict.domain.clone());
        let mut sanctions = vec![];
        match policy.culprit {
            CulpritAction::Report => sanctions.push((Sanction::Report, None)),
            CulpritAction::Terminate => {
                sanctions.push((Sanction::Terminate, None));
                self.end_client(key, process);
            }
        }
        let offender = Offender::of(uid, &process.identity);
        let counted = self.faults.offenders.count(self.turn.now, offender.clone(), policy);
        sanctions.extend(counted.into_iter().map(|(sanction, lasts)| (sanction, Some(lasts))));
        for (sanction, lasts) in sanctions {
            let domain = domain.clone();
            let is_quarantine = sanction == Sanction::Quarantine;
            let quarantine = is_quarantine.then(|| quarantine::name(self.quarantine_number(&offender)));
            self.turn.record(JournalEvent::CulpritSanctioned {
                verdict: number,
                process: key,
                uid,
                domain,
                sanction,
                lasts,
                quarantine,
                offender: is_quarantine.then(|| offender.to_string()),
            });
        }
    }

    /// Ends a client: its work on the GPU first, since a client that dies in a kernel takes the others along, then its
    /// process, politely and after `kill_timeout` not.
    pub(super) fn end_client(&mut self, key: ProcessKey, process: &Process) {
        if self.faults.endings.contains_key(&key) {
            return;
        }
        self.turn.log(format!("Client {} is ended", key.pid));
        let kill_at = self.turn.now + self.turn.policy.kill_timeout;
        self.faults.endings.insert(key, Ending { kill_at, is_asked: false });
        let reachable = self.servers.get(process.server).is_some_and(Server::is_connected);
        if reachable {
            self.servers.ask(
                &mut self.turn,
                process.server,
                Request::TerminateClient(key.pid),
                Purpose::EndClient(key),
            );
        } else {
            self.faults.client_terminated(&mut self.turn, key);
        }
    }
}

/// A client that the daemon ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) struct Ending {
    /// When it is killed, if it is still there.
    kill_at: Duration,
    /// Whether it has had its SIGTERM.
    is_asked: bool,
}
