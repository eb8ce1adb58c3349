//! Copies that are not to be had or are of no use, and programs and servers that are killed at a step.

use super::super::steps::{Victim, armed, strike};
use super::{BY_THE_SPARE, MAKING, OF_A_COPY, SWITCH, has_a_spare, is_whole, probe, stands_now, ways};
use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::shim;
use integration::sim::{Sim, error_of, find_event, wait};
use integration::under_test::once;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::PathBuf;

/// Steps of the dead copy's end, beside a program that goes on with it.
const BURIAL: [&str; 3] = ["burial-begun", "dead-silenced", "dead-amputated"];

/// All threads of a program that hear from a server, each as its folder in `/proc`.
fn listeners(program: &Process) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", program.pid())).into_iter().flatten().flatten();
    let is_one = |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "cuda-mps\n");
    tasks.map(|task| task.path()).filter(is_one).map(|task| task.display().to_string()).collect()
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
