//! The dead copy of the driver is cut off beside the program that goes on, and nobody meets it meanwhile.
//!
//! A debug build keeps the library's thread at the step `burial-begun` until the test says that it may go on.

use super::replay::{events, is_whole, replaying};
use super::without_end::has_as_much;
use integration::lab::LIMIT;
use integration::lab::process::{Finished, Process, run};
use integration::shim;
use integration::sim::{Sim, error_of, find_event, wait};
use integration::under_test::once;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the library's word goes that it may go on.
fn go(sim: &Sim) -> PathBuf {
    sim.lab.dir().join("go")
}

/// The dead copy of this program is not cut off before there is that file.
fn held<'a>(sim: &Sim, command: &'a mut Command) -> &'a mut Command {
    let command = shim::asked_by_tests(command).env("MPS_SHIM_TEST_AT", "hold:burial-begun");
    command.env("MPS_SHIM_TEST_GO", go(sim)).env("MPS_SHIM_LOG", "1")
}

fn lets_go(sim: &Sim) {
    fs::write(go(sim), "").expect("the folder is ours");
}

/// What a program has recovered so far.
fn recovered(program: &Process) -> Vec<Value> {
    let output = program.output();
    let lines = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["event"] == "recovered").map(|line| line["recovery"].clone()).collect()
}

/// A program that has recovered from a neighbour's fault, and whose dead copy is not cut off.
fn beside_its_dead_copy(sim: &Sim, arguments: &[&str]) -> Process {
    let arguments = [&["--light", "--at-once", "--seconds", "600"], arguments].concat();
    let program = Process::start_with_input(held(sim, &mut replaying(sim, &arguments)));
    sim.wait_event(&program, "ready");
    assert_eq!(error_of(&sim.run("mps-aggressor", &["oob"])), Some(700));
    sim.wait_event(&program, "recovered");
    program
}

/// Cut off behind the open gate; what it says of it is what was done.
fn is_told_of(recovery: &Value) {
    let of = |name: &str| recovery[name].as_u64().expect("a number");
    assert!(of("cut_off_us") > of("total_us"), "{recovery}");
    assert!(recovery["steps_us"]["amputate"].as_u64() > Some(0), "{recovery}");
    assert!(of("descriptors") > 0 && of("mappings") > 0, "{recovery}");
    let before: u64 = recovery["steps_us"]
        .as_object()
        .expect("steps")
        .iter()
        .filter(|(step, _)| *step != "amputate")
        .map(|(_, time)| time.as_u64().expect("a number"))
        .sum();
    assert!(before <= of("total_us"), "{recovery}");
}

#[test]
fn a_program_goes_on_before_its_dead_copy_is_cut_off_and_is_told_when_it_is() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let program = beside_its_dead_copy(&sim, &["--recoveries", "1", "--until-stdin-closes"]);
        let [recovery] = recovered(&program).try_into().expect("one");
        for name in ["cut_off_us", "descriptors", "mappings"] {
            assert_eq!(recovery[name], 0, "{subject}: {recovery}");
        }
        assert_eq!(recovery["steps_us"]["amputate"], 0, "{subject}: {recovery}");
        lets_go(&sim);
        wait(&sim, "the end of the dead copy", || {
            program.errors().contains("the dead copy of the driver is cut off in")
        });
        let finished = program.finish(LIMIT).expect("it ends");
        is_whole(&finished, 1, &subject.to_string());
        is_told_of(&events(&finished, "end")[0]["last"]);
    });
}

#[test]
fn a_second_fault_waits_until_the_dead_copy_of_the_first_is_cut_off() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let program = beside_its_dead_copy(&sim, &["--recoveries", "2"]);
        assert_eq!(error_of(&sim.run("mps-aggressor", &["oob"])), Some(700), "{subject}");
        wait(&sim, "the second recovery", || program.errors().contains("a recovery waits until the dead copy"));
        assert_eq!(recovered(&program).len(), 1, "{subject}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_micros();
        lets_go(&sim);
        let finished = program.finish(LIMIT).expect("it ends");
        is_whole(&finished, 2, &subject.to_string());
        let second = &events(&finished, "recovered")[1]["recovery"];
        let of = |name: &str| u128::from(second[name].as_u64().expect("a number"));
        assert!(of("at_us") <= now && now <= of("at_us") + of("total_us"), "{subject}: {now}: {second}");
    });
}

#[test]
fn a_program_ends_whose_dead_copy_cannot_be_cut_off() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let program = beside_its_dead_copy(&sim, &["--recoveries", "1"]);
        let finished = program.finish(LIMIT).expect("it ends");
        is_whole(&finished, 1, &subject.to_string());
        assert!(!finished.stderr_text().contains("is cut off in"), "{subject}: {finished:?}");
        assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{subject}: the next one is served");
    });
}

#[test]
fn the_end_of_a_program_waits_until_its_dead_copy_is_cut_off() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let mut command = replaying(&sim, &["--light", "--at-once", "--faults", "oob"]);
        let finished = run(command.env("MPS_SHIM_LOG", "1"), b"", LIMIT).expect("it runs");
        is_whole(&finished, 1, &subject.to_string());
        assert!(finished.stderr_text().contains("is cut off in"), "{subject}: {finished:?}");
    });
}

#[test]
fn a_child_has_nothing_of_a_dead_copy_that_is_not_cut_off() {
    once(|subject| {
        let sim = Sim::watched(subject, &[]);
        let mut command = shim::recording(sim.command("mps-replay-probe", &["--scene", "children"]));
        let program = Process::start(held(&sim, command.env("MPS_SHIM_REPLAY", "in-place")));
        sim.wait_event(&program, "forked");
        assert!(!program.errors().contains("is cut off in"), "{subject}");
        lets_go(&sim);
        let finished = program.finish(LIMIT).expect("it ends");
        let line = find_event(&finished.stdout_text(), "scene").unwrap_or_else(|| panic!("{subject}: {finished:?}"));
        let nothing = json!({ "files": 0, "sockets": 0, "mappings": 0 });
        assert_eq!((&line["heard"]["before"], &line["heard"]["after"]), (&nothing, &nothing), "{subject}: {line}");
        assert_ne!(line["heard"]["parent"], nothing, "{subject}: {line}");
    });
}

/// What a machine does that has no thread left: the dead copy is cut off all the same, and given back by the next one.
#[test]
fn a_dead_copy_is_cut_off_and_given_back_where_there_was_no_thread_for_it() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let kinds = ["oob"; 6];
        let counts = [None, Some("fail:dead-copys-thread:5")].map(|failing| {
            let mut command = replaying(&sim, &["--light", "--resources", "--faults", &kinds.join(",")]);
            shim::asked_by_tests(&mut command).envs(failing.map(|failing| ("MPS_SHIM_TEST_AT", failing)));
            let finished = run(&mut command, b"", LIMIT * 2).expect("the probe runs");
            is_whole(&finished, kinds.len() as u64, &format!("{subject}: {failing:?}"));
            let faults = events(&finished, "fault");
            faults.iter().for_each(|fault| is_told_of(&fault["recovery"]));
            faults[kinds.len() - 1]["resources"].clone()
        });
        has_as_much(&counts[0], &counts[1], subject);
    });
}

/// The recovery of a program at rest whose server has died, whose library does not find the daemon's door.
fn of_a_dead_server(sim: &Sim, armed: Option<&str>) -> Finished {
    fs::rename(sim.lab.pipe_dir().join("shim"), sim.lab.pipe_dir().join("aside")).expect("the door is there");
    let mut command = shim::recording(sim.command("mps-replay-probe", &["--scene", "finished-and-asking"]));
    command.env("MPS_SHIM_REPLAY", "in-place");
    shim::asked_by_tests(&mut command).envs(armed.map(|armed| ("MPS_SHIM_TEST_AT", armed)));
    let program = Process::start(&mut command);
    sim.wait_event(&program, "pending");
    kill(Pid::from_raw(sim.server()), Signal::SIGKILL).expect("it runs");
    program.finish(LIMIT).expect("it ends")
}

#[test]
fn where_nobody_says_that_nothing_runs_the_dead_copy_is_cut_off_before_the_program_goes_on() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let finished = of_a_dead_server(&sim, None);
        let line = find_event(&finished.stdout_text(), "scene").unwrap_or_else(|| panic!("{subject}: {finished:?}"));
        assert_eq!(line["heard"]["told"], json!([0, 0]), "{subject}: {line}");
        let alone = &line["recovery"];
        let of = |name: &str| alone[name].as_u64().expect("a number");
        assert!(of("cut_off_us") > 0 && of("cut_off_us") <= of("total_us"), "{subject}: {alone}");
        assert!(of("descriptors") > 0 && alone["steps_us"]["amputate"].as_u64() > Some(0), "{subject}: {alone}");
        let sim = Sim::started(subject, &[]);
        let killed = of_a_dead_server(&sim, Some("kill:dead-cut-early"));
        assert_eq!(killed.signal, Some(9), "{subject}: {killed:?}");
        assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{subject}: the next one is served");
    });
}
