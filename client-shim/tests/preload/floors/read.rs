//! What a source names of its crate, read from its text: for the tests of the floors, the daemon's too.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// All files in a folder and below it.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of sources").map(|entry| entry.expect("readable").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The text without comments and without tests, which end a file.
pub(crate) fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
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

/// The name that a text begins with.
pub(crate) fn name(text: &str) -> &str {
    let text = text.trim_start();
    &text[..text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(text.len())]
}

/// The folders and files of a crate's root that a text names.
pub(crate) fn named(text: &str) -> BTreeSet<String> {
    named_under("crate::", text)
}

/// What a text names directly under this path.
pub(crate) fn named_under(path: &str, text: &str) -> BTreeSet<String> {
    let after = text.match_indices(path).map(|(at, found)| &text[at + found.len()..]);
    let names = after.flat_map(|rest| match rest.strip_prefix('{') {
        Some(list) => first_names(list),
        None => vec![rest],
    });
    names.map(name).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Draws who knows whom, the top floor first: an arrow up would stand left of the diagonal.
fn drawn(rooms: &[&str], knows: &BTreeMap<&str, BTreeSet<String>>) -> String {
    let mut text = format!("{:15}", "");
    (1..=rooms.len()).for_each(|number| write!(text, "{number:3}").expect("a string grows"));
    for (at, room) in rooms.iter().enumerate() {
        write!(text, "\n{:2} {room:12}", at + 1).expect("a string grows");
        let mut line = String::new();
        for (column, other) in rooms.iter().enumerate() {
            let is_known = knows.get(room).is_some_and(|others| others.contains(*other));
            line.push_str(if column == at {
                "  \\"
            } else if is_known {
                "  x"
            } else {
                "   "
            });
        }
        text.push_str(line.trim_end());
    }
    text
}

/// The page `docs/rooms.md` shows these rooms and who knows whom, the top floor first.
pub(crate) fn is_on_the_page(rooms: &[&str], knows: &BTreeMap<&str, BTreeSet<String>>) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/rooms.md");
    let page = fs::read_to_string(page).expect("docs/rooms.md");
    let picture = drawn(rooms, knows);
    assert!(page.contains(&picture), "docs/rooms.md shows another house than this:\n{picture}");
}

#[test]
fn an_arrow_up_is_left_of_the_diagonal() {
    let knows = BTreeMap::from([("a", BTreeSet::from(["b".to_owned()])), ("c", BTreeSet::from(["a".to_owned()]))]);
    let lines =
        ["                 1  2  3", " 1 a             \\  x", " 2 b                \\", " 3 c             x     \\"];
    assert_eq!(drawn(&["a", "b", "c"], &knows), lines.join("\n"));
}

#[test]
fn names_are_found_in_every_form() {
    let text = "use crate::{cuda::{a, b}, kept, process::fork as f};\nlet x = crate::vault::door(); $crate::hooks::X";
    let expected = ["cuda", "hooks", "kept", "process", "vault"].map(str::to_owned);
    assert_eq!(named(text), BTreeSet::from(expected));
    assert_eq!(code("a // crate::b\n#[cfg(test)]\nmod tests { crate::c }"), "a ");
}
