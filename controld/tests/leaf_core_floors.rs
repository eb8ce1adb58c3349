//! The floors of the core: nobody in `core/` knows who is above, so no decision goes in a circle.
//!
//! A room knows another one by its path, by what `core/mod.rs` passes on of it, by a field of `Core` that it touches, and
//! by a method of `Core` that it calls and the other one has. All four are read from the text; `mod.rs` itself passes from
//! one to the other and may know everybody, as may tests.

#[path = "../../client-shim/tests/preload/floors/read.rs"]
mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms, from the ground up: each may know those before it. The first fourteen are what the others tell each other.
const ROOMS: [&str; 25] = [
    "ids",
    "gpu",
    "peer",
    "policy",
    "place",
    "evidence",
    "identity",
    "verdict",
    "catalogue",
    "announcement",
    "saved",
    "journal",
    "facts",
    "effect",
    "vault",
    "gpus",
    "servers",
    "clients",
    "faults",
    "serving",
    "quit",
    "commands",
    "input",
    "picture",
    "successor",
];
/// How many rooms of the ground are not drawn: nobody there decides anything.
const GROUND: usize = 14;
/// How a field of `Core` and a value of it are written in its methods.
const SELVES: [&str; 2] = ["self.", "core."];

/// A file of the core, without comments and tests.
struct Source {
    path: PathBuf,
    room: String,
    text: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/core");
    let is_test = |path: &PathBuf| path.iter().any(|part| part == "tests" || part == "tests.rs");
    let read = |path: PathBuf| {
        let inside = path.strip_prefix(&root).expect("a file of the core").to_path_buf();
        let first = inside.iter().next().expect("a name").to_string_lossy().into_owned();
        let text = read::code(&fs::read_to_string(&path).expect("a file"));
        // Right below the core, what is above is the core.
        let is_top = inside.components().count() == 1 || inside.ends_with("mod.rs");
        let text = if is_top { text.replace("super::", "crate::core::") } else { text };
        Source { path: inside, room: first.trim_end_matches(".rs").to_owned(), text }
    };
    read::files(&root).into_iter().filter(|path| !is_test(path)).map(read).collect()
}

/// What `mod.rs` passes on of each room, by its name there.
fn passed_on(text: &str) -> BTreeMap<String, String> {
    let statements = text.split("use ").skip(1).filter_map(|rest| rest.split(';').next());
    let words = |statement: &str| -> Vec<String> {
        let words = statement.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let mut found = BTreeMap::new();
    for statement in statements.map(words) {
        let Some((room, names)) = statement.split_first().filter(|(room, _)| ROOMS.contains(&room.as_str())) else {
            continue;
        };
        for name in names {
            found.entry(name.clone()).or_insert_with(|| room.clone());
        }
    }
    found
}

/// The bodies of a text's `impl Core` blocks, without white space.
fn methods_of_core(text: &str) -> String {
    let mut bodies = String::new();
    for block in text.split("\nimpl Core {").skip(1) {
        let body = block.split("\n}").next().unwrap_or_default();
        bodies.extend(body.chars().filter(|letter| !letter.is_whitespace()));
    }
    bodies
}

/// The names of the functions in it.
fn functions(bodies: &str) -> impl Iterator<Item = &str> {
    // Without white space a function's name follows its visibility or the end of what is before.
    bodies.match_indices("fn").map(|(at, _)| read::name(&bodies[at + 2..])).filter(|name| !name.is_empty())
}

/// The structs that own the rooms' state, and their rooms.
const OWNERS: [(&str, &str); 7] = [
    ("Vault", "vault"),
    ("Gpus", "gpus"),
    ("Servers", "servers"),
    ("Clients", "clients"),
    ("Faults", "faults"),
    ("Commands", "commands"),
    ("Turn", "effect"),
];

/// What would let a room know another one in a way that is not read here.
fn hidden(room: &str, text: &str) -> Vec<String> {
    let elsewhere = OWNERS.iter().filter(|(_, own)| *own != room).map(|(owner, _)| format!("\nimpl {owner} {{"));
    // A path by steps upwards, and the core in other hands than its methods' own.
    let others = ["super::super", "&Core", "&mut Core"].map(str::to_owned);
    let found = elsewhere.chain(others).filter(|way| text.contains(way.as_str())).map(|way| way.trim().to_owned());
    // The core's fields under names of their own.
    found.chain(methods_of_core(text).contains("letSelf{").then(|| "let Self {".to_owned())).collect()
}

/// Every name that follows `self.` or `core.`, and whether it is called.
fn touched(bodies: &str) -> BTreeSet<(&str, bool)> {
    let after = |own: &'static str| bodies.match_indices(own).map(move |(at, _)| &bodies[at + own.len()..]);
    SELVES
        .into_iter()
        .flat_map(after)
        .map(|rest| {
            let name = read::name(rest);
            (name, rest[name.len()..].starts_with('('))
        })
        .collect()
}

#[test]
fn no_room_of_the_core_knows_one_above() {
    let sources = sources();
    let is_facade = |source: &&Source| source.path == Path::new("mod.rs");
    let facade = sources.iter().find(is_facade).expect("core/mod.rs");
    let passed_on = passed_on(&facade.text);
    let mut owners = BTreeMap::new();
    for source in sources.iter() {
        let bodies = methods_of_core(&source.text);
        functions(&bodies).for_each(|name| drop(owners.insert(name.to_owned(), source.room.clone())));
    }
    let mut knows = BTreeMap::<&str, BTreeSet<String>>::new();
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| !is_facade(source)) {
        wrong.extend(hidden(&source.room, &source.text).iter().map(|way| format!("{}: {way}", source.path.display())));
        let floor = ROOMS.iter().position(|room| *room == source.room);
        let floor = floor.unwrap_or_else(|| panic!("{} has no floor", source.path.display()));
        let bodies = methods_of_core(&source.text);
        let named = read::named_under("crate::core::", &source.text).into_iter();
        let named = named.map(|name| match passed_on.get(&name) {
            Some(room) if !ROOMS.contains(&name.as_str()) => room.clone(),
            _ => name,
        });
        let touched = touched(&bodies).into_iter().filter_map(|(name, is_called)| match is_called {
            true => owners.get(name).cloned(),
            false => Some(if name == "turn" { "effect" } else { name }.to_owned()),
        });
        for other in named.chain(touched).filter(|other| *other != source.room) {
            match ROOMS.iter().position(|room| *room == other) {
                Some(below) if below < floor => drop(knows.entry(ROOMS[floor]).or_default().insert(other)),
                Some(_) => wrong.push(format!("{} knows {other}", source.path.display())),
                None if other == "mod" => wrong.push(format!("{} calls mod.rs", source.path.display())),
                // `Core` itself, and its field of defaults.
                None => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let from_the_top: Vec<&str> = ROOMS[GROUND..].iter().rev().copied().collect();
    read::is_on_the_page(&from_the_top, &knows);
    let is_seen = |room: &str, other: &str| knows.get(room).is_some_and(|others| others.contains(other));
    assert!(is_seen("faults", "servers") && is_seen("serving", "faults"), "a reader that finds nothing is none");
}

#[test]
fn a_method_and_a_field_of_the_core_are_found_in_its_own_methods_alone() {
    let text = "impl Other {\n    fn a(&self) { self.clients.b() }\n}\n\nimpl Core {\n    pub(super) fn go(&mut self) {\n        \
                self\n            .servers\n            .each();\n        self.taint(epoch);\n    }\n}\n";
    let bodies = methods_of_core(text);
    assert_eq!(touched(&bodies), BTreeSet::from([("servers", false), ("taint", true)]));
    assert_eq!(functions(&bodies).collect::<Vec<_>>(), ["go"]);
    let named = passed_on("pub(crate) use clients::channels::{Channel, Facts as ChannelFacts};");
    assert_eq!(named["Channel"], "clients");
    assert_eq!(named["ChannelFacts"], "clients");
}

#[test]
fn a_way_to_another_room_that_would_not_be_read_is_told() {
    assert_eq!(hidden("faults", "\nimpl Servers {\n}\n\nimpl Faults {\n}\n"), ["impl Servers {"]);
    assert_eq!(hidden("servers", "\nimpl Servers {\n    fn f(core: &mut Core) {}\n}\n"), ["&mut Core"]);
    assert_eq!(hidden("clients", "use super::super::faults::Faults;"), ["super::super"]);
    assert_eq!(
        hidden("clients", "\nimpl Core {\n    fn f(self) { let Self { faults, .. } = self; }\n}\n"),
        ["let Self {"]
    );
}
