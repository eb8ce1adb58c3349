//! An event on one line.

use super::table::harmless;
use core::fmt::Write as _;
use serde_json::Value;

/// An event of the journal for a reader: `TIME name key=value …`. The object is a line of the journal.
#[must_use]
pub fn event_line(event: &Value) -> String {
    let word = |key: &str| harmless(event[key].as_str().unwrap_or_default());
    let mut line = format!("{} {}", word("time"), word("event"));
    if let Value::Object(map) = event {
        for (key, value) in map.iter().filter(|(key, _)| !matches!(key.as_str(), "seq" | "time" | "event")) {
            pairs(&mut line, key, value);
        }
    }
    line
}

/// Nested objects give their members the member's own name: `process.pid` is `pid`, and what is null is left out.
fn pairs(line: &mut String, key: &str, value: &Value) {
    // Writing into a string does not fail.
    let _ = match value {
        Value::Null => Ok(()),
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| pairs(line, key, value));
            Ok(())
        }
        Value::Array(values) if values.is_empty() => Ok(()),
        Value::Array(values) => {
            let plain = |value: &Value| match value {
                Value::Object(map) => map.get("witness").and_then(Value::as_str).unwrap_or("{}").to_owned(),
                Value::String(text) => harmless(text),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => value.to_string(),
            };
            write!(line, " {key}={}", values.iter().map(plain).collect::<Vec<_>>().join(","))
        }
        Value::String(text) if text.is_empty() => Ok(()),
        Value::String(text) if text.contains([' ', '"', '=']) => {
            write!(line, " {key}=\"{}\"", harmless(text).replace('"', "\\\""))
        }
        Value::String(text) => write!(line, " {key}={}", harmless(text)),
        Value::Bool(_) | Value::Number(_) => write!(line, " {key}={value}"),
    };
}
