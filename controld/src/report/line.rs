//! An event on one line.

use super::text::{harmless, moment};
use core::fmt::Write as _;
use serde_json::Value;

/// Members that are no values: the number and who may see it are for programs, and time and name begin the line.
const LEFT_OUT: [&str; 4] = ["seq", "time", "event", "users"];
/// Objects whose members are called as if they were the event's own: whom it is about, and what it says.
const OWN: [&str; 2] = ["process", "verdict"];
/// What a reader looks for first, and so finds first.
const FIRST: [&str; 4] = ["pid", "culprit.pid", "domain", "server"];
/// Numbers that are written as the tables write them, in hexadecimal.
const HEXADECIMAL: [&str; 2] = ["address", "channel"];

/// An event of the journal for a reader: `TIME name key=value …`. The object is a line of the journal.
///
/// The time is in UTC, with a blank for its `T` where that is asked for ([`moment`]).
/// Process, domain and server come first, the others by their names. What is null or empty is left out.
pub(crate) fn event_line(event: &Value, utc: bool) -> String {
    let word = |key: &str| harmless(event[key].as_str().unwrap_or_default());
    let time = moment(event["time"].as_str().unwrap_or_default(), utc);
    let mut line = format!("{time} {}", word("event"));
    let mut pairs = Vec::new();
    if let Value::Object(map) = event {
        for (key, value) in map.iter().filter(|(key, _)| !LEFT_OUT.contains(&key.as_str())) {
            gather(&mut pairs, key, value);
        }
    }
    // The sort is stable.
    pairs.sort_by_key(|(name, _)| FIRST.iter().position(|first| *first == name.as_str()).unwrap_or(FIRST.len()));
    for (name, value) in pairs {
        // Writing into a string does not fail.
        let _ = write!(line, " {}={value}", harmless(&name));
    }
    line
}

/// Adds what a member says, under its full name: members of an object have the object's name before their own, as
/// `culprit.pid` and `fault.kind`.
fn gather(pairs: &mut Vec<(String, String)>, name: &str, value: &Value) {
    let text = match value {
        Value::Null => return,
        Value::Object(map) => {
            for (key, value) in map {
                let full = if OWN.contains(&name) { key.clone() } else { format!("{name}.{key}") };
                gather(pairs, &full, value);
            }
            return;
        }
        Value::Array(values) if values.is_empty() => return,
        Value::Array(values) => values.iter().map(element).collect::<Vec<_>>().join(","),
        Value::String(text) if text.is_empty() => return,
        Value::String(text) if text.contains([' ', '"', '=']) => {
            format!("\"{}\"", harmless(text).replace('"', "\\\""))
        }
        Value::String(text) => harmless(text),
        Value::Bool(_) => value.to_string(),
        Value::Number(number) => {
            let is_hexadecimal = name.rsplit('.').next().is_some_and(|last| HEXADECIMAL.contains(&last));
            let hexadecimal = number.as_u64().filter(|_| is_hexadecimal).map(|number| format!("{number:#x}"));
            hexadecimal.unwrap_or_else(|| number.to_string())
        }
    };
    pairs.push((name.to_owned(), text));
}

/// One of several values; a witness's statement is told by the witness's name.
fn element(value: &Value) -> String {
    match value {
        Value::Object(map) => harmless(map.get("witness").and_then(Value::as_str).unwrap_or("{}")),
        Value::String(text) => harmless(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => value.to_string(),
    }
}
