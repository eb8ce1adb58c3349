//! The floors of the daemon's program: nobody knows who is above, so nothing goes in a circle.
//!
//! What a room names of the others is read from its text; tests may know everybody.

#[path = "../../client-shim/tests/preload/floors/read.rs"]
mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The rooms, from the ground up: each may know those before it.
const ROOMS: [&str; 23] = [
    "nearest",
    "failpoint",
    "patience",
    "sys",
    "core",
    "io",
    "devices",
    "witness",
    "report",
    "observe",
    "settings",
    "holder",
    "door",
    "cli",
    "ui",
    "run",
    "stop",
    "doctor",
    "explain",
    "top",
    "thin",
    "driver",
    "app",
];
/// What only names the others: the list for `integration`, the library's root and the program.
const LISTS: [&str; 3] = ["lib", "main", "parts"];

/// The text of a room, which is a folder, a file, or both.
fn texts(root: &Path, room: &str) -> Vec<(String, String)> {
    let (folder, file) = (root.join(room), root.join(format!("{room}.rs")));
    let mut paths = if folder.is_dir() { read::files(&folder) } else { Vec::new() };
    paths.extend(file.is_file().then_some(file));
    assert!(!paths.is_empty(), "there is no room {room}");
    let is_test = |path: &Path| path.iter().any(|part| part == "tests" || part == "tests.rs");
    let paths = paths.into_iter().filter(|path| !is_test(path));
    paths.map(|path| (path.display().to_string(), read::code(&fs::read_to_string(&path).expect("a file")))).collect()
}

#[test]
fn no_room_of_the_daemon_knows_one_above() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = BTreeMap::<&str, BTreeSet<String>>::new();
    let mut wrong = Vec::new();
    for (floor, room) in ROOMS.iter().enumerate() {
        for (path, text) in texts(&root, room) {
            for other in read::named(&text).into_iter().filter(|other| other != room) {
                match ROOMS.iter().position(|known| *known == other) {
                    Some(below) if below < floor => drop(seen.entry(room).or_default().insert(other)),
                    Some(_) => wrong.push(format!("{path} knows {other}")),
                    // A macro or a function of the root.
                    None => {}
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let from_the_top: Vec<&str> = ROOMS.iter().rev().copied().collect();
    read::is_on_the_page(&from_the_top, &seen);
    assert!(seen["driver"].contains("core") && seen["witness"].contains("core"), "a reader that finds nothing is none");
}

/// The literals of a text that are paths there; one that speaks of it has a blank.
fn paths_of_proc(text: &str) -> impl Iterator<Item = &str> {
    let literals = text.match_indices("\"/proc").filter_map(|(at, _)| text[at + 1..].split('"').next());
    literals.filter(|literal| {
        !literal.contains(' ') && ["", "/"].contains(&literal["/proc".len()..].get(..1).unwrap_or(""))
    })
}

#[test]
fn only_sys_has_paths_of_proc() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeMap::<&str, Vec<String>>::new();
    for room in ROOMS.into_iter().chain(LISTS) {
        for (path, text) in texts(&root, room) {
            found.entry(room).or_default().extend(paths_of_proc(&text).map(|literal| format!("{path}: {literal}")));
        }
    }
    assert!(found.remove("sys").is_some_and(|found| found.len() > 10), "a reader that finds nothing is none");
    let elsewhere: Vec<String> = found.into_values().flatten().collect();
    assert!(elsewhere.is_empty(), "{}", elsewhere.join("\n"));
}

#[test]
fn every_room_of_the_daemon_has_its_floor() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let entries = fs::read_dir(root).expect("the sources").map(|entry| entry.expect("readable").path());
    let found: BTreeSet<String> =
        entries.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned()).collect();
    let told: BTreeSet<String> = ROOMS.iter().chain(&LISTS).map(|room| (*room).to_owned()).collect();
    assert_eq!(found, told);
}
