//! The floors of the library: nobody knows who is above.
//!
//! What a file names of the library beside its own folder is read from its text; tests may know everybody.

mod read;
mod rooms;

use read::{code, files, is_on_the_page, named};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Which folders those of a folder may know, from the ground up.
const FLOORS: [(&str, &[&str]); 6] = [
    ("process", &[]),
    ("cuda", &["process"]),
    ("kept", &["cuda", "process"]),
    ("daemon", &["cuda", "process"]),
    ("recovery", &["cuda", "daemon", "kept", "process"]),
    ("hooks", &["cuda", "daemon", "kept", "process", "recovery"]),
];

/// The rooms of `kept`, from the ground up: each may know those before it.
const KEPT: [&str; 11] =
    ["keeping", "account", "objects", "work", "memory", "shared", "code", "graphs", "streams", "contexts", "report"];

#[test]
fn no_floor_knows_one_above() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = BTreeMap::<&str, BTreeSet<String>>::new();
    for (floor, known) in FLOORS {
        for file in files(&root.join(floor)) {
            let text = code(&fs::read_to_string(&file).expect("a file of the library"));
            let others = named(&text).into_iter().filter(|name| name != floor);
            for other in others {
                assert!(known.contains(&other.as_str()), "{} knows {other}", file.display());
                seen.entry(floor).or_default().insert(other);
            }
        }
    }
    let from_the_top: Vec<&str> = FLOORS.iter().rev().map(|(floor, _)| *floor).collect();
    is_on_the_page(&from_the_top, &seen);
    // What nobody makes use of is not allowed either, and a reader of texts that finds nothing is none.
    for (floor, known) in FLOORS {
        let used = seen.remove(floor).unwrap_or_default();
        assert_eq!(used.iter().map(String::as_str).collect::<Vec<_>>(), known, "{floor}");
    }
}

#[test]
fn no_room_of_what_is_kept_knows_one_above() {
    const FOLDER: &str = "crate::kept::";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kept");
    let (facade, sources) = rooms::sources(&root, FOLDER);
    let passed_on = rooms::passed_on(&facade, &KEPT);
    let floor_of = |room: &str| KEPT.iter().position(|of| *of == room);
    let mut knows = BTreeMap::<&str, BTreeSet<String>>::new();
    for source in &sources {
        let at = source.path.display();
        let floor = floor_of(&source.room).unwrap_or_else(|| panic!("{at} has no floor"));
        let others = rooms::named(FOLDER, &source.text, &KEPT, &passed_on);
        for other in others.into_iter().filter(|other| *other != source.room) {
            // What is no room is of `mod.rs`, which is above all of them.
            assert!(floor_of(&other).is_some_and(|below| below < floor), "{at} knows {other}");
            knows.entry(KEPT[floor]).or_default().insert(other);
        }
    }
    let from_the_top: Vec<&str> = KEPT.iter().rev().copied().collect();
    is_on_the_page(&from_the_top, &knows);
    let all: BTreeSet<&str> = sources.iter().map(|source| source.room.as_str()).collect();
    assert_eq!(all, BTreeSet::from(KEPT), "the rooms that there are");
    let is_seen = |room: &str, other: &str| knows.get(room).is_some_and(|others| others.contains(other));
    assert!(is_seen("memory", "objects") && is_seen("work", "keeping"), "a reader that finds nothing is none");
}
