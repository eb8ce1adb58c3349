//! The floors of the core: nobody in `core/` knows who is above, so no decision goes in a circle.
//!
//! A room knows another one by its path, by what `core/mod.rs` passes on of it, by a field of `Core` that it touches, and
//! by a method of `Core` that it calls and the other one has. All four are read from the text; `mod.rs` itself passes from
//! one to the other and may know everybody, as may tests.

#[path = "../../client-shim/tests/preload/floors/read.rs"]
mod read;
#[path = "../../client-shim/tests/preload/floors/rooms.rs"]
mod rooms;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The rooms, from the ground up: each may know those before it. The first seventeen are what the others tell each other.
const ROOMS: [&str; 29] = [
    "ids",
    "milliseconds",
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
    "kept_defaults",
    "client_recovery",
    "events",
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
    "advance",
];
/// How many rooms of the ground are not drawn: nobody there decides anything.
const GROUND: usize = 17;
/// How a field of `Core` and a value of it are written in its methods.
const SELVES: [&str; 2] = ["self.", "core."];

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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/core");
    let (facade, sources) = rooms::sources(&root, "crate::core::");
    let passed_on = rooms::passed_on(&facade, &ROOMS);
    let mut owners = BTreeMap::new();
    let all =
        sources.iter().map(|source| (source.text.as_str(), source.room.as_str())).chain([(facade.as_str(), "mod")]);
    for (text, room) in all {
        let bodies = methods_of_core(text);
        functions(&bodies).for_each(|name| drop(owners.insert(name.to_owned(), room.to_owned())));
    }
    let mut knows = BTreeMap::<&str, BTreeSet<String>>::new();
    let mut wrong = Vec::new();
    for source in &sources {
        wrong.extend(hidden(&source.room, &source.text).iter().map(|way| format!("{}: {way}", source.path.display())));
        let floor = ROOMS.iter().position(|room| *room == source.room);
        let floor = floor.unwrap_or_else(|| panic!("{} has no floor", source.path.display()));
        let bodies = methods_of_core(&source.text);
        let named = rooms::named("crate::core::", &source.text, &ROOMS, &passed_on);
        let touched = touched(&bodies).into_iter().filter_map(|(name, is_called)| match is_called {
            true => owners.get(name).cloned(),
            false => Some(if name == "turn" { "effect" } else { name }.to_owned()),
        });
        for other in named.into_iter().chain(touched).filter(|other| *other != source.room) {
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
    let named = rooms::passed_on("pub(crate) use clients::channels::{Channel, Facts as ChannelFacts};", &ROOMS);
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
