//! `MPS_SHIM_REPLAY=spare`: a program goes on with a second copy of the driver that stands by, and without one as ever.
//!
//! Here the copy stands on the server of a second daemon, which is named to the library for tests alone, so that the
//! library is seen with any daemon.

mod fails;
mod level;

pub(super) use level::level;

use super::replay::{events, is_whole};
use integration::lab::LIMIT;
use integration::lab::process::{Finished, Process};
use integration::shim;
use integration::sim::{Sim, error_of, wait};
use integration::under_test::{Subject, once};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// What the library says when a copy is ready.
pub(super) const STANDS: &str = "a spare copy of the driver stands";
/// In which way a recovery was made, as `mps_shim.h` has it.
pub(super) const BY_THE_SPARE: u64 = 1;

/// Steps of the making of a copy.
pub(super) const MAKING: [&str; 9] = [
    "spare-file",
    "spare-loaded",
    "spare-cleared",
    "spare-bound",
    "spare-initialised",
    "spare-contexts",
    "spare-memory",
    "spare-objects",
    "spare-stands",
];
/// Steps of a program that goes on with it.
pub(super) const SWITCH: [&str; 3] = ["spare-memory-again", "spare-objects-again", "spare-leads"];

/// Of the threads of the simulated driver that hear from a server a copy with one context has so many.
const OF_A_COPY: usize = 2;

/// The end of what it says when the copy has all but that.
const BUT_WHAT_CHANGES: &str = ", but for what goes on changing";

/// The probe, whose spare copy is to stand on the other bench.
pub(super) fn probe(sim: &Sim, other: &Sim, arguments: &[&str]) -> Command {
    let mut command = shim::recording(sim.command("mps-replay-probe", arguments));
    command.env("MPS_SHIM_REPLAY", "spare").env("MPS_SHIM_LOG", "1");
    shim::asked_by_tests(&mut command).env("MPS_SHIM_TEST_SPARE", other.lab.pipe_dir());
    command
}

/// Waits until a copy stands. One that was made while the program reserved addresses is given up for another one.
pub(super) fn has_a_spare(sim: &Sim, program: &Process) {
    wait(sim, "a spare copy", || {
        let said = program.errors();
        said.rfind(STANDS) > said.rfind("no spare copy of the driver")
    });
}

/// In which way each recovery was made.
pub(super) fn ways(finished: &Finished) -> Vec<u64> {
    let all = events(finished, "recovered");
    all.iter().filter_map(|line| line["recovery"]["way"].as_u64()).collect()
}

pub(super) fn recovered(program: &Process) -> usize {
    let output = program.output();
    output.matches("\"event\":\"recovered\"").count() + output.matches("\"event\":\"error\"").count()
}

/// What copies of the driver say of their ends in a program that ends with its input, when it has come so far.
fn ends(subject: &Subject, variables: &[(&str, &str)], has_come: impl Fn(&Sim, &Process)) -> usize {
    let benches = [Sim::started(subject, &[]), Sim::started(subject, &[])];
    let mut command = probe(&benches[0], &benches[1], &["--light", "--until-stdin-closes"]);
    command.env("MPS_SIM_SAYS_END", "1").env("MPS_SHIM_TEST_GO", benches[0].lab.dir().join("go"));
    command.envs(variables.iter().copied());
    let program = Process::start_with_input(&mut command);
    benches[0].wait_event(&program, "ready");
    has_come(&benches[0], &program);
    let finished = program.finish(LIMIT).expect("it ends");
    is_whole(&finished, 0, &format!("{subject}: {variables:?}"));
    finished.stderr_text().matches("a copy of the simulated driver ends").count()
}

/// NVIDIA's driver frees at its end what a call under way still uses.
#[test]
fn a_spare_copy_ends_with_the_process_unless_its_thread_is_in_it() {
    once(|subject| {
        assert_eq!(ends(subject, &[], has_a_spare), 2, "{subject}: the program's own and the spare one");
        let held = [("MPS_SHIM_TEST_AT", "hold:spare-contexts")];
        let is_held =
            |sim: &Sim, _: &Process| wait(sim, "a thread in the copy", || sim.lab.dir().join("go.held").exists());
        assert_eq!(ends(subject, &held, is_held), 1, "{subject}: the program's own");
    });
}

/// Faults of neighbours, in turn on the one and the other bench, each when a copy stands.
fn faults(arguments: &[&str]) {
    once(|subject| {
        let benches = [Sim::started(subject, &[]), Sim::started(subject, &[])];
        let arguments = [&["--recoveries", "1", "--seconds", "600"], arguments].concat();
        let program = Process::start(&mut probe(&benches[0], &benches[1], &arguments));
        benches[0].wait_event(&program, "ready");
        has_a_spare(&benches[0], &program);
        assert_eq!(error_of(&benches[0].run("mps-aggressor", &["oob"])), Some(700), "{subject}");
        wait(&benches[0], "a recovery", || recovered(&program) > 0);
        let finished = program.finish(LIMIT).expect("it ends");
        is_whole(&finished, 1, &format!("{subject}: {arguments:?}"));
        assert_eq!(ways(&finished), [BY_THE_SPARE], "{subject}: {arguments:?}: {finished:?}");
        assert!(events(&finished, "recovered").iter().all(|line| line["is_told_right"] == true), "{finished:?}");
    });
}

#[test]
fn a_program_goes_on_with_its_spare_copy_after_a_neighbours_fault() {
    faults(&[]);
}

#[test]
fn a_program_with_work_on_its_way_is_told_and_goes_on_with_its_spare_copy() {
    faults(&["--busy"]);
}

/// Everything that can be made again.
const EVERYTHING: [&str; 8] =
    ["--library", "--variable", "--pinned", "--pools", "--arrays", "--settings", "--graph", "--light"];

#[test]
fn a_program_with_everything_goes_on_with_its_spare_copy_at_rest_between_rounds_and_at_work() {
    for more in [&["--idle"][..], &[], &["--busy"]] {
        faults(&[&EVERYTHING, more].concat());
    }
}

/// How often the library has said that the program goes on, which the program itself may see much later.
fn gone_on(program: &Process) -> usize {
    program.errors().matches("]: recovered").count()
}

/// Whether one stands that was made since the last recovery.
fn stands_now(program: &Process) -> bool {
    let said = program.errors();
    said.rfind(STANDS) > said.rfind("no spare copy of the driver").max(said.rfind("]: recovered"))
}

/// On the servers of one daemon, which gives the copies their places: one fault after the other, each when a copy stands.
fn with_one_daemon(count: usize, arguments: &[&str]) -> Vec<Value> {
    let recoveries = std::cell::RefCell::new(Vec::new());
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let wanted = count.to_string();
        let arguments = [&["--recoveries", &wanted, "--seconds", "600"], arguments].concat();
        let mut command = shim::recording(sim.command("mps-replay-probe", &arguments));
        let program = Process::start(command.env("MPS_SHIM_REPLAY", "spare").env("MPS_SHIM_LOG", "1"));
        sim.wait_event(&program, "ready");
        for done in 0..count {
            // A server whose clients have all left may deny a fault, and serve again: then the next culprit is sent there, and
            // meets the spare copy alone, which is made anew.
            while gone_on(&program) == done {
                wait(&sim, "a spare copy", || stands_now(&program));
                if arguments.contains(&"--graph") {
                    wait(&sim, "a copy that has what does not change", || {
                        let said = program.errors();
                        said.rfind(BUT_WHAT_CHANGES) > said.rfind(STANDS)
                    });
                }
                wait(&sim, "the daemon knows", || sim.lab.ask("status\n").contains("ready"));
                let made = program.errors().matches(STANDS).count();
                assert_eq!(error_of(&sim.run("mps-aggressor", &["oob"])), Some(700), "{subject}");
                wait(&sim, "a recovery, or another copy", || {
                    gone_on(&program) > done || program.errors().matches(STANDS).count() > made
                });
            }
            wait(&sim, "the program's word of it", || recovered(&program) > done);
        }
        let finished = program.finish(LIMIT).expect("it ends");
        is_whole(&finished, count as u64, &format!("{subject}: {arguments:?}"));
        assert_eq!(ways(&finished), vec![BY_THE_SPARE; count], "{subject}: {arguments:?}: {finished:?}");
        *recoveries.borrow_mut() = events(&finished, "recovered").iter().map(|line| line["recovery"].clone()).collect();
    });
    recoveries.into_inner()
}

#[test]
fn a_program_goes_on_with_one_spare_copy_after_the_other_on_its_daemons_servers() {
    assert_eq!(with_one_daemon(3, &[]).len(), 3);
}

/// The file of a copy is in memory, and a few threads hear from its server.
#[test]
fn what_a_spare_copy_takes_of_its_process_is_counted_and_told() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let mut command = shim::recording(sim.command("mps-replay-probe", &["--light", "--until-stdin-closes"]));
        let program = Process::start_with_input(command.env("MPS_SHIM_REPLAY", "spare").env("MPS_SHIM_LOG", "1"));
        sim.wait_event(&program, "ready");
        let client = format!("get_client_state {} --json\n", program.pid());
        let spare = || serde_json::from_str::<Value>(&sim.lab.ask(&client)).map(|of| of["spare"].clone());
        wait(&sim, "the daemon knows", || spare().is_ok_and(|of| of["host_bytes"].as_u64() > Some(0)));
        let told = spare().expect("it is a client");
        let text = sim.lab.ask(&format!("get_client_state {}\n", program.pid()));
        assert!(text.contains("threads, ") && text.contains("of the host's memory"), "{subject}: {text}");
        let finished = program.finish(LIMIT).expect("it ends");
        is_whole(&finished, 0, &subject.to_string());
        let said = finished.stderr_text();
        let report = said.lines().find_map(|line| serde_json::from_str::<Value>(line).ok()).expect("a report");
        for of in [&told, &report["spare"]] {
            let threads = of["threads"].as_u64().expect("a number");
            let bytes = of["host_bytes"].as_u64().expect("a number");
            assert!((OF_A_COPY as u64..16).contains(&threads), "{subject}: {of}");
            let file = fs::metadata(integration::sim::library()).expect("the driver is there").len();
            assert!((file / 50..file + (256 << 20)).contains(&bytes), "{subject}: {of}, of a file of {file} bytes");
        }
    });
}
