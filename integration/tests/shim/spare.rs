//! `MPS_SHIM_REPLAY=spare`: a program goes on with a second copy of the driver that stands by, and without one as ever.
//!
//! Here the copy stands on the server of a second daemon, which is named to the library for tests alone, so that the
//! library is seen with any daemon.

use super::replay::{events, is_whole};
use super::steps::{Victim, armed, strike};
use integration::lab::LIMIT;
use integration::lab::process::{Finished, Process};
use integration::shim;
use integration::sim::{Sim, error_of, find_event, wait};
use integration::under_test::{Subject, once};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
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
/// Steps of the dead copy's end, beside a program that goes on with it.
const BURIAL: [&str; 3] = ["burial-begun", "dead-silenced", "dead-amputated"];

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

/// Of the threads of the simulated driver that hear from a server a copy with one context has so many.
const OF_A_COPY: usize = 2;

/// All such threads of a program, each as its folder in `/proc`.
fn listeners(program: &Process) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", program.pid())).into_iter().flatten().flatten();
    let is_one = |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "cuda-mps\n");
    tasks.map(|task| task.path()).filter(is_one).map(|task| task.display().to_string()).collect()
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

/// What the library says when the copy has all that the program has, to the end of the line.
const IS_LEVEL: &str = "the spare copy has all that the program has\n";
/// The same of one at rest, whose variables the copy has, too.
const IS_LEVEL_AT_REST: &str = "the spare copy has all that the program has, which is at rest\n";

/// Where it has said so the last time.
pub(super) fn level(said: &str) -> Option<usize> {
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

/// The end of what it says when it has all but that.
const BUT_WHAT_CHANGES: &str = ", but for what goes on changing";

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

#[test]
fn without_a_daemon_that_gives_servers_for_spares_a_program_is_recovered_without() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        sim.config("[domains]\nspares = false\n");
        sim.lab.start(&[]);
        let mut command = shim::recording(sim.command("mps-replay-probe", &["--recoveries", "1", "--seconds", "600"]));
        let program = Process::start(command.env("MPS_SHIM_REPLAY", "spare"));
        sim.wait_event(&program, "ready");
        wait(&sim, "a word", || program.errors().contains("no spare copy of the driver: the daemon gives no server"));
        assert_eq!(error_of(&sim.run("mps-aggressor", &["oob"])), Some(700), "{subject}");
        let finished = program.finish(LIMIT).expect("it ends");
        is_whole(&finished, 1, &subject.to_string());
        assert_eq!(ways(&finished), [2], "{subject}: {finished:?}");
    });
}

#[test]
fn a_program_whose_spare_copy_is_dead_too_is_recovered_without() {
    once(|subject| {
        let benches = [Sim::started(subject, &[]), Sim::started(subject, &[])];
        let arguments = ["--recoveries", "1", "--seconds", "600"];
        let program = Process::start(&mut probe(&benches[0], &benches[1], &arguments));
        benches[0].wait_event(&program, "ready");
        has_a_spare(&benches[0], &program);
        let before = listeners(&program);
        kill(Pid::from_raw(benches[1].server()), Signal::SIGKILL).expect("it runs");
        // The program's daemon cannot speak of that server, so its copy must have heard of the end itself.
        let is_there = |thread: &&String| listeners(&program).contains(*thread);
        wait(&benches[0], "the copy hears", || before.iter().filter(is_there).count() + OF_A_COPY <= before.len());
        kill(Pid::from_raw(benches[0].server()), Signal::SIGKILL).expect("it runs");
        let finished = program.finish(LIMIT).expect("it ends");
        is_whole(&finished, 1, &subject.to_string());
        assert_ne!(ways(&finished), [BY_THE_SPARE], "{subject}: {finished:?}");
    });
}

/// NVIDIA's driver closes descriptor 0 where it gets no context.
#[test]
fn a_spare_copy_that_gets_no_context_leaves_the_program_its_standard_input() {
    once(|subject| {
        let sim = Sim::started(subject, &[("MPS_SIM_FAIL_AT", "2:cuDevicePrimaryCtxRetain")]);
        let mut command = shim::recording(sim.command("mps-replay-probe", &["--light", "--until-stdin-closes"]));
        let program = Process::start_with_input(command.env("MPS_SHIM_REPLAY", "spare"));
        sim.wait_event(&program, "ready");
        let input = fs::read_link(format!("/proc/{}/fd/0", program.pid())).expect("it has one");
        wait(&sim, "the refusal", || {
            program.errors().contains("no spare copy of the driver: cuDevicePrimaryCtxRetain")
        });
        assert!(program.errors().contains("the driver would close descriptor 0"), "{subject}");
        assert_eq!(fs::read_link(format!("/proc/{}/fd/0", program.pid())).ok(), Some(input), "{subject}");
        let finished = program.finish(LIMIT).expect("it ends");
        is_whole(&finished, 0, &subject.to_string());
    });
}

/// NVIDIA's driver writes to its server's pipe when a context is torn down, and a program in C ends by a broken one: the copy
/// is given up by a thread that takes no signals. One of the copy's own that was just woken ends with it.
#[test]
fn a_program_whose_spare_copys_server_dies_gets_another_copy_and_no_broken_pipe() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let arguments = ["--light", "--breakable", "--until-stdin-closes"];
        let mut command = shim::recording(sim.command("mps-replay-probe", &arguments));
        command.envs([("MPS_SHIM_REPLAY", "spare"), ("MPS_SHIM_LOG", "1"), ("MPS_SIM_WOKEN", "1")]);
        let program = Process::start_with_input(&mut command);
        sim.wait_event(&program, "ready");
        wait(&sim, "a spare copy", || stands_now(&program));
        let descriptors = || fs::read_dir(format!("/proc/{}/fd", program.pid())).expect("it runs").count();
        let before = descriptors();
        let log = sim.lab.log("control.log");
        let ready =
            log.lines().filter_map(|line| line.split_once("NEW SERVER ")?.1.strip_suffix(": Ready")?.parse().ok());
        let of_the_spare = ready.into_iter().nth(1).expect("the first one is the program's own");
        kill(Pid::from_raw(of_the_spare), Signal::SIGKILL).expect("it runs");
        wait(&sim, "a word of its end", || program.errors().contains("no spare copy of the driver"));
        wait(&sim, "another copy", || stands_now(&program));
        // The first copy that the library has loaded stays, with something else in its descriptors' places.
        wait(&sim, "no more than another copy's", || descriptors() < before + 50);
        let finished = program.finish(LIMIT).expect("it ends");
        is_whole(&finished, 0, &subject.to_string());
    });
}

/// A program that is stopped or killed at a step, with its servers of both benches.
fn struck(victim: Victim, step: &str, is_ready: bool) {
    once(|subject| {
        let context = format!("{subject}: {victim:?} at {step}");
        let benches = [Sim::started(subject, &[]), Sim::started(subject, &[])];
        // The dead copy is cut off beside a program that goes on, and may end before.
        let recoveries = if BURIAL.contains(&step) { "2" } else { "1" };
        let mut command = probe(&benches[0], &benches[1], &["--recoveries", recoveries, "--seconds", "600", "--light"]);
        let program = Process::start(command.envs(armed(victim, step, 1)));
        if is_ready {
            benches[0].wait_event(&program, "ready");
            has_a_spare(&benches[0], &program);
            kill(Pid::from_raw(benches[0].server()), Signal::SIGKILL).expect("it runs");
        }
        // The spare copy's server alone where the other one is dead already.
        strike(&benches[1], program.pid(), victim, step);
        if !is_ready && victim == Victim::Servers {
            wait(&benches[0], "a server", || !benches[0].servers().is_empty());
            kill(Pid::from_raw(benches[0].server()), Signal::SIGKILL).expect("it runs");
        }
        let finished = program.finish(LIMIT).expect("it ends");
        let output = finished.stdout_text();
        assert!(find_event(&output, "wrong").is_none(), "{context}: {finished:?}");
        if victim == Victim::Program {
            assert_eq!(finished.signal, Some(9), "{context}: {finished:?}");
        } else {
            // Either it goes on with every byte right, or it ends with an error.
            let is_whole = find_event(&output, "end").is_some_and(|end| end["is_intact"] == true);
            assert_eq!(is_whole, error_of(&finished).is_none(), "{context}: {finished:?}");
            assert_eq!(finished.signal, None, "{context}: {finished:?}");
        }
        for bench in &benches {
            assert_eq!(error_of(&bench.run("mps-first-alloc", &[])), None, "{context}: the next one is served");
        }
    });
}

#[test]
fn a_program_killed_at_any_step_of_its_spare_copy_leaves_its_neighbours_unharmed() {
    MAKING.iter().for_each(|step| struck(Victim::Program, step, false));
    SWITCH.iter().chain(&BURIAL).for_each(|step| struck(Victim::Program, step, true));
}

#[test]
fn a_server_killed_at_any_step_of_a_spare_copy_costs_the_program_no_torn_byte() {
    MAKING.iter().for_each(|step| struck(Victim::Servers, step, false));
    SWITCH.iter().chain(&BURIAL).for_each(|step| struck(Victim::Servers, step, true));
}
