//! Keys that were settings once: a file that still has them works, and says so.

use super::{Policy, assert_fault, with_file};
use crate::settings::retired::{Retired, all};
use crate::settings::show::{check_config, keys_of_file};

/// A file of before, with other values than those that hold.
const OLD: &str = "\
first_retry = 0.5
largest_retry = 10
max_waiting_per_user = 7
log_lines_per_second = 0
[domains]
cgroup_depth = 3
[faults]
evidence_window = 9
settle_time = 0
silence = 0
[servers]
breaker_failures = 0
breaker_window = 1
breaker_pause = 1
[vault]
regions_per_user = 1
regions = 1
[[domain]]
uid = 7
settle_time = 1
breaker_failures = 2
";

#[test]
fn a_file_that_names_keys_of_before_works_as_if_it_did_not_and_each_is_named() {
    let settings = with_file(OLD).expect("the daemon starts");
    let policy = settings.policy(false);
    assert_eq!(policy.for_domain(7, None, "/"), policy.for_domain(8, None, "/"));
    assert_eq!(Policy { domains: Policy::default().domains, ..policy }, Policy::default());
    assert_eq!(settings.file.vault, crate::core::vault::VaultPolicy::default());
    let named: Vec<&str> = settings.remarks.iter().filter_map(|remark| remark.split(": ").nth(2)).collect();
    let file_keys = all().map(|retired| format!("{}.{}", retired.table, retired.key));
    let file_keys = file_keys.iter().map(|key| key.trim_start_matches('.'));
    let want: Vec<&str> = file_keys.chain(["domain[1].settle_time", "domain[1].breaker_failures"]).collect();
    assert_eq!(named, want);
    let of_settle_time = "c.toml: line 9: faults.settle_time: no longer a setting; the value is 0.012 because a trap";
    assert!(settings.remarks[6].contains(of_settle_time), "{}", settings.remarks[6]);
}

#[test]
fn a_table_of_before_is_no_error_and_what_was_never_in_it_is_one() {
    with_file("[servers]\n").expect("nothing was set");
    assert_fault("[servers]\nbreaker_failure = 1\n", 1, "servers", "no such key or table");
    assert_fault("[faults]\nsilense = 1\n", 2, "faults.silense", "no such key; there are culprit, ");
}

#[test]
fn trying_a_file_of_before_names_its_keys_and_finds_it_sound() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("old.toml");
    std::fs::write(&path, "[faults]\nsilence = 5\n").expect("written");
    let (listing, remarks, status) = check_config(Some(&path), |_| None);
    assert_eq!(status, 0);
    assert!(remarks.contains("old.toml: line 2: faults.silence: no longer a setting; the value is 1 because"));
    assert!(!listing.contains("silence"), "{listing}");
}

#[test]
fn the_page_names_them_all() {
    let page = include_str!("../../../../man/mps-control.toml.5");
    let section = page.split(".Ss Keys that were settings once").nth(1).expect("a section");
    let words: Vec<&str> = section.split(".Sh").next().unwrap_or_default().split_whitespace().collect();
    for Retired { table, key, .. } in all() {
        let name = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
        assert!(words.contains(&name.as_str()), "{name}");
    }
}

#[test]
fn no_key_is_a_setting_and_a_constant() {
    for retired in all() {
        let is_key = keys_of_file().into_iter().any(|(table, key)| match key {
            Some(key) => (table.as_str(), key.as_str()) == (retired.table, retired.key),
            None => retired.table.is_empty() && table == retired.key,
        });
        assert!(!is_key, "{}", retired.key);
    }
}
