//! Random CUDA programs under the library, and those that have once shown a wrong byte.

use super::spare::MAKING;
use integration::lab::LIMIT;
use integration::lab::process::{Finished, run};
use integration::lab::stage::is_long;
use integration::shim;
use integration::sim::Sim;
use integration::under_test::{Subject, once};
use serde_json::Value;

/// Operations of the fixed share, of that with spare copies, and of the long variant.
const SHARE: u64 = 20_000;
const SPARE_SHARE: u64 = 5_000;
const LONG_SHARE: u64 = 1_000_000;

fn checked(subject: &Subject, replay: &str, arguments: &[&str]) -> (Finished, Vec<Value>) {
    checked_by(&simulated(subject, &[]), replay, arguments)
}

/// The simulated driver tells of a program's own faults at once, since nobody looks at how late it does.
fn simulated(subject: &Subject, more: &[(&str, &str)]) -> Sim {
    let at_once = [("MPS_SIM_DEVICES", "2"), ("MPS_SIM_OWN_FAULT_MS", "0"), ("MPS_SIM_OWN_MEMORY_FAULT_MS", "0")];
    Sim::new(subject, &[&at_once, more].concat())
}

/// The same for one program.
fn program(subject: &Subject, program: &str, how: &[&str], more: &[(&str, &str)]) -> (Finished, Vec<Value>) {
    let sim = simulated(subject, more);
    let file = sim.lab.pipe_dir().join("program.json");
    std::fs::create_dir_all(sim.lab.pipe_dir()).and_then(|()| std::fs::write(&file, program)).expect("a file");
    checked_by(&sim, "in-place", &[&["--program", file.to_str().expect("a name")], how].concat())
}

fn checked_by(sim: &Sim, replay: &str, arguments: &[&str]) -> (Finished, Vec<Value>) {
    let mut command = shim::recording(sim.command("mps-checker", arguments));
    command.env("MPS_SHIM_REPLAY", replay).env_remove("MPS_SHIM_REPORT");
    if replay == "spare" {
        // Without a daemon a spare copy stands where the program does, on the GPU itself.
        shim::asked_by_tests(&mut command).env("MPS_SHIM_TEST_SPARE", sim.lab.pipe_dir());
    }
    let finished = run(&mut command, b"", LIMIT * if is_long() { 60 } else { 5 }).expect("the checker runs");
    let lines = finished.stdout_text().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    (finished, lines)
}

#[test]
fn programs_that_have_shown_a_mistake_show_it_no_more() {
    once(|subject| {
        let (finished, lines) = checked(subject, "in-place", &["--cases"]);
        let cases: Vec<&Value> = lines.iter().filter(|line| line["event"] == "case").collect();
        assert!(!cases.is_empty(), "{subject}: {finished:?}");
        let wrong: Vec<_> = cases.iter().filter(|case| !case["found"].is_null()).collect();
        assert!(wrong.is_empty(), "{subject}: {wrong:#?}");
    });
}

#[test]
fn one_case_is_played_by_its_name_and_an_unknown_one_is_refused() {
    once(|subject| {
        let name = "the end of a thread that has given work is a fault of its own";
        let (finished, lines) = checked(subject, "in-place", &["--case", name, "--times", "2"]);
        let end = lines.iter().find(|line| line["event"] == "end").unwrap_or_else(|| panic!("{subject}: {finished:?}"));
        assert_eq!((&end["recoveries"], finished.code), (&2.into(), Some(0)), "{subject}: {finished:?}");
        let (finished, lines) = checked(subject, "in-place", &["--case", "no such case"]);
        assert_eq!((&lines[0]["event"], finished.code), (&"usage".into(), Some(2)), "{subject}: {finished:?}");
    });
}

/// What the plan of a program builds on, and the GPU suite asks a real driver for.
#[test]
fn copies_read_their_sources_when_those_of_nvidias_driver_do() {
    once(|subject| {
        let sim = simulated(subject, &[]);
        let bare = sim.run("mps-checker", &["--waits"]);
        let (preloaded, _) = checked_by(&sim, "in-place", &["--waits"]);
        for finished in [bare, preloaded] {
            let text = finished.stdout_text();
            let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            let reads = |when| lines.iter().filter(|line| line["event"] == "waits" && line["reads"] == when).count();
            assert_eq!(finished.code, Some(0), "{subject}: {lines:#?}");
            assert!(reads("at once") > 0 && reads("in order") > 0, "{subject}: {lines:#?}");
        }
    });
}

/// Its function of the host is done when the launch fails, and once more by the program, which makes the failed call again: it
/// was told, and that memory is in doubt.
const TORN: &str = r#"{"ops": [
    {"thread": 0, "what": {"MakeStream": {"stream": 0, "device": 0, "is_blocking": false}}},
    {"thread": 0, "what": {"Allocate": {"block": 0, "device": 0, "memory": "Device"}}},
    {"thread": 0, "what": {"Allocate": {"block": 1, "device": 0, "memory": "Pinned"}}},
    {"thread": 0, "what": {"HostWrite": {"to": {"block": 1, "first": 0}, "cells": 4, "key": 3}}},
    {"thread": 0, "what": {"MakeGraph": {"graph": 0, "stream": 0, "is_captured": false, "nodes": [
        {"Call": {"to": {"block": 1, "first": 3}, "cells": 1, "key": 5}},
        {"Set": {"to": {"block": 0, "first": 0}, "cells": 4, "key": 7}}
    ]}}},
    {"thread": 0, "what": {"SyncContext": {"device": 0}}},
    {"thread": 0, "what": {"LaunchGraph": {"graph": 0, "on": {"Null": 0}}}},
    {"thread": 0, "what": {"SyncContext": {"device": 0}}},
    {"thread": 0, "what": {"HostRead": {"from": {"block": 1, "first": 0}, "cells": 4}}},
    {"thread": 0, "what": "ReadAll"}
]}"#;

#[test]
fn what_a_torn_launch_of_a_graph_does_twice_is_in_doubt() {
    once(|subject| {
        // The second launch is that of the disturbed run.
        let tear = [("MPS_SIM_TEAR_AT", "1:cuGraphLaunch:2")];
        let (finished, lines) = program(subject, TORN, &["--faults-elsewhere", "1"], &tear);
        let end = lines.iter().find(|line| line["event"] == "end").unwrap_or_else(|| panic!("{subject}: {finished:?}"));
        assert_eq!(
            (&end["recoveries"], &end["clean"], &end["errors"]),
            (&1.into(), &0.into(), &1.into()),
            "{subject}: {end}"
        );
        assert_eq!(finished.code, Some(0), "{subject}: {finished:?}");
    });
}

#[test]
fn a_recovery_that_no_fault_is_the_cause_of_is_found() {
    once(|subject| {
        let (finished, lines) = program(subject, TORN, &[], &[("MPS_SIM_TEAR_AT", "1:cuGraphLaunch:2")]);
        let found = lines.iter().find(|line| line["event"] == "found");
        let found = found.unwrap_or_else(|| panic!("{subject}: {finished:?}"));
        assert_eq!((&found["kind"], finished.code), (&"unprovoked".into(), Some(1)), "{subject}: {finished:?}");
    });
}

/// An event is in doubt when its context is reset, and a thread that begins later launches a graph.
const RESET: &str = r#"{"ops": [
    {"thread": 0, "what": {"MakeStream": {"stream": 0, "device": 0, "is_blocking": false}}},
    {"thread": 0, "what": {"MakeEvent": {"event": 0, "device": 0}}},
    {"thread": 0, "what": {"Allocate": {"block": 0, "device": 0, "memory": "Pinned"}}},
    {"thread": 1, "what": {"MakeGraph": {"graph": 0, "stream": 0, "is_captured": false, "nodes": [
        {"Call": {"to": {"block": 0, "first": 0}, "cells": 1, "key": 5}}
    ]}}},
    {"thread": 1, "what": {"LaunchGraph": {"graph": 0, "on": {"Stream": 0}}}},
    {"thread": 0, "what": {"Hold": {"on": {"Stream": 0}}}},
    {"thread": 0, "what": {"Record": {"event": 0, "on": {"Stream": 0}}}},
    {"thread": 0, "what": {"Neighbour": {"device": 0, "code": 719}}},
    {"thread": 0, "what": {"SyncContext": {"device": 0}}},
    {"thread": 0, "what": {"Reset": {"device": 0}}}
]}"#;

#[test]
fn what_was_lost_in_a_context_is_told_to_nobody_who_begins_after_its_reset() {
    once(|subject| {
        let (finished, lines) = program(subject, RESET, &["--times", "2"], &[]);
        let end = lines.iter().find(|line| line["event"] == "end").unwrap_or_else(|| panic!("{subject}: {finished:?}"));
        assert_eq!((&end["recoveries"], &end["clean"]), (&2.into(), &0.into()), "{subject}: {end}");
        assert_eq!(finished.code, Some(0), "{subject}: {finished:?}");
    });
}

/// Two threads have work in default streams of their own, the first time with the copy that the program has loaded, and end.
const OWN_STREAMS: &str = r#"{"ops": [
    {"thread": 0, "what": {"Allocate": {"block": 0, "device": 0, "memory": "Device"}}},
    {"thread": 0, "what": {"Allocate": {"block": 1, "device": 0, "memory": "Device"}}},
    {"thread": 0, "what": {"Set": {"to": {"block": 0, "first": 0}, "cells": 4, "key": 3, "on": {"Own": 0}, "is_async": false}}},
    {"thread": 0, "what": {"SyncContext": {"device": 0}}},
    {"thread": 1, "what": {"Set": {"to": {"block": 1, "first": 0}, "cells": 4, "key": 5, "on": {"Own": 0}, "is_async": true}}},
    {"thread": 1, "what": {"Hold": {"on": {"Own": 0}}}},
    {"thread": 0, "what": {"Neighbour": {"device": 0, "code": 719}}},
    {"thread": 0, "what": {"SyncContext": {"device": 0}}},
    {"thread": 0, "what": "ReadAll"}
]}"#;

#[test]
fn a_thread_that_ends_with_a_stream_of_a_dead_copy_ends_alone() {
    once(|subject| {
        let ending = [("MPS_SIM_ENDING_THREAD", "1")];
        let (finished, lines) = program(subject, OWN_STREAMS, &["--times", "4"], &ending);
        let end = lines.iter().find(|line| line["event"] == "end").unwrap_or_else(|| panic!("{subject}: {finished:?}"));
        assert_eq!((&end["recoveries"], finished.code), (&4.into(), Some(0)), "{subject}: {finished:?}");
    });
}

/// The program's own fault is not recovered from, so its copy stays.
#[test]
fn a_thread_that_ends_with_a_stream_of_a_copy_that_stays_dead_ends_alone() {
    once(|subject| {
        let sim = simulated(subject, &[("MPS_SIM_ENDING_THREAD", "1")]);
        let file = sim.lab.pipe_dir().join("program.json");
        let neighbour = r#"{"Neighbour": {"device": 0, "code": 719}}"#;
        let own = r#"{"Fault": {"wrong": "Trap", "on": {"Null": 0}}}"#;
        let written = OWN_STREAMS.replace(neighbour, own);
        assert_ne!(written, OWN_STREAMS);
        std::fs::create_dir_all(sim.lab.pipe_dir()).and_then(|()| std::fs::write(&file, written)).expect("a file");
        let (finished, lines) = checked_by(&sim, "bystander", &["--program", file.to_str().expect("a name")]);
        let found = lines.iter().find(|line| line["event"] == "found");
        let found = found.unwrap_or_else(|| panic!("{subject}: {finished:?}"));
        assert_eq!((&found["kind"], finished.code), (&"refused".into(), Some(1)), "{subject}: {finished:?}");
    });
}

/// Nothing wrong is found in so many operations; what was done.
fn is_right(subject: &Subject, replay: &str, share: u64, more: &[&str]) -> Value {
    let share = share.to_string();
    let arguments = [&["--operations", &share, "--jobs", "2", "--shrinkings", "60"], more].concat();
    let (finished, lines) = checked(subject, replay, &arguments);
    let end = lines.iter().find(|line| line["event"] == "end").unwrap_or_else(|| panic!("{subject}: {finished:?}"));
    assert_eq!((&end["found"], finished.code), (&0.into(), Some(0)), "{subject}: {more:?}: {finished:?}");
    end.clone()
}

fn are_right(replay: &str, share: u64) {
    once(|subject| {
        let end = is_right(subject, replay, if is_long() { LONG_SHARE } else { share }, &[]);
        assert_eq!(end["by_spare"].as_u64().is_some_and(|count| count > 0), replay == "spare", "{subject}: {end}");
    });
}

#[test]
fn no_random_program_gets_a_wrong_byte() {
    are_right("in-place", SHARE);
}

/// Faults come at any point of a copy's making, following and switch.
#[test]
fn no_random_program_gets_a_wrong_byte_by_a_spare_copy() {
    are_right("spare", SPARE_SHARE);
}

/// Own faults and neighbours' at each step; in the long variant at one that each process draws.
#[test]
fn no_fault_at_any_step_of_the_making_of_a_spare_copy_gives_a_wrong_byte() {
    once(|subject| {
        for step in MAKING {
            for faults in ["own", "neighbours"] {
                let end = is_right(subject, "spare", 1, &["--each", "5", "--faults", faults, "--at-step", step]);
                let has = |count: &Value| count.as_u64() > Some(0);
                assert!(has(&end["at_steps"][step]) && has(&end["recoveries"]), "{subject}: {faults}: {step}: {end}");
            }
        }
        if is_long() {
            let end = is_right(subject, "spare", LONG_SHARE, &["--at-step", "any"]);
            let met = |step: &str| end["at_steps"][step].as_u64() > Some(0);
            assert!(MAKING.iter().all(|step| met(step)), "{subject}: {end}");
        }
    });
}
