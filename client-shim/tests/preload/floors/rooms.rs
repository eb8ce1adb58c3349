//! The rooms of one folder, in which `mod.rs` passes from one to the other: for the test of the library's floors and for
//! that of the daemon's core.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::read;

/// A file of a room, without comments and tests.
pub(crate) struct Source {
    /// Below the folder.
    pub(crate) path: PathBuf,
    pub(crate) room: String,
    /// With paths from the crate's root in place of those from the folder, which is `crate::…::`.
    pub(crate) text: String,
}

/// The text of a folder's `mod.rs`, and all its other files.
pub(crate) fn sources(root: &Path, folder: &str) -> (String, Vec<Source>) {
    let is_test = |path: &PathBuf| path.iter().any(|part| part == "tests" || part == "tests.rs");
    let read = |path: PathBuf| {
        let inside = path.strip_prefix(root).expect("a file of the folder").to_path_buf();
        let first = inside.iter().next().expect("a name").to_string_lossy().into_owned();
        let text = read::code(&fs::read_to_string(&path).expect("a file"));
        // Right below the folder, what is above is the folder.
        let is_top =
            inside.components().count() == 1 || (inside.components().count() == 2 && inside.ends_with("mod.rs"));
        let text = if is_top { text.replace("super::", folder) } else { text };
        Source { path: inside, room: first.trim_end_matches(".rs").to_owned(), text }
    };
    let all = read::files(root).into_iter().filter(|path| !is_test(path)).map(read);
    let (facade, rooms) = all.partition::<Vec<_>, _>(|source| source.path == Path::new("mod.rs"));
    (facade.into_iter().next().expect("a folder has a mod.rs").text, rooms)
}

/// What `mod.rs` passes on of each room, by its name there.
pub(crate) fn passed_on(text: &str, rooms: &[&str]) -> BTreeMap<String, String> {
    let statements = text.split("use ").skip(1).filter_map(|rest| rest.split(';').next());
    let words = |statement: &str| -> Vec<String> {
        let words = statement.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let mut found = BTreeMap::new();
    for statement in statements.map(words) {
        let Some((room, names)) = statement.split_first().filter(|(room, _)| rooms.contains(&room.as_str())) else {
            continue;
        };
        for name in names {
            found.entry(name.clone()).or_insert_with(|| room.clone());
        }
    }
    found
}

/// The rooms that a text names, by their paths or by what `mod.rs` passes on of them; other names as they are.
pub(crate) fn named(folder: &str, text: &str, rooms: &[&str], passed_on: &BTreeMap<String, String>) -> Vec<String> {
    let named = read::named_under(folder, text).into_iter();
    let of_room = |name: String| match passed_on.get(&name) {
        Some(room) if !rooms.contains(&name.as_str()) => room.clone(),
        _ => name,
    };
    named.map(of_room).collect()
}
