//! What `--check-config` prints: every value in force, and where it comes from.

use super::parse::{MATCHERS, NOT_IN_OVERRIDES, OVERRIDABLE, OVERRIDES};
use super::{Settings, SettingsError};
use crate::core::DomainMatch;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use toml::{Table, Value};

/// Exit status when the configuration can be used.
const SOUND: u8 = 0;
/// Exit status when it can't.
const UNUSABLE: u8 = 1;

/// The answer to `--check-config`: texts for standard output and standard error, and the exit status.
///
/// `named` is the file given on the command line; without one it is the daemon's own. Remarks about the environment,
/// which the daemon ignores and logs, go to standard error and do no harm.
pub(crate) fn check_config(
    named: Option<&Path>,
    environment: impl Fn(&str) -> Option<OsString> + Copy,
) -> (String, String, u8) {
    let read = match named {
        Some(path) => Settings::read_with(Some(path), environment),
        None => Settings::read(environment),
    };
    match read {
        Ok(settings) => {
            let remarks = settings.remarks.iter().fold(String::new(), |text, remark| text + remark + "\n");
            (listing(&settings, environment), remarks, SOUND)
        }
        Err(error @ (SettingsError::Read { .. } | SettingsError::Invalid { .. })) => {
            (String::new(), format!("{error}\n"), UNUSABLE)
        }
    }
}

/// One line a value: its name, the value as TOML, and where it comes from.
struct Row {
    name: String,
    value: String,
    from: String,
}

fn listing(settings: &Settings, environment: impl Fn(&str) -> Option<OsString>) -> String {
    let from_environment = |name: &str, value: String| {
        let set = environment(name).is_some_and(|value| !value.is_empty());
        let from = if set { "environment" } else { "default" };
        Row { name: name.to_owned(), value, from: from.to_owned() }
    };
    let defaults = &settings.defaults;
    let mut environment_rows = vec![
        from_environment("CUDA_MPS_PIPE_DIRECTORY", settings.pipe_directory.display().to_string()),
        from_environment("CUDA_MPS_LOG_DIRECTORY", settings.log_directory.display().to_string()),
        from_environment("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", defaults.percentage().get().to_string()),
        from_environment("CUDA_MPS_CLIENT_PRIORITY", defaults.priority().get().to_string()),
    ];
    if let Some(limits) = environment("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") {
        environment_rows.push(from_environment(
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
            limits.to_string_lossy().escape_debug().to_string(),
        ));
    }
    let source = &settings.source;
    let path = source.path.display();
    let mut text = String::from("# environment\n");
    text.push_str(&aligned(&environment_rows));
    let missing = if source.found { "" } else { " (there is no such file)" };
    writeln!(text, "\n# {path}{missing}").expect("a String takes every text");
    text.push_str(&aligned(&file_rows(settings)));
    text
}

fn file_rows(settings: &Settings) -> Vec<Row> {
    let origin = |name: &str| settings.source.lines.get(name).map(|line| format!("line {line}"));
    let file = as_table(&settings.file);
    let mut rows = Vec::new();
    let (tables, single): (Vec<_>, Vec<_>) = keys_of_file().into_iter().partition(|(_, key)| key.is_some());
    for (table, key) in single.into_iter().chain(tables) {
        let name = key.as_ref().map_or(table.clone(), |key| format!("{table}.{key}"));
        let value = match &key {
            None => file.get(&table),
            Some(key) => file.get(&table).and_then(|table| table.get(key)),
        };
        let from = origin(&name).unwrap_or_else(|| "default".into());
        rows.extend(value.map(|value| Row { name, value: shown(value), from }));
    }
    for (index, (matching, own)) in settings.file.policy.domains.overrides.iter().enumerate() {
        let mut own = as_table(own);
        // One that says nothing of this is for programs what `[replay]` is.
        if let Some(Some(replay)) = settings.file.domain_replays.get(index) {
            own.insert("replay".to_owned(), Value::Table(as_table(replay)));
        }
        rows.extend(override_rows(&format!("{OVERRIDES}[{}]", index + 1), matching, &own, &file, origin));
    }
    rows
}

fn override_rows(
    name: &str,
    matching: &DomainMatch,
    own: &Table,
    file: &Table,
    origin: impl Fn(&str) -> Option<String>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    let values = [
        matching.uid.map(|uid| Value::Integer(uid.into())),
        matching.label.clone().map(Value::String),
        matching.cgroup.clone().map(Value::String),
    ];
    for (key, value) in MATCHERS.into_iter().zip(values) {
        let name = format!("{name}.{key}");
        let from = origin(&name).unwrap_or_default();
        rows.extend(value.map(|value| Row { value: shown(&value), name, from }));
    }
    for table in OVERRIDABLE {
        for (key, value) in own.get(table).and_then(Value::as_table).into_iter().flatten() {
            if NOT_IN_OVERRIDES.contains(&key.as_str()) {
                continue;
            }
            let own = format!("{name}.{key}");
            let is_inherited = file.get(table).and_then(|values| values.get(key)) == Some(value);
            let inherited = if is_inherited { format!("as {table}.{key}") } else { "default".to_owned() };
            let from = origin(&own).unwrap_or(inherited);
            rows.push(Row { name: own, value: shown(value), from });
        }
    }
    rows
}

/// Every key that the file can have, those without a table first: the table, or the key itself, and the key in it.
pub(super) fn keys_of_file() -> Vec<(String, Option<String>)> {
    let mut keys = Vec::new();
    for (name, value) in &super::parse::known() {
        match value.as_table() {
            None => keys.push((name.clone(), None)),
            Some(table) => keys.extend(table.keys().map(|key| (name.clone(), Some(key.clone())))),
        }
    }
    keys
}

fn as_table(values: &impl serde::Serialize) -> Table {
    Table::try_from(values).expect("what was read from TOML has a form in TOML")
}

/// A value as an operator would write it: whole numbers of seconds without a fraction.
fn shown(value: &Value) -> String {
    match value {
        Value::Float(number) => number.to_string(),
        Value::String(_)
        | Value::Integer(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_)
        | Value::Table(_) => value.to_string(),
    }
}

fn aligned(rows: &[Row]) -> String {
    let width = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
    let (names, values) = (width(|row| &row.name), width(|row| &row.value));
    let mut text = String::new();
    for Row { name, value, from } in rows {
        writeln!(text, "{name:<names$}  {value:<values$}  {from}").expect("a String takes every text");
    }
    text
}
