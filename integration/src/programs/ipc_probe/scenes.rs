//! What programs that share memory and an event go through, scene by scene: this one tells them, and has no part in it.

mod ends;
mod faults;
mod hostile;
mod parties;
mod random;
mod sound;

use super::super::report::Report;
use parties::Found;
use random::at_random;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// A scene by its name.
type Scene = (&'static str, fn() -> Found<()>);

const SCENES: [Scene; 22] = [
    ("without_faults", sound::without_faults),
    ("recorded_before_it_was_exported", sound::recorded_before_it_was_exported),
    ("owner_faults_at_rest", faults::owner_faults_at_rest),
    ("owner_faults_between_record_and_wait", faults::owner_faults_between_record_and_wait),
    ("times_behind_lost_work", faults::times_behind_lost_work),
    ("peer_faults_at_rest", faults::peer_faults_at_rest),
    ("peer_faults_while_it_waits", faults::peer_faults_while_it_waits),
    ("both_fault_by_turns", faults::both_fault_by_turns),
    ("owner_is_killed_before_it_is_done", ends::owner_is_killed_before_it_is_done),
    ("owner_is_killed_when_it_is_done", ends::owner_is_killed_when_it_is_done),
    ("peer_is_killed", ends::peer_is_killed),
    ("handles_and_what_is_refused", sound::handles_and_what_is_refused),
    ("records_come_in_another_order", sound::records_come_in_another_order),
    ("numbers_are_not_taken_back", sound::numbers_are_not_taken_back),
    ("three_in_a_row", faults::three_in_a_row),
    ("owner_is_refused", ends::owner_is_refused),
    ("owner_ends_its_context", ends::owner_ends_its_context),
    ("page_is_written_over", hostile::page_is_written_over),
    ("records_are_made_up", hostile::records_are_made_up),
    ("handles_are_made_up", hostile::handles_are_made_up),
    ("page_cannot_be_made_smaller", hostile::page_cannot_be_made_smaller),
    ("another_user_has_nothing", hostile::another_user_has_nothing),
];

/// Where somebody gives a server for a spare copy; not among all.
const WITH_A_SERVER_FOR_SPARES: [Scene; 2] = [
    ("owner_goes_on_with_a_spare_copy", faults::owner_goes_on_with_a_spare_copy),
    ("peer_goes_on_with_a_spare_copy", faults::peer_goes_on_with_a_spare_copy),
];

/// Plays a scene: one by its name, or one that a number says.
fn play(name: &str) -> Found<()> {
    let found = WITH_A_SERVER_FOR_SPARES.iter().find(|(of, _)| *of == name);
    if let Some((_, scene)) = found {
        return scene();
    }
    if let Some((way @ ("at_random" | "at_random_together"), seed)) = name.split_once(':') {
        let seed = seed.parse().map_err(|_| format!("{name} has no number"))?;
        return at_random(seed, way == "at_random_together");
    }
    let found = SCENES.iter().find(|(of, _)| *of == name);
    found.map_or_else(|| Err(format!("there is no scene {name}")), |(_, scene)| scene())
}

/// Plays these scenes, or all; what is wrong in each.
pub(super) fn run(report: Report, wanted: &[String]) -> ExitCode {
    let mut found = Map::new();
    let all: Vec<String> =
        SCENES.iter().map(|(name, _)| (*name).to_owned()).chain(["at_random:1".to_owned()]).collect();
    for name in if wanted.is_empty() { &all } else { wanted } {
        let outcome = play(name);
        report.say("scene", json!({ "name": name, "wrong": outcome.as_ref().err() }));
        found.insert(name.clone(), outcome.map_or_else(Value::String, |()| Value::Null));
    }
    let is_right = !found.is_empty() && found.values().all(Value::is_null);
    report.say("end", json!({ "scenes": found, "is_right": is_right }));
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
