//! The events of each fault, kept together while they come, for `get_fault_events`.
//!
//! Among the newest events those of a fault are pushed out by what happens later, and nothing of them says which fault
//! they belong to but for a few. Here an incident is followed from its first sign for [`FOLLOWED`]: signs, verdicts,
//! what was done to its culprit, the ends of its clients and of its server, the server in its place, those of its
//! clients that are served again there or have recovered by themselves, and the first newcomers.
//!
//! Events are read as the journal has them, so that those of an earlier daemon, read back from the file, count too.

use super::journal::recent::Remembered;
use crate::core::EntranceId;
use crate::report::Viewer;
use remps_proto::admin::Output;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long after its first sign events are taken for an incident's.
const FOLLOWED: Duration = Duration::from_secs(600);
/// Incidents that are remembered at most.
const MOST_INCIDENTS: usize = 64;
/// Events of one incident; those that come when there are as many are counted.
const MOST_EVENTS: usize = 64;
/// Admissions of newcomers to the new server: the first show that the door is open, and there may be thousands.
const MOST_NEWCOMERS: usize = 4;
/// Recoveries that are kept of one incident until a verdict says whether they belong to it.
const MOST_EARLY: usize = 32;
/// Memory that all of it may take, about.
const MOST_BYTES: usize = 96 << 10;
/// A client says that it has recovered, or that it has not.
const RECOVERED: [&str; 2] = ["client-recovered", "client-unrecovered"];
/// Where a daemon ends and its incidents with it; one that is taken over has its incidents go on.
const ENDS: [&str; 2] = ["daemon-started", "daemon-ended"];

/// One fault of a server, and what came of it.
#[derive(Debug)]
struct Incident {
    /// Its number, as its events have it; those of an earlier daemon may have the same.
    number: u64,
    /// When its first sign came, as the journal writes times.
    since: std::time::SystemTime,
    /// Whether events are still taken.
    open: bool,
    /// The spoilt server, and its domain.
    server: Option<u64>,
    domain: String,
    /// The server that took its place.
    successor: Option<u64>,
    /// The numbers of its verdicts.
    verdicts: Vec<u64>,
    /// The processes that its verdicts speak of.
    processes: Vec<u64>,
    newcomers: usize,
    /// Those of its domain who have said that they have recovered, or have not, each with which of the two, and with that
    /// event until a verdict names it.
    recovered: Vec<(u64, String, Option<Arc<Remembered>>)>,
    events: Vec<Arc<Remembered>>,
    bytes: usize,
}

/// The latest incidents, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Incidents {
    incidents: VecDeque<Incident>,
    bytes: usize,
}

impl Incidents {
    /// Takes an event in, if it belongs to an incident.
    pub(crate) fn push(&mut self, event: &Arc<Remembered>) {
        let is_followed = self.incidents.iter().any(|incident| incident.open);
        if !is_followed && !event.line().contains("\"incident\":") {
            return;
        }
        let Ok(value) = serde_json::from_str::<Value>(event.line()) else { return };
        let word = value["event"].as_str().unwrap_or_default();
        if ENDS.contains(&word) {
            self.incidents.iter_mut().for_each(|incident| incident.open = false);
            return;
        }
        let Some(time) = value["time"].as_str().and_then(|time| humantime::parse_rfc3339(time).ok()) else { return };
        for incident in &mut self.incidents {
            incident.open &= time.duration_since(incident.since).is_ok_and(|age| age < FOLLOWED);
        }
        let number = number_of(&value);
        if let Some(number) = number
            && !self.incidents.iter().any(|incident| incident.open && incident.number == number)
        {
            let incident = Incident::new(number, time);
            self.bytes += incident.bytes;
            self.incidents.push_back(incident);
        }
        for incident in self.incidents.iter_mut().filter(|incident| incident.open) {
            let before = incident.bytes;
            if incident.takes(word, &value, number) {
                incident.keep(event);
            } else if RECOVERED.contains(&word) {
                incident.recovered_early(word, &value, event);
            }
            self.bytes = self.bytes + incident.bytes - before;
        }
        while self.incidents.len() > MOST_INCIDENTS || self.bytes > MOST_BYTES {
            let Some(oldest) = self.incidents.pop_front() else { break };
            self.bytes -= oldest.bytes;
        }
    }

    /// The events of the newest incident with a verdict of this number, as far as `viewer` may see them; `None` when
    /// there is none that he may see anything of.
    pub(crate) fn list(&self, viewer: Viewer, fault: u32, output: Output) -> Option<Vec<String>> {
        let found = self.incidents.iter().rev().find(|incident| incident.verdicts.contains(&u64::from(fault)))?;
        let seen = found.events.iter().filter(|event| viewer.within.is_none() || found.is_of(event, viewer.within));
        let shown: Vec<Vec<String>> = seen.filter_map(|event| event.shown(viewer, output)).collect();
        (!shown.is_empty()).then(|| shown.concat())
    }
}

/// The incident that an event says it belongs to.
fn number_of(event: &Value) -> Option<u64> {
    event["incident"].as_u64().or_else(|| event["verdict"]["incident"].as_u64())
}

impl Incident {
    /// Whether one of its events is of a claim: the incident is, and the event is of the same domain. A process that is
    /// followed here may be another one by now, with the same number and in another claim.
    fn is_of(&self, event: &Remembered, within: Option<EntranceId>) -> bool {
        let verdict = self.events.iter().find_map(|event| event.verdict());
        if verdict.is_none_or(|verdict| verdict.within != within) {
            return false;
        }
        let value: Value = serde_json::from_str(event.line()).unwrap_or_default();
        let domain = value["domain"].as_str().or_else(|| value["verdict"]["domain"].as_str());
        domain == Some(self.domain.as_str())
    }

    fn new(number: u64, since: std::time::SystemTime) -> Self {
        Self {
            number,
            since,
            open: true,
            server: None,
            domain: String::new(),
            successor: None,
            verdicts: Vec::new(),
            processes: Vec::new(),
            newcomers: 0,
            recovered: Vec::new(),
            events: Vec::new(),
            bytes: size_of::<Self>(),
        }
    }

    /// Whether an event is one of this incident, of which it may learn whom that concerns.
    fn takes(&mut self, word: &str, event: &Value, number: Option<u64>) -> bool {
        if number == Some(self.number) {
            self.learn(word, event);
            return true;
        }
        let (server, pid) = (event["server"].as_u64(), event["process"]["pid"].as_u64());
        let is_ours = pid.is_some_and(|pid| self.processes.contains(&pid));
        let is_of_domain = event["domain"].as_str() == Some(&self.domain);
        match word {
            "culprit-sanctioned" => event["verdict"].as_u64().is_some_and(|number| self.verdicts.contains(&number)),
            // More of them would be of other faults, or made up.
            _ if RECOVERED.contains(&word) => {
                let is_first = !self.recovered.iter().any(|(of, said, _)| Some(*of) == pid && said == word);
                if is_ours && is_first {
                    self.recovered.extend(pid.map(|pid| (pid, word.to_owned(), None)));
                }
                is_ours && is_first
            }
            "culprit-gone" | "regions-adopted" | "client-ended" | "client-refused" => is_ours,
            "server-exited" => server.is_some() && server == self.server,
            "server-started" | "server-ready" | "server-start-failed" | "breaker-opened" | "breaker-closed" => {
                is_of_domain && self.successor.is_none_or(|successor| server == Some(successor))
            }
            // One of its clients is served again, or a newcomer is.
            "client-admitted" if is_ours => server != self.server,
            "client-admitted" if server.is_some() && server == self.successor => {
                self.newcomers += 1;
                self.newcomers <= MOST_NEWCOMERS
            }
            _ => false,
        }
    }

    fn keep(&mut self, event: &Arc<Remembered>) {
        if self.events.len() < MOST_EVENTS {
            self.bytes += size_of::<Arc<Remembered>>() + event.bytes();
            self.events.push(Arc::clone(event));
        }
    }

    /// A client has recovered, and no verdict has named it yet: with a spare copy that is sooner.
    fn recovered_early(&mut self, word: &str, value: &Value, event: &Arc<Remembered>) {
        let Some(pid) = value["process"]["pid"].as_u64() else { return };
        let is_of_domain = value["domain"].as_str() == Some(&self.domain);
        let is_known = self.recovered.iter().any(|(of, said, _)| *of == pid && said == word);
        if is_of_domain && !is_known && self.recovered.len() < MOST_EARLY {
            self.bytes += event.bytes();
            self.recovered.push((pid, word.to_owned(), Some(Arc::clone(event))));
        }
    }

    /// Those of them whom a verdict has named now.
    fn keep_early(&mut self) {
        for at in 0..self.recovered.len() {
            let (pid, _, early) = &mut self.recovered[at];
            if self.processes.contains(pid)
                && let Some(event) = early.take()
            {
                self.bytes -= event.bytes();
                self.keep(&event);
            }
        }
    }

    fn learn(&mut self, word: &str, event: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match word {
            "fault-sign" | "server-tainted" => {
                self.server = event["server"].as_u64().or(self.server);
                self.domain = text(&event["domain"]);
            }
            "server-swapped" => self.successor = event["to"].as_u64(),
            "verdict" | "verdict-corrected" => {
                let verdict = &event["verdict"];
                self.verdicts.extend(verdict["number"].as_u64());
                self.server = self.server.or(verdict["server"].as_u64());
                self.domain = text(&verdict["domain"]);
                let victims = verdict["victims"].as_array().into_iter().flatten().filter_map(Value::as_u64);
                self.processes.extend(victims.chain(verdict["culprit"]["pid"].as_u64()));
                self.keep_early();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
