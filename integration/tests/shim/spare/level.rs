//! Copies that have all that their program has, and what is left to be done when it goes on with one.

use super::{BY_THE_SPARE, EVERYTHING, STANDS, events, has_a_spare, is_whole, probe, ways, with_one_daemon};
use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::sim::{Sim, error_of, find_event, wait};
use integration::under_test::{Subject, once};
use serde_json::{Value, json};

/// What the library says when the copy has all that the program has, to the end of the line.
const IS_LEVEL: &str = "the spare copy has all that the program has\n";
/// The same of one at rest, whose variables the copy has, too.
const IS_LEVEL_AT_REST: &str = "the spare copy has all that the program has, which is at rest\n";

/// Where it has said so the last time.
pub(in super::super) fn level(said: &str) -> Option<usize> {
    said.rfind(IS_LEVEL).max(said.rfind(IS_LEVEL_AT_REST))
}

/// The last recovery of a program at rest that has so many threads with their objects, whose copy was level.
fn switch_of(subject: &Subject, threads: usize) -> Value {
    let benches = [Sim::started(subject, &[]), Sim::started(subject, &[])];
    let threads = threads.to_string();
    let arguments = ["--recoveries", "1", "--seconds", "600", "--idle", "--threads", &threads];
    let program = Process::start(&mut probe(&benches[0], &benches[1], &[&arguments[..], &EVERYTHING].concat()));
    benches[0].wait_event(&program, "ready");
    has_a_spare(&benches[0], &program);
    // Nothing is given any more, so variables are read once, and the copy follows.
    wait(&benches[0], "a level copy", || {
        let said = program.errors();
        said.rfind(IS_LEVEL_AT_REST) > said.rfind(STANDS)
    });
    assert_eq!(error_of(&benches[0].run("mps-aggressor", &["oob"])), Some(700), "{subject}");
    let finished = program.finish(LIMIT).expect("it ends");
    is_whole(&finished, 1, &format!("{subject}: {threads} threads"));
    assert_eq!(ways(&finished), [BY_THE_SPARE], "{subject}: {finished:?}");
    let recovery = events(&finished, "recovered").pop().expect("one")["recovery"].clone();
    assert_eq!(recovery["behind"], 0, "{subject}: {threads} threads: {finished:?}");
    recovery
}

#[test]
fn a_switch_to_a_level_copy_makes_as_many_calls_whatever_the_program_has() {
    once(|subject| {
        let (few, many) = (switch_of(subject, 1), switch_of(subject, 8));
        let of = |recovery: &Value, name: &str| recovery[name].as_u64().expect("a number");
        assert!(of(&many, "objects") > of(&few, "objects") + 10, "{few}, {many}");
        assert_eq!(of(&few, "calls"), of(&many, "calls"), "{few}, {many}");
        assert!(of(&few, "calls") < 10, "{few}");
    });
}

#[test]
fn copies_follow_a_program_at_work_that_changes_a_variable_and_graphs_in_each_round() {
    let recoveries = with_one_daemon(3, &["--variable", "--graph", "--pinned", "--library", "--light"]);
    assert_eq!(recoveries.len(), 3);
}

/// A scene that is played while a copy stands and is level, until it is recovered; its line.
fn scene(subject: &Subject, name: &str) -> Value {
    let benches = [Sim::started(subject, &[]), Sim::started(subject, &[])];
    let program = Process::start(&mut probe(&benches[0], &benches[1], &["--scene", name]));
    benches[0].wait_event(&program, "pending");
    has_a_spare(&benches[0], &program);
    wait(&benches[0], "a level copy", || level(&program.errors()) > program.errors().rfind(STANDS));
    assert_eq!(error_of(&benches[0].run("mps-aggressor", &["oob"])), Some(700), "{subject}");
    let finished = program.finish(LIMIT).expect("it ends");
    assert_eq!(error_of(&finished), None, "{subject}: {name}: {finished:?}");
    let line = find_event(&finished.stdout_text(), "scene").expect("its line");
    assert_eq!(line["recovery"]["way"], BY_THE_SPARE, "{subject}: {name}: {finished:?}");
    line["heard"].clone()
}

#[test]
fn a_spare_copy_has_the_stacks_that_kernels_need_and_the_program_is_told_its_own_limit() {
    once(|subject| {
        let of = |name| {
            let heard = scene(subject, name);
            (heard["limits"].clone(), heard["word"].as_u64())
        };
        assert_eq!(of("deep-kernel-later"), (json!([1024, 1024, 1024]), Some(28)), "{subject}");
        assert_eq!(of("deep-kernel-before"), (json!([1024, 1024, 1024]), Some(28)), "{subject}");
        assert_eq!(of("stack-limit"), (json!([2048, 2048, 4096]), Some(28)), "{subject}");
    });
}
