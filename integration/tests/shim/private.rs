//! Functions of the driver's private tables of which nobody knows what they take: harmless and translated by what they are
//! passed, or named, and never in the way without a reason.

use super::replay::{events, finished, is_whole, reason, replaying};
use integration::shim;
use integration::sim::{Sim, error_of};
use integration::under_test::once;
use serde_json::Value;

/// The simulated driver's own table.
const TABLE: &str = "577a019ed03c4b668e210f5d93b86ac4";

/// A program that calls these functions in every round goes on after two faults of its own.
fn goes_on(calls: &str) {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let finished = finished(&mut replaying(&sim, &["--light", "--private", calls, "--faults", "oob,trap"]));
        assert_eq!(reason(&finished), "", "{subject}: {calls}");
        is_whole(&finished, 2, &format!("{subject}: {calls}"));
    });
}

/// A program that calls this one is not recovered, and is told of the function, who has called it, and why.
fn is_refused(call: &str, place: u32, why: &str) {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let finished = finished(&mut replaying(&sim, &["--light", "--private", call, "--faults", "trap"]));
        assert_eq!(error_of(&finished), Some(719), "{subject}: {call}: {finished:?}");
        let told = format!("function {place} of the private table {TABLE}, called by mps-replay-probe: it {why}");
        assert!(reason(&finished).contains(&told), "{subject}: {call}: {}", reason(&finished));
    });
}

/// Checks what the report at the end of a program says that nothing has happened to.
fn reported(calls: &str, check: impl Fn(&Value)) {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let arguments = ["--light", "--private", calls];
        let finished = finished(&mut shim::recording(sim.command("mps-replay-probe", &arguments)));
        is_whole(&finished, 0, &format!("{subject}: {calls}"));
        let text = finished.stderr_text();
        let line = text.lines().find(|line| line.starts_with(r#"{"pid""#)).expect("a report");
        check(&serde_json::from_str(line).expect("a line of JSON"));
    });
}

#[test]
fn a_private_table_among_the_drivers_variables_leaves_them_as_they_were() {
    reported("count", |report| assert_eq!(report["private"][0]["judgement"], "harmless", "{report}"));
}

#[test]
fn private_functions_that_are_passed_no_handle_are_harmless() {
    goes_on("count");
}

#[test]
fn handles_that_are_passed_to_private_functions_and_come_from_them_are_translated() {
    goes_on("stream,context");
}

#[test]
fn a_handle_in_a_structure_on_the_callers_stack_is_translated_for_the_call_alone() {
    goes_on("described");
}

#[test]
fn what_a_private_function_has_made_without_a_handle_goes_on_where_it_was_made() {
    goes_on("make");
}

/// Nobody living understands such an object: the call is refused, and nothing else.
#[test]
fn what_a_private_function_has_made_with_a_handle_in_it_is_refused_after_a_fault() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let finished = finished(&mut replaying(&sim, &["--light", "--private", "hold", "--faults", "oob"]));
        assert_eq!(reason(&finished), "", "{subject}: the program itself goes on");
        let faults = events(&finished, "fault");
        let [fault] = faults.as_slice() else { panic!("{subject}: {}", finished.stdout_text()) };
        assert_eq!(fault["round_error"], "a private function: hold: (801, false) (0)", "{subject}");
    });
}

#[test]
fn a_handle_in_the_programs_memory_is_translated_for_the_call_alone() {
    goes_on("kept,described");
}

#[test]
fn a_function_of_a_module_that_a_private_function_has_given_out_is_launched_after_faults() {
    goes_on("found");
}

/// The driver gives it the handle of one that has ended since the last recovery, and so a name that was another's.
#[test]
fn a_function_that_has_the_handle_of_one_that_has_ended_is_launched_after_the_next_fault() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let faults = "oob,trap,trap,oob";
        let finished = finished(&mut replaying(&sim, &["--light", "--private", "anew", "--faults", faults]));
        assert_eq!(reason(&finished), "", "{subject}");
        is_whole(&finished, 4, &format!("{subject}"));
    });
}

#[test]
fn what_a_caller_has_left_in_a_register_is_in_no_way() {
    goes_on("left");
}

#[test]
fn a_private_function_is_refused_by_name_that_has_given_out_an_address_of_the_drivers() {
    is_refused("function", 6, "has given out an address of the driver's own");
}

#[test]
fn the_report_names_private_functions_before_any_fault() {
    reported("stream,kept,function", is_named);
}

fn is_named(report: &Value) {
    let said = |function: u32| {
        let all = report["private"].as_array().expect("a list");
        all.iter().find(|of| of["function"] == function).cloned().unwrap_or_default()
    };
    for (function, judgement) in [
        (2, "handles are translated"),
        (3, "handles are translated"),
        (6, "not judged: it has given out an address of the driver's own"),
    ] {
        let said = said(function);
        assert_eq!((&said["table"], &said["caller"]), (&TABLE.into(), &"mps-replay-probe".into()), "{report}");
        assert_eq!(said["judgement"], judgement, "{report}");
        assert!(said["calls"].as_u64() > Some(0), "{report}");
    }
    let lost = report["not_recoverable"].as_array().expect("a list");
    let told = format!("function 6 of the private table {TABLE}, called by mps-replay-probe");
    let of_private: Vec<&Value> =
        lost.iter().filter(|of| of["function"].as_str().is_some_and(|name| name.contains("private"))).collect();
    assert_eq!(of_private.len(), 1, "{report}");
    assert_eq!((&of_private[0]["function"], &of_private[0]["live"]), (&told.into(), &1.into()), "{report}");
}
