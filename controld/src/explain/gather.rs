//! Asks the daemon for what it knows of a fault.

use crate::ui::{self, Unanswered};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// How long one answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// What is known of a fault. All of it is the daemon's JSON.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Facts {
    /// The verdict, with its time.
    pub verdict: Value,
    /// The number of a later verdict that corrects this one.
    pub corrected_by: Option<u64>,
    /// The verdicts before this one with the same culprit's user and command, in the list's memory.
    pub earlier: usize,
    /// The events of the fault, oldest first; `None` when the daemon does not know them any more, or is too old to.
    pub events: Option<Vec<Value>>,
    /// The clients of now, and the last that are gone; empty when nobody knows.
    pub clients: Vec<Value>,
}

/// Why nothing can be explained.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    #[error("the daemon's fault list has no fault {0} that you may see; get_fault_list shows those that it has")]
    NoFault(u64),
    #[error("the daemon does not answer as ReMPS does: {0}")]
    Strange(String),
}

impl Facts {
    /// Asks for a fault by its number in the fault list; the newest, where an earlier daemon's has the same one.
    ///
    /// # Errors
    /// When no daemon answers, or it has no such fault.
    pub(super) fn ask(pipe_dir: &Path, fault: u64) -> Result<Self, AskError> {
        let ask = |command: &str| ui::ask(pipe_dir, command, ANSWER_LIMIT).map(|answer| answer.text);
        let list = ask("get_fault_list --json")?;
        let Some(faults) = objects(&list) else {
            return Err(AskError::Strange(list.lines().next().unwrap_or_default().to_owned()));
        };
        let events = objects(&ask(&format!("get_fault_events {fault} --json"))?).filter(|events| !events.is_empty());
        // A fault is explained without them as well.
        let status: Value = serde_json::from_str(&ask("status --json")?).unwrap_or_default();
        let clients = status["clients"].as_array().cloned().unwrap_or_default();
        Self::of(&faults, fault, events, clients).ok_or(AskError::NoFault(fault))
    }

    /// Of the whole list.
    pub(super) fn of(faults: &[Value], fault: u64, events: Option<Vec<Value>>, clients: Vec<Value>) -> Option<Self> {
        let at = faults.iter().rposition(|verdict| verdict["number"].as_u64() == Some(fault))?;
        let verdict = faults[at].clone();
        let corrects = |later: &&Value| later["corrects"].as_u64() == Some(fault);
        let corrected_by = faults[at..].iter().find(corrects).and_then(|later| later["number"].as_u64());
        let culprit = &verdict["culprit"];
        let is_alike = |other: &&Value| {
            ["uid", "command"].iter().all(|key| other["culprit"][key] == culprit[key])
                && other["incident"] != verdict["incident"]
        };
        let earlier = if culprit["command"].as_str().is_some_and(|command| !command.is_empty()) {
            faults[..at].iter().filter(is_alike).count()
        } else {
            0
        };
        Some(Self { corrected_by, earlier, events, clients, verdict })
    }
}

/// An answer that is JSON objects line by line; `None` when it is something else.
fn objects(answer: &str) -> Option<Vec<Value>> {
    let parse = |line| serde_json::from_str(line).ok().filter(Value::is_object);
    answer.lines().map(parse).collect()
}
