//! The floors of the library: nobody knows who is above.
//!
//! What a file names of the library beside its own folder is read from its text; tests may know everybody.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
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

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the library").map(|entry| entry.expect("readable").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The text without comments and without tests, which end a file.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The first names of a list such as `cuda::{a, b}, process::fork}`, up to the brace that ends it.
fn first_names(list: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                found.push(&list[begin..at]);
                begin = at + 1;
                if letter == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

fn name(text: &str) -> &str {
    let text = text.trim_start();
    &text[..text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(text.len())]
}

/// The folders and files of the library's root that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let after = text.match_indices("crate::").map(|(at, found)| &text[at + found.len()..]);
    let names = after.flat_map(|rest| match rest.strip_prefix('{') {
        Some(list) => first_names(list),
        None => vec![rest],
    });
    names.map(name).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

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
    // What nobody makes use of is not allowed either, and a reader of texts that finds nothing is none.
    for (floor, known) in FLOORS {
        let used = seen.remove(floor).unwrap_or_default();
        assert_eq!(used.iter().map(String::as_str).collect::<Vec<_>>(), known, "{floor}");
    }
}

#[test]
fn names_are_found_in_every_form() {
    let text = "use crate::{cuda::{a, b}, kept, process::fork as f};\nlet x = crate::vault::door(); $crate::hooks::X";
    let expected = ["cuda", "hooks", "kept", "process", "vault"].map(str::to_owned);
    assert_eq!(named(text), BTreeSet::from(expected));
    assert_eq!(code("a // crate::b\n#[cfg(test)]\nmod tests { crate::c }"), "a ");
}
