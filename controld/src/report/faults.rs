//! The latest verdicts, and `get_fault_list`.

use super::table::aligned;
use super::text::{NOTHING, harmless, moment, or_nothing};
use super::{Viewer, fitted};
use crate::core::{Pid, SuspectIdentity, Uid, Verdict};
use remps_proto::admin::{Form, Output};
use serde_json::Value;
use std::collections::VecDeque;

/// Verdicts that are remembered at most.
const MOST_FAULTS: usize = 256;
/// Memory that they may take, about: some 80 verdicts of ordinary length. What is older is in the journal's file.
const MOST_BYTES: usize = 192 << 10;
/// In JSON, what the line of a verdict has besides the verdict: when it was given.
const TIME: &str = "time";

const HEADING: [&str; 12] =
    ["FAULT", "TIME", "CULPRIT", "UID", "SURE", "KIND", "ADDRESS", "GPU", "DOMAIN", "VICTIMS", "WITNESSES", "COMMAND"];
/// Those of the table that is not wide, in its order: the domain tells the user, and `explain` where on the GPU it was
/// and who says so. The texts are last, since they go to a second line.
const BRIEF: [&str; 8] = ["FAULT", "TIME", "CULPRIT", "SURE", "VICTIMS", "DOMAIN", "KIND", "COMMAND"];

/// A verdict with the time when it was given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// Given by this daemon.
    Own {
        /// When, in RFC 3339.
        time: String,
        verdict: Box<Verdict>,
        /// The users whose processes it speaks of.
        users: Vec<Uid>,
    },
    /// Given by an earlier one: the verdict as its journal has it. Only who may see everything sees it, since a
    /// journal may have been written by anybody who can write to the log directory.
    Earlier {
        /// When, in RFC 3339.
        time: String,
        /// The verdict, as JSON.
        verdict: String,
    },
}

impl Fault {
    /// The memory that it takes, about.
    fn bytes(&self) -> usize {
        let content = match self {
            Self::Own { verdict, users, .. } => {
                let texts = verdict.witnesses.iter().map(|testimony| testimony.text.len()).sum::<usize>();
                let identity = verdict.culprit.as_ref().map_or(0, |culprit| {
                    let SuspectIdentity { cgroup, container, pod, names, command, seen_as: _ } = &culprit.identity;
                    let named = [container, pod].into_iter().flatten().map(String::len).sum::<usize>();
                    let names = names
                        .as_ref()
                        .map_or(0, |names| names.namespace.len() + names.pod_name.len() + names.container_name.len());
                    cgroup.len() + command.len() + named + names
                });
                size_of::<Verdict>()
                    + size_of_val(verdict.witnesses.as_slice())
                    + size_of_val(verdict.victims.as_slice())
                    + size_of_val(verdict.named_by_log.as_slice())
                    + size_of_val(verdict.spared.as_slice())
                    + size_of_val(verdict.gpus.as_slice())
                    + size_of_val(users.as_slice())
                    + texts
                    + identity
            }
            Self::Earlier { verdict, .. } => verdict.len(),
        };
        size_of::<Self>() + content
    }

    /// The verdict as `viewer` may see it, with its time; `None` when it does not concern him.
    fn seen_by(&self, viewer: Viewer) -> Option<Value> {
        let (time, mut value) = match self {
            Self::Own { time, verdict, users } => {
                if viewer.within.is_some() && verdict.within != viewer.within {
                    return None;
                }
                if !viewer.privileged && !users.contains(&viewer.uid) {
                    return None;
                }
                let mut shown =
                    if viewer.privileged { (**verdict).clone() } else { verdict.without_private_parts(viewer.uid) };
                if viewer.within.is_some() {
                    shown.forget_the_nodes_words();
                }
                // A verdict has string keys and no number that JSON can't say.
                (time, serde_json::to_value(shown).unwrap_or_default())
            }
            Self::Earlier { time, verdict } => (time, serde_json::from_str(verdict).unwrap_or_default()),
        };
        let sees_all = viewer.privileged && viewer.within.is_none();
        if matches!(self, Self::Earlier { .. }) && !sees_all {
            return None;
        }
        if let Value::Object(map) = &mut value {
            map.insert(TIME.to_owned(), Value::String(time.clone()));
        }
        Some(value)
    }
}

/// The latest verdicts, oldest first, a bounded number of them.
#[derive(Debug, Default)]
pub(crate) struct FaultLedger {
    faults: VecDeque<Fault>,
    bytes: usize,
}

impl FaultLedger {
    /// Remembers a verdict; the oldest are forgotten when there are too many, or they take too much.
    pub(crate) fn push(&mut self, fault: Fault) {
        self.bytes += fault.bytes();
        self.faults.push_back(fault);
        while self.faults.len() > MOST_FAULTS || self.bytes > MOST_BYTES {
            let Some(oldest) = self.faults.pop_front() else { break };
            self.bytes -= oldest.bytes();
        }
    }

    /// The numbers of this daemon's verdicts that name a process as culprit, oldest first.
    pub(crate) fn against(&self, pid: Pid, start_time: u64) -> Vec<u64> {
        let own = self.faults.iter().filter_map(|fault| match fault {
            Fault::Own { verdict, .. } => Some(verdict),
            Fault::Earlier { .. } => None,
        });
        let named = own.filter(|verdict| {
            verdict
                .culprit
                .as_ref()
                .is_some_and(|culprit| culprit.process.pid == pid && culprit.process.start_time == start_time)
        });
        named.map(|verdict| verdict.number).collect()
    }

    /// The answer to `get_fault_list`: the newest `count` of those that `viewer` may see, oldest first.
    pub(crate) fn list(&self, viewer: Viewer, count: Option<u32>, output: Output) -> Vec<String> {
        let count = count.map_or(MOST_FAULTS, |count| usize::try_from(count).unwrap_or(MOST_FAULTS));
        let mut newest: Vec<Value> =
            self.faults.iter().rev().filter_map(|fault| fault.seen_by(viewer)).take(count).collect();
        newest.reverse();
        let Output { form, utc } = output;
        let rows = newest.iter().map(|verdict| row(verdict, utc));
        match form {
            Form::Json => newest.iter().map(fitted).collect(),
            Form::Wide => aligned(&HEADING, &rows.collect::<Vec<_>>(), form),
            Form::Table => aligned(&BRIEF, &rows.map(|row| brief(&row)).collect::<Vec<_>>(), form),
        }
    }
}

/// Of a row the cells that the narrow table has, and its time to the second.
fn brief(row: &[String]) -> Vec<String> {
    let cell = |wanted: &&str| HEADING.iter().zip(row).find(|(name, _)| *name == wanted).map(|(_, cell)| cell.as_str());
    let cells = BRIEF.iter().map(|name| match cell(name).unwrap_or(NOTHING).split_once('.') {
        Some((seconds, _)) if *name == "TIME" => format!("{seconds}Z"),
        _ => cell(name).unwrap_or(NOTHING).to_owned(),
    });
    cells.collect()
}

/// The GPUs of a verdict; an earlier daemon's has one at most, and only of a memory fault.
fn gpus(verdict: &Value) -> String {
    let all = verdict["gpus"].as_array().into_iter().flatten();
    let names: Vec<&str> = all.chain([&verdict["fault"]["gpu"]]).filter_map(Value::as_str).collect();
    let is_whole = |name: &&&str| !names.iter().any(|other| other.starts_with(&format!("{name}/")));
    let mut names: Vec<String> = names.iter().filter(is_whole).map(|name| harmless(name)).collect();
    names.dedup();
    if names.is_empty() { NOTHING.to_owned() } else { names.join(" ") }
}

/// A verdict's row, from its JSON, since an earlier daemon's is known in no other form.
fn row(verdict: &Value, utc: bool) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::Null => NOTHING.to_owned(),
        Value::String(text) => harmless(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    };
    let culprit = &verdict["culprit"];
    let address = verdict["fault"]["address"].as_u64().map(|address| format!("{address:#x}"));
    let count = |value: &Value| value.as_array().map(Vec::len);
    let mut witnesses: Vec<String> =
        verdict["witnesses"].as_array().into_iter().flatten().map(|testimony| text(&testimony["witness"])).collect();
    witnesses.dedup();
    let mut kind = text(&verdict["kind"]);
    let hinted: Vec<String> = verdict["named_by_log"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .map(|pid| pid.to_string())
        .collect();
    if culprit.is_null() && !hinted.is_empty() {
        kind.push_str(&format!(", the log names {} without proof", hinted.join(" ")));
    }
    if let Some(corrected) = verdict["corrects"].as_u64() {
        kind.push_str(&format!(", corrects {corrected}"));
    }
    vec![
        text(&verdict["number"]),
        moment(verdict[TIME].as_str().unwrap_or_default(), utc),
        match culprit["seen_as"].as_u64() {
            Some(seen_as) => format!("{}~{seen_as}", text(&culprit["pid"])),
            None => text(&culprit["pid"]),
        },
        text(&culprit["uid"]),
        text(&verdict["confidence"]),
        kind,
        or_nothing(address),
        gpus(verdict),
        text(&verdict["domain"]),
        or_nothing(count(&verdict["victims"])),
        if witnesses.is_empty() { NOTHING.to_owned() } else { witnesses.join(",") },
        text(&culprit["command"]),
    ]
}
