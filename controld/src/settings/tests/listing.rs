//! What `--check-config` prints.

use crate::settings::show::check_config;
use std::ffi::OsString;

fn no_environment(_: &str) -> Option<OsString> {
    None
}

fn checked(text: &str) -> (String, String, u8) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.toml");
    std::fs::write(&path, text).expect("written");
    check_config(Some(&path), no_environment)
}

/// The words of the line about a name.
fn row(listing: &str, name: &str) -> Vec<String> {
    let mut rows = listing.lines().filter(|line| line.split_whitespace().next() == Some(name));
    let row = rows.next().unwrap_or_else(|| panic!("no {name} in\n{listing}"));
    assert_eq!(rows.next(), None, "{name} is there twice");
    row.split_whitespace().skip(1).map(str::to_owned).collect()
}

#[test]
fn each_value_is_shown_with_where_it_comes_from() {
    let (listing, errors, status) = checked("drain_timeout = 5\n[faults]\nculprit = \"terminate\"\n");
    assert_eq!((errors.as_str(), status), ("", 0));
    assert_eq!(row(&listing, "drain_timeout"), ["5", "line", "1"]);
    assert_eq!(row(&listing, "faults.culprit"), ["\"terminate\"", "line", "3"]);
    assert_eq!(row(&listing, "faults.refuse_for"), ["60", "default"]);
    assert_eq!(row(&listing, "sharing"), ["\"per-user\"", "default"]);
    assert_eq!(row(&listing, "CUDA_MPS_PIPE_DIRECTORY"), ["/tmp/nvidia-mps", "default"]);
}

#[test]
fn no_key_is_left_out() {
    let (listing, _, _) = checked("");
    for (table, key) in crate::settings::show::keys_of_file() {
        row(&listing, &key.map_or(table.clone(), |key| format!("{table}.{key}")));
    }
}

#[test]
fn an_override_is_shown_whole_with_what_it_inherits() {
    let (listing, _, _) = checked("[[domain]]\nuid = 7\nstandby = true\n[faults]\nvictims_timeout = 9\n");
    assert_eq!(row(&listing, "domain[1].uid"), ["7", "line", "2"]);
    assert_eq!(row(&listing, "domain[1].standby"), ["true", "line", "3"]);
    assert_eq!(row(&listing, "domain[1].victims_timeout"), ["9", "as", "faults.victims_timeout"]);
    assert!(!listing.contains("domain[1].by "), "{listing}");
}

#[test]
fn what_programs_of_a_table_get_is_shown_where_it_says_so() {
    let replay = "[replay]\nkeep = \"state\"\nrecover = \"spare\"\n";
    let (listing, errors, _) =
        checked(&format!("{replay}[[domain]]\nuid = 7\nkeep = \"memory\"\n[[domain]]\nuid = 8\n"));
    assert_eq!(errors, "");
    assert_eq!(row(&listing, "domain[1].keep"), ["\"memory\"", "line", "6"]);
    assert_eq!(row(&listing, "domain[1].recover"), ["\"nobody\"", "default"]);
    assert!(!listing.contains("domain[2].keep") && !listing.contains("end_tainted  \"when-spared\"  as"), "{listing}");
}

#[test]
fn the_environment_counts_too() {
    let environment = |name: &str| (name == "CUDA_MPS_PIPE_DIRECTORY").then(|| OsString::from("/run/mps"));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.toml");
    std::fs::write(&path, "").expect("written");
    let (listing, _, _) = check_config(Some(&path), environment);
    assert_eq!(row(&listing, "CUDA_MPS_PIPE_DIRECTORY"), ["/run/mps", "environment"]);
}

#[test]
fn a_bad_file_ends_with_1_and_every_error_on_standard_error() {
    let (listing, errors, status) = checked("bogus = 1\n[faults]\nculprit = 2\n");
    assert_eq!((listing.as_str(), status), ("", 1));
    assert_eq!(errors.lines().count(), 2, "{errors}");
    assert!(errors.lines().all(|line| line.contains("c.toml: line ")), "{errors}");
}
