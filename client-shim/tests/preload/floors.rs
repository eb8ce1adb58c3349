//! The floors of the library: nobody knows who is above.
//!
//! What a file names of the library beside its own folder is read from its text; tests may know everybody.

mod read;

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
