//! Memory that the preloaded library keeps outlives every kind of fault and the process, to the last byte.

use integration::lab::LIMIT;
use integration::lab::process::{Finished, Process, run};
use integration::shim;
use integration::sim::{Sim, error_of, find_event};
use integration::under_test::once;

/// `mps-survivor` on this bench.
fn arguments(kind: &str) -> [String; 3] {
    let library = shim::library().into_os_string().into_string().expect("the build folder's path is text");
    [kind.to_owned(), "--library".to_owned(), library]
}

fn survived(finished: &Finished, lost: Option<u64>, context: &str) {
    let output = finished.stdout_text();
    let adopted = find_event(&output, "adopted").unwrap_or_else(|| panic!("{context}: {finished:?}"));
    assert_eq!(adopted["lost"].as_u64(), lost, "{context}: {adopted}");
    let by = &adopted["by"];
    assert_eq!(by["is_intact"], true, "{context}: {adopted}");
    // Three slabs for what was allocated, and what the victim mapped itself.
    assert_eq!(by["regions"], 4, "{context}: {adopted}");
    assert!(by["bytes"].as_u64() > Some(40 << 20), "{context}: {adopted}");
}

fn own_fault(sim: &Sim, kind: &str, lost: Option<u64>, context: &str) {
    let arguments = arguments(kind);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let finished = run(&mut sim.command("mps-survivor", &arguments), b"", LIMIT).expect("it runs");
    survived(&finished, lost, context);
}

#[test]
fn memory_outlives_a_programs_own_fault_and_its_sudden_death() {
    once(|subject| {
        for (kind, lost) in [("own-trap", Some(719)), ("own-oob", Some(700)), ("killed", None)] {
            own_fault(&Sim::new(subject, &[]), kind, lost, &format!("{subject} without MPS, {kind}"));
            own_fault(&Sim::started(subject, &[]), kind, lost, &format!("{subject} under MPS, {kind}"));
        }
    });
}

#[test]
fn memory_outlives_another_clients_fault() {
    once(|subject| {
        for (kind, lost) in [("trap", 719), ("oob", 700)] {
            let sim = Sim::started(subject, &[]);
            let arguments = arguments("other");
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let survivor = Process::start(&mut sim.command("mps-survivor", &arguments));
            sim.wait_event(&survivor, "victim");
            assert_eq!(error_of(&sim.run("mps-aggressor", &[kind])), Some(lost), "{subject}");
            let finished = survivor.finish(LIMIT).expect("it ends");
            survived(&finished, Some(lost), &format!("{subject}: {kind}"));
        }
    });
}
