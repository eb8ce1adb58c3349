//! The man page and the example file against the program: the same keys and the same defaults.

use crate::settings::file::ConfigFile;
use crate::settings::parse::{MATCHERS, OVERRIDES, parse};
use crate::settings::show::keys_of_file;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../../man/mps-control.toml.5");
const EXAMPLE: &str = include_str!("../../../../packaging/mps-control.toml");

/// The keys of the page. A section whose title begins with `[faults]` has those of this table, others those of none.
fn documented() -> Vec<String> {
    let mut keys = Vec::new();
    let mut table = String::new();
    for line in PAGE.lines() {
        if let Some(title) = line.strip_prefix(".Ss ") {
            let name = title.split(' ').next().unwrap_or_default();
            table = if name.starts_with('[') { format!("{}.", name.trim_matches(['[', ']'])) } else { String::new() };
        } else if line.starts_with(".Sh ") {
            table.clear();
        } else if let Some(names) = line.strip_prefix(".It Cm ") {
            keys.extend(names.split(" , ").map(|key| format!("{table}{key}")));
        }
    }
    keys
}

fn in_program() -> BTreeSet<String> {
    let keys = keys_of_file().into_iter().map(|(table, key)| key.map_or(table.clone(), |key| format!("{table}.{key}")));
    keys.chain(MATCHERS.map(|key| format!("{OVERRIDES}.{key}"))).collect()
}

#[test]
fn the_page_has_every_key_once_and_no_other() {
    let documented = documented();
    let distinct: BTreeSet<String> = documented.iter().cloned().collect();
    assert_eq!(distinct.len(), documented.len(), "{documented:?}");
    assert_eq!(distinct, in_program());
}

/// The page's text from a key's item to the next.
fn item(table: &str, key: &str) -> String {
    let section = match table {
        "" => PAGE,
        name => &PAGE[PAGE.find(&format!(".Ss [{name}] ")).expect("a section")..],
    };
    let from = section.lines().skip_while(|line| {
        let names = line.strip_prefix(".It Cm ").unwrap_or_default();
        !names.split(" , ").any(|name| name == key)
    });
    let lines: Vec<&str> = from.skip(1).take_while(|line| !line.starts_with(".It Cm ")).collect();
    lines.join(" ")
}

/// The words of a text without the punctuation at their end.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace().map(|word| word.trim_end_matches(['.', ',', ':']))
}

#[test]
fn the_page_says_the_default_of_every_key() {
    let defaults = toml::Table::try_from(ConfigFile::default()).expect("defaults have a form in TOML");
    for (table, key) in keys_of_file() {
        let (section, name, value) = match &key {
            None => ("", &table, &defaults[&table]),
            Some(key) => (table.as_str(), key, &defaults[&table][key]),
        };
        let text = item(section, name);
        let shown = match (value.as_str(), value.as_float()) {
            (Some(""), _) => "empty".to_owned(),
            (Some(text), _) => text.to_owned(),
            (None, Some(number)) => number.to_string(),
            (None, None) => value.to_string(),
        };
        let listed = text
            .split(".It ")
            .any(|item| item.starts_with(&format!("Qq {shown} ")) && item.contains("This is the default."));
        let told = text.split("Default").skip(1).any(|after| words(after).any(|word| word == shown));
        let says = listed || told;
        assert!(says, "{table}.{key:?}: the page does not say that {shown} is the default:\n{text}");
    }
}

/// The example with its comment marks taken from the lines that are settings.
fn switched_on(example: &str) -> String {
    let is_setting = |line: &str| {
        let name = line.split([' ', '=']).next().unwrap_or_default();
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        line.starts_with('[') || (is_name && line.contains(" = "))
    };
    let strip = |line: &str| match line.strip_prefix('#') {
        Some(rest) if is_setting(rest) => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    example.lines().map(strip).collect()
}

#[test]
fn the_example_file_as_it_is_changes_nothing() {
    let (file, ..) = parse(EXAMPLE).expect("the example is sound");
    assert_eq!(file, ConfigFile::default());
}

#[test]
fn the_example_file_shows_every_key_with_its_default_and_one_override() {
    let text = switched_on(EXAMPLE);
    let (mut file, lines, _) = parse(&text).expect("the example is sound when it is switched on");
    for key in in_program() {
        let first = key.replacen(&format!("{OVERRIDES}."), &format!("{OVERRIDES}[1]."), 1);
        assert!(lines.get(&key).or(lines.get(&first)).is_some(), "the example has no {key}");
    }
    let domains = &mut file.policy.domains;
    assert_eq!(domains.overrides.len(), 1);
    assert_ne!(domains.overrides[0].1, domains.default, "an example that changes nothing shows nothing");
    domains.overrides.clear();
    file.domain_replays.clear();
    assert_eq!(file, ConfigFile::default());
}
