//! A fault in words: what happened, how sure it is, who says so, and what nobody knows.

use super::gather::Facts;
use serde::Serialize;
use serde_json::Value;

/// What one witness has said.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Evidence {
    /// Who says so, such as `uvm-event`.
    pub witness: String,
    /// What its word is worth.
    pub worth: &'static str,
    /// Whom it names, right or wrong.
    pub names: Option<u64>,
    /// When it reached the daemon, after the first sign.
    pub after_ms: Option<f64>,
    /// Its words; empty where they are not for the asker.
    pub text: String,
}

/// What happened, in one sentence.
pub(super) fn summary(verdict: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let kind = text(&verdict["kind"]);
    let fault = &verdict["fault"];
    let gpus: Vec<String> = verdict["gpus"].as_array().into_iter().flatten().map(text).collect();
    let gpu = fault["gpu"].as_str().map(str::to_owned).or_else(|| (!gpus.is_empty()).then(|| gpus.join(" ")));
    let mut what = match fault["address"].as_u64() {
        Some(address) => format!("{kind} ({} of {address:#x}, {})", text(&fault["access"]), text(&fault["kind"])),
        None => kind,
    };
    if let Some(gpu) = gpu {
        what.push_str(&format!(" on {gpu}"));
    }
    let place = format!("server {} of domain \"{}\"", verdict["server"], text(&verdict["domain"]));
    let culprit = &verdict["culprit"];
    let begin = match culprit["pid"].as_u64() {
        Some(pid) => format!("Client {pid}{} of user {} made a {what} at {place}", elsewhere(culprit), culprit["uid"]),
        None => format!("A {what} has hit {place}, and nobody can be named as its cause"),
    };
    format!("{begin}; {}.", losses(verdict))
}

/// Which process of the machine a client is that has no pid for the daemon, and where it runs.
fn elsewhere(client: &Value) -> String {
    let Some(pid) = client["seen_as"].as_u64() else { return String::new() };
    let place = client["container"].as_str().map(|container| format!(" in container {container}"));
    format!(" (process {pid} of the machine{})", place.unwrap_or_default())
}

fn losses(verdict: &Value) -> String {
    let count = |key: &str| verdict[key].as_array().map_or(0, Vec::len);
    let clients = |count: usize| if count == 1 { "1 client".to_owned() } else { format!("{count} clients") };
    if verdict["isolated"].as_bool().unwrap_or_default() {
        return "the patched module kept it from everybody else".to_owned();
    }
    let whose = if verdict["culprit"].is_null() { "" } else { "other " };
    let mut told = match count("victims") {
        0 => format!("no {whose}client was lost"),
        1 => format!("1 {whose}client was lost with it"),
        many => format!("{many} {whose}clients were lost with it"),
    };
    match count("spared") {
        0 => {}
        many => told.push_str(&format!(", {} on other GPUs unharmed", clients(many))),
    }
    told
}

/// How sure the culprit is, and why.
pub(super) fn confidence(verdict: &Value, corrected_by: Option<u64>) -> String {
    let sure = verdict["confidence"].as_str().unwrap_or("unknown");
    let why = match sure {
        "certain" => "a witness that can't be wrong about who has named the culprit",
        "likely" => "signs that nobody else can give point to one process, and none of them is proof",
        _ => "nobody who can know has named anybody",
    };
    let mut told = format!("{sure}: {why}");
    let named: Vec<String> =
        verdict["named_by_log"].as_array().into_iter().flatten().map(ToString::to_string).collect();
    if !named.is_empty() {
        told.push_str(&format!("; the server's log, which anybody can write, names {}", named.join(" ")));
    }
    if let Some(number) = verdict["corrects"].as_u64() {
        told.push_str(&format!("; it corrects fault {number}"));
    }
    if let Some(number) = corrected_by {
        told.push_str(&format!("; it was corrected by fault {number}, which holds"));
    }
    told
}

/// What the witnesses have said.
pub(super) fn evidence(verdict: &Value) -> Vec<Evidence> {
    let said = |testimony: &Value| Evidence {
        witness: testimony["witness"].as_str().unwrap_or("?").to_owned(),
        worth: worth(testimony["witness"].as_str().unwrap_or_default()),
        names: testimony["names"].as_u64(),
        after_ms: testimony["after_ms"].as_f64(),
        text: testimony["text"].as_str().unwrap_or_default().to_owned(),
    };
    verdict["witnesses"].as_array().into_iter().flatten().map(said).collect()
}

/// What a witness's word is worth: the page of `status` says the same.
fn worth(witness: &str) -> &'static str {
    match witness {
        "uvm-event" | "notice" => "proof",
        "shim" => "speaks of itself alone",
        "server-status" => "says that, and not who",
        "server-log" => "anybody can write it",
        "xid" => "often names others",
        _ => "not known here",
    }
}

/// What nobody knows of this fault, for a reader who would look for it.
pub(super) fn unknown(facts: &Facts) -> Vec<String> {
    let verdict = &facts.verdict;
    let mut unknown = Vec::new();
    let mut say = |is_unknown: bool, what: &str| {
        if is_unknown {
            unknown.push(what.to_owned());
        }
    };
    say(verdict["culprit"].is_null(), "who caused it");
    let is_memory = verdict["kind"] == "memory fault";
    say(is_memory && verdict["fault"].is_null(), "which address it was");
    let nowhere = verdict["gpus"].as_array().is_none_or(Vec::is_empty) && verdict["fault"]["gpu"].is_null();
    say(nowhere, "on which GPU it was");
    let events = facts.events.as_deref();
    say(
        events.is_none(),
        "what happened besides the verdict: the daemon has no events of it any more (events.jsonl may)",
    );
    let has = |word: &str| events.is_some_and(|events| events.iter().any(|event| event["event"] == word));
    let lost = !verdict["isolated"].as_bool().unwrap_or_default();
    say(events.is_some() && lost && !has("server-exited"), "when the lost server ends: no end is known");
    say(events.is_some() && lost && !has("server-swapped"), "which server takes its place: nobody has needed one yet");
    say(verdict["cut"].as_bool().unwrap_or_default(), "the rest of a verdict that was too long for a line");
    unknown
}
