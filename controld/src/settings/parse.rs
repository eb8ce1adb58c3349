//! From the text of `mps-control.toml` to values, with every error in it and the line of every key.
//!
//! The known keys are those of the defaults, written out as TOML. Each key of the text is looked for there and tried
//! alone, in otherwise sound values, so that one bad value does not hide the next.

use super::faults::{ConfigFault, Faults, Lines, MOST_FAULTS, line_at, unknown};
use super::file::ConfigFile;
use super::replay::{self, DomainReplays};
use super::{check, retired};
use crate::core::{DomainMatch, DomainPolicy};
use toml::de::DeTable;
use toml::{Table, Value};

/// The name of the tables with overrides.
pub(super) const OVERRIDES: &str = "domain";
/// The tables whose keys an override may have, except those of [`NOT_IN_OVERRIDES`].
pub(super) const OVERRIDABLE: [&str; 3] = ["domains", "faults", "replay"];
/// Keys that concern the grouping itself, which comes before any override can be looked up, and those of servers, which may
/// be several users'.
pub(super) const NOT_IN_OVERRIDES: [&str; 4] = ["by", "by_gpu", "end_tainted", "burial_hold"];
/// The keys that say which clients an override is for.
pub(super) const MATCHERS: [&str; 3] = ["uid", "label", "cgroup"];
/// Keys that had another name once: the table, the former name and the one of today. Both are understood.
const FORMER: [(&str, &str, &str); 1] = [("faults", "drain_timeout", "victims_timeout")];

/// Reads the text of the file: the values, the lines of the keys, and keys that are no settings any more.
///
/// # Errors
/// Everything that is wrong with it, in the order of its lines.
pub(super) fn parse(text: &str) -> Result<(ConfigFile, Lines, Vec<ConfigFault>), Vec<ConfigFault>> {
    let (document, syntax) = DeTable::parse_recoverable(text);
    if !syntax.is_empty() {
        return Err(syntax.iter().take(MOST_FAULTS).map(|error| syntax_fault(text, error)).collect());
    }
    let lines = Lines::of(text, document.get_ref());
    // The same text has just been found to be TOML; whatever this parser still objects to is told as it says it.
    let mut given: Table = toml::from_str(text).map_err(|error| vec![syntax_fault(text, &error)])?;
    let retired = retired::take(&mut given, &lines);
    let mut faults = Faults::new(lines);
    modernise(&mut given, &mut faults);
    let overrides = given.remove(OVERRIDES);
    let mut sound = known();
    merge(&mut sound, &given, &mut faults);
    let mut file = typed(&sound);
    if let Some(overrides) = &overrides {
        (file.policy.domains.overrides, file.domain_replays) = read_overrides(&sound, overrides, &mut faults);
    }
    check::check(&file, &mut faults);
    if faults.count() == 0 {
        return Ok((file, faults.lines, retired));
    }
    Err(faults.into_sorted())
}

/// Gives keys that had another name once the one of today.
fn modernise(given: &mut Table, faults: &mut Faults) {
    for (table, former, name) in FORMER {
        if let Some(values) = given.get_mut(table).and_then(Value::as_table_mut) {
            rename(values, table, former, name, faults);
        }
        let overrides = given.get_mut(OVERRIDES).and_then(Value::as_array_mut);
        for (index, entry) in overrides.into_iter().flatten().enumerate() {
            if let Some(values) = entry.as_table_mut() {
                rename(values, &format!("{OVERRIDES}[{}]", index + 1), former, name, faults);
            }
        }
    }
}

fn rename(values: &mut Table, prefix: &str, former: &str, name: &str, faults: &mut Faults) {
    let Some(value) = values.remove(former) else {
        return;
    };
    if values.contains_key(name) {
        return faults.add(&format!("{prefix}.{former}"), format!("is the former name of {name}, which is there, too"));
    }
    values.insert(name.to_owned(), value);
    faults.lines.rename(&format!("{prefix}.{former}"), format!("{prefix}.{name}"));
}

fn syntax_fault(text: &str, error: &toml::de::Error) -> ConfigFault {
    let line = error.span().map(|span| line_at(text, span.start));
    ConfigFault { line, key: String::new(), what: error.message().to_owned() }
}

/// Every key that there is, with its default.
pub(super) fn known() -> Table {
    Table::try_from(ConfigFile::default()).expect("every value of the defaults has a form in TOML")
}

/// A table that [`merge`] has made.
fn typed(table: &Table) -> ConfigFile {
    table.clone().try_into().expect("each value was tried when it was merged")
}

/// Takes over each value of `given` that is sound.
fn merge(sound: &mut Table, given: &Table, faults: &mut Faults) {
    let defaults = known();
    for (name, value) in given {
        match (defaults.get(name), value) {
            (None, _) => faults.add(name, unknown(name, defaults.keys().map(String::as_str), "key or table")),
            (Some(Value::Table(keys)), Value::Table(values)) => {
                for (key, value) in values {
                    let full = format!("{name}.{key}");
                    if keys.contains_key(key) {
                        set(sound, Some(name), key, value, &full, faults);
                    } else {
                        faults.add(&full, unknown(key, keys.keys().map(String::as_str), "key"));
                    }
                }
            }
            (Some(Value::Table(_)), _) => faults.add(name, format!("is a table, written as [{name}]")),
            (Some(_), _) => set(sound, None, name, value, name, faults),
        }
    }
}

/// An error's message in the words of a configuration file, which knows no types of Rust.
fn in_plain_words(message: &str) -> String {
    const EXPECTED: &str = ", expected ";
    let Some((found, wanted)) = message.rsplit_once(EXPECTED) else {
        return message.to_owned();
    };
    let wanted = match wanted.trim_end() {
        "f32" | "f64" => "a number",
        "string or map" => "a string",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        other => other,
    };
    format!("{found}{EXPECTED}{wanted}")
}

/// Puts one value in its place, if the whole can still be read with it.
fn set(sound: &mut Table, table: Option<&str>, key: &str, value: &Value, full: &str, faults: &mut Faults) {
    let mut tried = sound.clone();
    let place = match table {
        None => Some(&mut tried),
        Some(name) => tried.get_mut(name).and_then(Value::as_table_mut),
    };
    place.expect("the caller has found the table").insert(key.to_owned(), value.clone());
    match tried.clone().try_into::<ConfigFile>() {
        Ok(_) => *sound = tried,
        Err(error) => faults.add(full, in_plain_words(error.message())),
    }
}

fn read_overrides(
    sound: &Table,
    given: &Value,
    faults: &mut Faults,
) -> (Vec<(DomainMatch, DomainPolicy)>, DomainReplays) {
    let (mut read, mut replays) = (Vec::new(), DomainReplays::new());
    let Some(entries) = given.as_array() else {
        faults.add(OVERRIDES, format!("overrides are written as [[{OVERRIDES}]], with two brackets"));
        return (read, replays);
    };
    for (index, entry) in entries.iter().enumerate() {
        let name = format!("{OVERRIDES}[{}]", index + 1);
        match entry.as_table() {
            Some(entry) => {
                let (matching, own) = read_override(sound, &name, entry, faults);
                let says: Vec<&str> = replay::OF_TABLES.into_iter().filter(|key| entry.contains_key(*key)).collect();
                replays.push(replay::of_table(&says, own.replay));
                read.push((matching, own.policy.domains.default));
            }
            None => faults.add(&name, "is no table"),
        }
    }
    (read, replays)
}

fn read_override(sound: &Table, name: &str, entry: &Table, faults: &mut Faults) -> (DomainMatch, ConfigFile) {
    let mut effective = sound.clone();
    let mut matching = DomainMatch::default();
    for (key, value) in entry {
        let full = format!("{name}.{key}");
        match (key.as_str(), value) {
            ("uid", Value::Integer(uid)) => match u32::try_from(*uid) {
                Ok(uid) => matching.uid = Some(uid),
                Err(_) => faults.add(&full, format!("{uid} is no user id")),
            },
            ("label", Value::String(label)) => matching.label = Some(label.clone()),
            ("cgroup", Value::String(cgroup)) => matching.cgroup = Some(cgroup.clone()),
            ("uid", _) => faults.add(&full, "must be a number"),
            ("label" | "cgroup", _) => faults.add(&full, "must be a text"),
            _ => match table_of(key) {
                Some(table) => set(&mut effective, Some(table), key, value, &full, faults),
                None => {
                    let keys = override_keys();
                    faults.add(&full, unknown(key, keys.iter().map(String::as_str), "key of an override"));
                }
            },
        }
    }
    (matching, typed(&effective))
}

/// The table that a key of an override is otherwise in.
pub(super) fn table_of(key: &str) -> Option<&'static str> {
    let defaults = known();
    let has = |table: &&str| defaults.get(*table).and_then(Value::as_table).is_some_and(|keys| keys.contains_key(key));
    OVERRIDABLE.into_iter().find(has).filter(|_| !NOT_IN_OVERRIDES.contains(&key))
}

/// Every key that an override may have.
pub(super) fn override_keys() -> Vec<String> {
    let defaults = known();
    let tables = OVERRIDABLE.iter().filter_map(|table| defaults.get(*table).and_then(Value::as_table));
    let keys = tables.flat_map(Table::keys).filter(|key| !NOT_IN_OVERRIDES.contains(&key.as_str())).cloned();
    MATCHERS.into_iter().map(str::to_owned).chain(keys).collect()
}
