//! Who was hit by a fault, and what became of each.

use super::gather::Facts;
use serde::Serialize;
use serde_json::Value;

/// A process's part in a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Part {
    /// The verdict names it.
    Culprit,
    /// It was lost with it.
    Victim,
    /// It was on the same server, and has nothing on the GPU of the fault.
    Spared,
}

impl Part {
    /// Its word.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Culprit => "culprit",
            Self::Victim => "victim",
            Self::Spared => "spared",
        }
    }
}

/// A process that a fault concerns.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Person {
    pub pid: u64,
    /// Its pid on the machine, where it has none for the daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen_as: Option<u64>,
    /// Its container, where its pid says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    pub part: Part,
    /// Its user, where that is known.
    pub uid: Option<u64>,
    /// Its command line, where that is known.
    pub command: Option<String>,
    /// What became of it, or `unknown`.
    pub now: String,
}

/// Everybody whom the verdict speaks of.
pub(super) fn of(facts: &Facts) -> Vec<Person> {
    let verdict = &facts.verdict;
    let pids = |key: &str| verdict[key].as_array().into_iter().flatten().filter_map(Value::as_u64).collect::<Vec<_>>();
    let culprit = verdict["culprit"]["pid"].as_u64().map(|pid| (pid, Part::Culprit));
    let isolated = verdict["isolated"].as_bool().unwrap_or_default();
    let victims = if isolated { Vec::new() } else { pids("victims") };
    let victims = victims.into_iter().map(|pid| (pid, Part::Victim));
    let spared = pids("spared").into_iter().map(|pid| (pid, Part::Spared));
    culprit.into_iter().chain(victims).chain(spared).map(|(pid, part)| person(facts, pid, part)).collect()
}

fn person(facts: &Facts, pid: u64, part: Part) -> Person {
    let known = known(facts, pid);
    let told = if part == Part::Culprit { &facts.verdict["culprit"] } else { &Value::Null };
    let uid = told["uid"].as_u64().or_else(|| known?["uid"].as_u64());
    let of_client = || known?["identity"]["command"].as_str();
    let command = told["command"].as_str().filter(|command| !command.is_empty()).or_else(of_client);
    let command = command.filter(|command| !command.is_empty()).map(str::to_owned);
    let of = |key: &str| Some(&told[key]).filter(|value| !value.is_null()).or_else(|| Some(&known?["identity"][key]));
    let seen_as = of("seen_as").and_then(Value::as_u64);
    let container = of("container").and_then(Value::as_str).filter(|_| seen_as.is_some()).map(str::to_owned);
    Person { pid, seen_as, container, part, uid, command, now: now(facts, pid, known) }
}

/// What the daemon knows of a process now: of a number that has been given again, the one that came before the fault.
fn known(facts: &Facts, pid: u64) -> Option<&Value> {
    let start = (facts.verdict["culprit"]["pid"].as_u64() == Some(pid))
        .then(|| facts.verdict["culprit"]["start_time"].as_u64())
        .flatten();
    let is_it = |client: &&Value| {
        client["process"]["pid"].as_u64() == Some(pid)
            && start.is_none_or(|start| client["process"]["start_time"].as_u64() == Some(start))
    };
    facts.clients.iter().rfind(is_it)
}

/// What became of a process. Its end in the fault's own events counts before a process of now, which may be another one
/// with its number.
fn now(facts: &Facts, pid: u64, known: Option<&Value>) -> String {
    let of_it = |event: &&Value| event["process"]["pid"].as_u64() == Some(pid);
    let events = facts.events.as_deref().unwrap_or_default();
    let ended = events.iter().filter(of_it).rfind(|event| event["event"] == "client-ended");
    if let Some(ended) = ended {
        return end(&ended["end"]);
    }
    let again = events.iter().filter(of_it).rfind(|event| event["event"] == "client-admitted");
    let Some(client) = known else {
        return again.map_or_else(|| "unknown".to_owned(), |event| format!("was served again by {}", event["server"]));
    };
    match client["phase"].as_str().unwrap_or_default() {
        "gone" => end(&client["end"]),
        "lost" => format!("holds on to lost server {}", client["server"]),
        "waiting" => "waits for a server".to_owned(),
        _ if client["server"] == facts.verdict["server"] => format!("goes on at server {}", client["server"]),
        _ => format!("goes on, now at server {}", client["server"]),
    }
}

/// How a process ended, in words.
pub(super) fn end(end: &Value) -> String {
    if let Some(status) = end["exited"].as_i64() {
        return format!("ended with status {status}");
    }
    if let Some(signal) = end["signaled"].as_i64() {
        return format!("was killed by signal {signal}");
    }
    match end.as_str() {
        Some("out-of-memory") => "was killed by the kernel for want of memory".to_owned(),
        _ => "ended, nobody could say how".to_owned(),
    }
}
