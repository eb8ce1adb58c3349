//! Two programs share memory by handles, under the library that keeps it.

use integration::lab::LIMIT;
use integration::lab::process::{Finished, run};
use integration::shim;
use integration::sim::{Sim, error_of, find_event};
use integration::under_test::once;
use serde_json::{Value, json};

fn shared(sim: &Sim, arguments: &[&str], is_replaying: bool) -> (Value, Finished) {
    let command = sim.command("mps-ipc-probe", arguments);
    let mut command = if is_replaying { shim::recording(command) } else { shim::keeping(command) };
    if is_replaying {
        command.env("MPS_SHIM_REPLAY", "in-place");
    }
    let finished = run(&mut command, b"", LIMIT).expect("the probe runs");
    assert_eq!(error_of(&finished), None, "{}\n{}", finished.stdout_text(), finished.stderr_text());
    (find_event(&finished.stdout_text(), "end").expect("it ends"), finished)
}

/// What the second program found.
fn is_shared(end: &Value, trapped: u64, context: &str) {
    let peer = &end["peer"];
    for (fact, value) in [
        ("are_intact", json!(true)),
        ("is_same", json!(true)),
        ("closings", json!([0, 0, 0, 0])),
        ("is_still_there", json!(true)),
        ("told", json!({ "are_whole": true, "numbers": 3, "handles": [1, 1, 1, 1, 1, 1], "behind": 500 })),
        ("told_of_closed", json!(500)),
        ("once_more_is_refused", json!(true)),
        ("trapped", json!(trapped)),
    ] {
        assert_eq!(peer[fact], value, "{context}: {fact}: {end}");
    }
    // As the driver has it: a process cannot open its own.
    assert_eq!((&end["is_written"], &end["of_its_own"]), (&json!(true), &json!(201)), "{context}: {end}");
    assert_eq!(end["trapped"], trapped, "{context}: {end}");
}

#[test]
fn programs_share_memory_that_is_kept_by_handles() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        is_shared(&shared(&sim, &[], false).0, 0, &subject.to_string());
        is_shared(&shared(&Sim::started(subject, &[]), &[], false).0, 0, &format!("{subject} under MPS"));
    });
}

#[test]
fn what_programs_share_is_there_on_both_sides_after_faults() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let (end, finished) = shared(&sim, &["--trap"], true);
        is_shared(&end, 719, &subject.to_string());
        let text = finished.stderr_text();
        assert_eq!(text.matches("recovered from CUDA error 719").count(), 2, "{subject}: {text}");
    });
}

#[test]
fn a_handle_of_memory_that_is_gone_is_refused_and_the_reason_is_told() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let (end, finished) = shared(&sim, &["--alone"], false);
        assert_eq!(end["peer"]["code"], 205, "{subject}: {end}");
        let text = finished.stderr_text();
        assert!(text.contains("does not give it: the memory is there no longer"), "{subject}: {text}");
    });
}

/// Another block lies where it was, and the second program has its slab mapped for a third one.
#[test]
fn a_handle_of_a_block_that_is_freed_gives_nobody_what_lies_there_now() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let (end, finished) = shared(&sim, &["--freed"], false);
        assert_eq!((&end["in_its_place"], &end["peer"]["code"]), (&json!(true), &json!(205)), "{subject}: {end}");
        let text = finished.stderr_text();
        assert!(text.contains("does not give it: the memory is there no longer"), "{subject}: {text}");
    });
}
