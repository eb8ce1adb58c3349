//! What is wrong with a file of TOML, each with its line, and with what was perhaps meant.

use crate::nearest::nearest;
use std::collections::BTreeMap;
use std::fmt;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// More errors than this are counted and not shown.
pub(super) const MOST_FAULTS: usize = 50;

/// One thing that is wrong with the file, or out of date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigFault {
    /// Its line, from 1; `None` where the fault is something that is missing.
    pub line: Option<usize>,
    /// The key, as `faults.culprit`; empty when the text is no TOML.
    pub key: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)
    }
}

/// Which line of the file each key is on, by its full name, such as `faults.culprit` or `domain[1].uid`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Lines(BTreeMap<String, usize>);

impl Lines {
    /// The lines of all keys of a text.
    pub(super) fn of(text: &str, table: &DeTable<'_>) -> Self {
        let mut lines = Self::default();
        lines.note(text, "", table);
        lines
    }

    /// The line of a key; `None` when the file does not have it.
    pub(crate) fn get(&self, key: &str) -> Option<usize> {
        self.0.get(key).copied()
    }

    pub(super) fn rename(&mut self, former: &str, name: String) {
        if let Some(line) = self.0.remove(former) {
            self.0.insert(name, line);
        }
    }

    fn note(&mut self, text: &str, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let name = format!("{prefix}{}", key.get_ref());
            self.0.insert(name.clone(), line_at(text, key.span().start));
            self.note_value(text, &name, value);
        }
    }

    fn note_value(&mut self, text: &str, name: &str, value: &Spanned<DeValue<'_>>) {
        if let Some(table) = value.get_ref().as_table() {
            self.note(text, &format!("{name}."), table);
        }
        for (index, item) in value.get_ref().as_array().into_iter().flatten().enumerate() {
            let item_name = format!("{name}[{}]", index + 1);
            self.0.insert(item_name.clone(), line_at(text, item.span().start));
            self.note_value(text, &item_name, item);
        }
    }
}

pub(super) fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

/// Collects what is wrong.
#[derive(Debug)]
pub(super) struct Faults {
    pub(super) lines: Lines,
    found: Vec<ConfigFault>,
}

impl Faults {
    pub(super) fn new(lines: Lines) -> Self {
        Self { lines, found: Vec::new() }
    }

    /// What was found, in the order of its lines; more than can be read is counted.
    pub(super) fn into_sorted(self) -> Vec<ConfigFault> {
        let mut found = self.found;
        found.sort_by_key(|fault| fault.line);
        let hidden = found.len().saturating_sub(MOST_FAULTS);
        found.truncate(MOST_FAULTS);
        if hidden > 0 {
            found.push(ConfigFault { line: None, key: String::new(), what: format!("and {hidden} more errors") });
        }
        found
    }

    /// Notes that the value of `key` is wrong.
    pub(super) fn add(&mut self, key: &str, what: impl Into<String>) {
        // A key that an override lacks is told at the override.
        let line = self.lines.get(key).or_else(|| self.lines.get(key.rsplit_once('.')?.0));
        self.found.push(ConfigFault { line, key: key.to_owned(), what: what.into() });
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.found.len()
    }

    /// Drops those from number `first` on that an override has only inherited, and that are told where it inherits from.
    pub(super) fn drop_inherited(&mut self, first: usize) {
        let added = self.found.split_off(first);
        let name = |key: &str| key.rsplit('.').next().map(str::to_owned);
        let told =
            |fault: &ConfigFault| self.found.iter().any(|a| a.what == fault.what && name(&a.key) == name(&fault.key));
        let new: Vec<_> =
            added.into_iter().filter(|fault| self.lines.get(&fault.key).is_some() || !told(fault)).collect();
        self.found.extend(new);
    }
}

/// That this word is not known: with those that may be meant, or else with all that there are.
pub(super) fn unknown<'a>(word: &str, known: impl Iterator<Item = &'a str>, what: &str) -> String {
    let known: Vec<&str> = known.collect();
    let near = nearest(word, &known);
    if near.is_empty() {
        return format!("no such {what}; there are {}", known.join(", "));
    }
    format!("no such {what}; did you mean {}?", near.join(" or "))
}
