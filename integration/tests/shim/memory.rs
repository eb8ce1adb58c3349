//! The preloaded library keeps memory: a program finds out nothing of it, and a second one finds the memory alive.

use integration::lab::LIMIT;
use integration::lab::process::{Finished, run};
use integration::shim;
use integration::sim::{Sim, error_of, find_event};
use integration::under_test::once;
use serde_json::{Value, json};
use std::process::Command;

fn facts(finished: &Finished) -> Value {
    assert_eq!(error_of(finished), None, "{finished:?}");
    let mut facts = find_event(&finished.stdout_text(), "facts").unwrap_or_else(|| panic!("no facts: {finished:?}"));
    for varying in ["pid", "t_ms"] {
        facts.as_object_mut().expect("a line is an object").remove(varying);
    }
    facts
}

/// Runs the probe with memory kept; also what the library reports.
fn kept(sim: &Sim, arguments: &[&str]) -> (Finished, Value) {
    reported(shim::keeping(sim.command("mps-memory-probe", arguments)))
}

/// Runs a program to its end; also what the library reports.
fn reported(mut command: Command) -> (Finished, Value) {
    let finished = run(&mut command, b"", LIMIT).expect("the probe runs");
    let report = finished.stderr_text().lines().find_map(|line| serde_json::from_str(line).ok());
    (finished.clone(), report.unwrap_or_else(|| panic!("no report: {finished:?}")))
}

#[test]
fn a_program_sees_no_difference_and_all_of_its_memory_is_kept() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let native = facts(&sim.run("mps-memory-probe", &[]));
        let (finished, report) = kept(&sim, &[]);
        assert_eq!(facts(&finished), native, "{subject}");
        for (fact, value) in [("are_intact", true), ("is_apart", true), ("are_known", true), ("is_all_back", true)] {
            assert_eq!(native[fact], value, "{subject}: {fact}");
        }
        assert_eq!(native["ordered"]["are_intact"], true, "{subject}");
        assert_eq!(native["tables"]["kept"], json!([0, 0x510]), "{subject}");
        assert_eq!(native["tables"]["is_told"], true, "{subject}");
        assert_eq!(report["not_recoverable"], json!([]), "{subject}: {report}");
        // What the program mapped itself and left mapped when it ended.
        let mapped = &report["mapped"];
        let numbers = ["allocations", "descriptors", "mappings", "reservations"].map(|name| mapped[name].as_u64());
        assert_eq!(numbers, [Some(1); 4], "{subject}: {report}");
        assert_eq!(mapped["kept_bytes"], 2 << 20, "{subject}: {report}");
        assert_eq!(native["mapped"]["types"], json!([0, 0]), "{subject}");
        // As with NVIDIA's driver what is at least a page begins with one.
        let alignments = find_event(&finished.stdout_text(), "alignments").expect("it says how memory lies");
        let pages = [2 << 20, 3 << 20, 20 << 20].map(|size: u32| alignments[size.to_string()].as_u64());
        assert_eq!(pages, [Some(21); 3], "{subject}: {alignments}");
        let said = ["is_whole", "kept", "odd"].map(|fact| native["mapped"][fact].clone());
        assert_eq!(said, [json!(true), json!([1, 1, 1]), json!([1, 1])], "{subject}");
        // Its reservations are larger at the driver then, and somewhere else.
        let mut replayed = shim::keeping(sim.command("mps-memory-probe", &[]));
        replayed.env("MPS_SHIM_KEEP", "state").env("MPS_SHIM_REPLAY", "in-place");
        assert_eq!(facts(&reported(replayed).0), native, "{subject}");
        assert_eq!(report["kept"]["blocks"], 0, "{subject}: {report}");
        assert!(report["kept"]["slabs"].as_u64() <= Some(1), "{subject}: {report}");
    });
}

#[test]
fn under_mps_it_is_the_same() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let native = facts(&sim.run("mps-memory-probe", &[]));
        assert_eq!(facts(&kept(&sim, &[]).0), native, "{subject}");
    });
}

#[test]
fn a_forked_child_holds_nothing_of_its_parents_memory() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let (finished, _) = kept(&sim, &["--fork"]);
        assert_eq!(facts(&finished)["are_intact"], true, "{subject}");
    });
}

#[test]
fn a_process_without_descriptors_to_spare_runs_and_says_what_is_lost() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let (finished, report) = kept(&sim, &["--few-descriptors"]);
        assert_eq!(facts(&finished)["are_intact"], true, "{subject}");
        let lost = report["not_recoverable"].as_array().expect("a list");
        assert!(!lost.is_empty(), "{subject}: {report}");
        assert!(lost.iter().all(|lost| lost["live"] == 0 && lost["ever"].as_u64() > Some(0)), "{subject}: {report}");
    });
}

#[test]
fn what_can_be_made_again_is_noted_and_the_rest_counted_with_its_reason() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let native = facts(&sim.run("mps-memory-probe", &[]));
        let (finished, report) = reported(shim::recording(sim.command("mps-memory-probe", &[])));
        assert_eq!(facts(&finished), native, "{subject}");
        let recorded = &report["recorded"];
        // The probe's own, and the module and the three kernels that it runs, one of which it asks for twice.
        let expected = [
            ("streams", 2),
            ("events", 1),
            ("modules", 2),
            ("functions", 3),
            ("libraries", 0),
            ("host_allocations", 1),
        ];
        for (kind, count) in expected {
            assert_eq!(recorded[kind], count, "{subject}: {kind}: {report}");
        }
        assert!(recorded["image_bytes"].as_u64() > Some(0), "{subject}: {report}");
        let lost = json!([{
            "function": "cuCtxCreate_v4", "reason": "only primary contexts are made again",
            "live": 0, "ever": 1, "bytes": 0, "bytes_ever": 0,
        }]);
        assert_eq!(report["not_recoverable"], lost, "{subject}");
    });
}
