//! What clients that were hit say of how they went on: which way they took and how long each step was.

use super::gather::Facts;
use serde::Serialize;
use serde_json::Value;

/// Steps that are named in a line, the longest ones: the others are in the JSON.
const NAMED: usize = 3;

/// How one client went on. Times and steps are the journal's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Recovery {
    pub pid: u64,
    /// `cold`, `spare`, `no-spare`, `spare-failed` or `other`.
    pub way: String,
    pub total_ms: f64,
    /// Milliseconds by step.
    pub steps_ms: Value,
    /// Milliseconds by step of what was done with a spare copy.
    pub switch_ms: Value,
}

/// In the order in which they were told.
pub(super) fn of(facts: &Facts) -> Vec<Recovery> {
    let events = facts.events.iter().flatten();
    events.filter(|event| event["event"] == "client-recovered").filter_map(recovery).collect()
}

fn recovery(event: &Value) -> Option<Recovery> {
    Some(Recovery {
        pid: event["process"]["pid"].as_u64()?,
        way: event["way"].as_str()?.to_owned(),
        total_ms: event["total_ms"].as_f64()?,
        steps_ms: event["steps_ms"].clone(),
        switch_ms: event["switch_ms"].clone(),
    })
}

/// A recovery in words.
pub(super) fn told(event: &Value) -> String {
    let Some(Recovery { pid, way, total_ms, steps_ms, switch_ms }) = recovery(event) else {
        return "a client has recovered".to_owned();
    };
    let way = match way.as_str() {
        "spare" => " with its spare copy",
        "no-spare" => " without a spare copy, as none was ready",
        "spare-failed" => " without its spare copy, which failed",
        _ => "",
    };
    // The parts of a switch say more than the two steps that they are in.
    let steps = if switch_ms.as_object().is_some_and(|steps| !steps.is_empty()) { switch_ms } else { steps_ms };
    let mut steps: Vec<(&str, f64)> = steps
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, time)| Some((name.as_str(), time.as_f64()?)))
        .collect();
    steps.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    steps.truncate(NAMED);
    let steps: Vec<String> = steps.iter().map(|(name, time)| format!("{name} {time:.2}")).collect();
    let steps = if steps.is_empty() { String::new() } else { format!(": {}", steps.join(", ")) };
    format!("{pid} says it has recovered{way} in {total_ms:.2} ms{steps}")
}
