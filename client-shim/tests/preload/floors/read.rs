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

/// What a path such as `a::b` or `{cuda::{a, b}, process::fork}, more` begins with: itself, or the items of its list.
fn items(text: &str) -> Vec<&str> {
    let Some(list) = text.strip_prefix('{') else { return vec![text] };
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                found.push(list[begin..at].trim_start());
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

/// What an item names below a folder.
fn below<'a>(folder: &str, item: &'a str) -> Vec<&'a str> {
    match item.strip_prefix(folder) {
        Some(rest) if rest.starts_with("::") => items(&rest[2..]),
        Some(rest) if rest.starts_with(|letter: char| letter.is_ascii_alphanumeric() || "_)".contains(letter)) => {
            vec![]
        }
        Some(_) => vec!["self"],
        None => vec![],
    }
}

/// What a text names directly under this path, which begins with `crate::`; `self` where it names the path's end.
pub(crate) fn named_under(path: &str, text: &str) -> BTreeSet<String> {
    let folders: Vec<&str> = path.split_terminator("::").collect();
    let after = text.match_indices("crate::").map(|(at, found)| &text[at + found.len()..]);
    let mut found: Vec<&str> = after.flat_map(items).collect();
    for folder in &folders[1..] {
        found = found.into_iter().flat_map(|item| below(folder, item)).collect();
    }
    found.into_iter().map(name).filter(|name| !name.is_empty()).map(str::to_owned).collect()
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
    let text = "use crate::{cuda::a, kept::{b::{c, d}, e}};\nuse crate::{kept, process};\npub(in crate::kept) fn f() { crate::kept::g::h() }";
    let expected = ["b", "e", "g", "self"].map(str::to_owned);
    assert_eq!(named_under("crate::kept::", text), BTreeSet::from(expected));
    assert_eq!(code("a // crate::b\n#[cfg(test)]\nmod tests { crate::c }"), "a ");
}
