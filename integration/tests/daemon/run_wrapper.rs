//! `nvidia-cuda-mps-control run`: a program is started again when a fault has ended it, and only then.

use integration::lab::LIMIT;
use integration::lab::escrow::TAKES_MEMORY_FILES;
use integration::lab::process::{Finished, run};
use integration::shim;
use integration::shim::heir::Heir;
use integration::sim::Sim;
use integration::under_test::{Subject, for_each, only_ours};
use nix::sys::signal::{Signal, kill};
use std::process::Command;

/// The wrapper with these options around a program, with what programs of the bench have in their environment.
fn wrapped(sim: &Sim, options: &[&str], program: &[&str]) -> Command {
    let like = sim.command("mps-heir", &[]);
    let mut command = Command::new(&sim.lab.subject().control);
    let library = shim::library().into_os_string().into_string().expect("the build folder's path is text");
    command.arg("run").args(options).args(["--library", library.as_str(), "--"]);
    if program.is_empty() {
        command.arg(like.get_program());
    } else {
        command.args(program);
    }
    command.env_clear().envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

fn finished(sim: &Sim, options: &[&str], program: &[&str], input: &str) -> Finished {
    run(&mut wrapped(sim, options, program), input.as_bytes(), LIMIT).expect("it runs")
}

fn started(subject: &Subject) -> Sim {
    let sim = Sim::new(subject, &[TAKES_MEMORY_FILES]);
    sim.lab.start(&[]);
    sim
}

#[test]
fn a_programs_status_signals_and_output_are_passed_on() {
    for_each(only_ours(), |subject| {
        let sim = Sim::new(subject, &[]);
        let shell = |script: &str| finished(&sim, &[], &["/bin/sh", "-c", script], "hello");
        assert_eq!((shell("exit 7").code, shell("exit 0").code), (Some(7), Some(0)));
        assert_eq!(shell("cat").stdout_text(), "hello");
        assert_eq!(shell("kill -9 $$").code, Some(137));
        assert_eq!(finished(&sim, &[], &["/no/such/program"], "").code, Some(127));
        assert_eq!(finished(&sim, &[], &["/dev/null"], "").code, Some(126));
        // A signal to the wrapper reaches the program, whose answer is the wrapper's.
        let script = "trap 'echo heard; exit 3' TERM; echo '{\"event\":\"ready\"}'; while :; do read -r line || sleep 0.01; done";
        let shell = Heir::of(wrapped(&sim, &[], &["/bin/bash", "-c", script]));
        let _ready = shell.event("ready");
        kill(shell.pid(), Signal::SIGTERM).expect("it is ours");
        assert_eq!(shell.ended().code(), Some(3));
    });
}

#[test]
fn orphans_are_reaped() {
    for_each(only_ours(), |subject| {
        let sim = Sim::new(subject, &[]);
        // The first process of a pid namespace gets them, and would keep them as zombies. This one outlives its parent.
        let orphan = "orphan=$(sh -c 'cat /dev/zero >/dev/null & echo $!'); kill $orphan; \
                      while [ -e /proc/$orphan ]; do :; done; echo buried";
        let inner = wrapped(&sim, &[], &["/bin/sh", "-c", orphan]);
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--"]).arg(inner.get_program()).args(inner.get_args());
        command.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let finished = run(&mut command, b"", LIMIT).expect("unshare is there");
        if finished.stderr_text().contains("unshare failed") {
            return integration::under_test::Skipped("no pid namespace may be made here".to_owned()).report();
        }
        assert_eq!((finished.stdout_text().trim(), finished.code), ("buried", Some(0)), "{finished:?}");
    });
}

#[test]
fn a_fault_starts_it_again_and_its_successor_goes_on() {
    for_each(only_ours(), |subject| {
        for kind in ["oob", "trap"] {
            let sim = started(subject);
            let mut heir = Heir::of(wrapped(&sim, &["--name", "llm"], &[]));
            let first = heir.event("ready");
            assert_eq!(heir.does("adopt 10000", "adopted")["code"], 1);
            heir.succeeds("make small 5000 1", "made");
            heir.succeeds("commit 3 10000", "committed");
            heir.tell(&format!("fault {kind}"));
            for event in ["launched", "lost", "error"] {
                let _said = heir.event(event);
            }
            let second = heir.event("ready");
            assert_ne!(first["pid"], second["pid"], "{kind}");
            let adopted = heir.does("adopt 20000", "adopted");
            assert_eq!(
                (&adopted["is_intact"], &adopted["recovery"]["generation"]),
                (&true.into(), &3.into()),
                "{adopted}"
            );
            // Any other bad end is its end.
            heir.tell("exit 5");
            assert_eq!(heir.ended().code(), Some(5), "{kind}");
        }
    });
}

#[test]
fn a_standby_of_a_former_standby_allocates_where_none_of_them_does_and_takes_over() {
    for_each(only_ours(), |subject| {
        let sim = started(subject);
        let lane = |made: &serde_json::Value| made["address"].as_u64().expect("an address") >> 40;
        let mut first = Heir::of(wrapped(&sim, &["--name", "llm"], &[]));
        let _ready = first.event("ready");
        let mut owners = vec![lane(&first.does("make small 5000 1", "made"))];
        first.succeeds("commit 1 10000", "committed");
        for generation in 2..=3 {
            let mut standby = Heir::of(wrapped(&sim, &["--name", "llm", "--standby"], &[]));
            let _ready = standby.event("ready");
            let own = lane(&standby.does(&format!("make own{generation} 34603012 {generation}"), "made"));
            assert!(!owners.contains(&own), "{own:#x} beside {owners:#x?}");
            owners.push(own);
            standby.tell("wait 60000");
            first.tell("abort");
            let adopted = standby.event("adopted");
            assert_eq!((&adopted["code"], &adopted["is_intact"]), (&0.into(), &true.into()), "{adopted}");
            assert_eq!(adopted["recovery"]["generation"], generation - 1, "{adopted}");
            standby.succeeds(&format!("commit {generation} 10000"), "committed");
            first = standby;
        }
    });
}

#[test]
fn a_victim_that_dies_without_a_word_is_known_by_the_daemon_and_a_limit_is_kept() {
    for_each(only_ours(), |subject| {
        let sim = started(subject);
        let mut heir = Heir::of(wrapped(&sim, &["--name", "llm", "--limit", "1"], &[]));
        for incident in 1..=2 {
            let _ready = heir.event("ready");
            let _faulted = sim.run("mps-aggressor", &["trap"]);
            sim.lab.wait_log("control.log", &format!("a fault on the GPU, incident {incident},"));
            heir.tell("abort");
        }
        assert_eq!(heir.ended().code(), Some(134), "the limit is reached");

        let mut sound = Heir::of(wrapped(&sim, &["--name", "other"], &[]));
        let _ready = sound.event("ready");
        sound.tell("abort");
        assert_eq!(sound.ended().code(), Some(134), "no fault, no restart");
        let mut never = Heir::of(wrapped(&sim, &["--restart", "never"], &[]));
        let _ready = never.event("ready");
        never.tell("fault trap");
        assert_eq!(never.ended().code(), Some(207));
    });
}
