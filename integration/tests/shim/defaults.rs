//! `[replay]`: what the daemon's configuration has for programs under the library that say nothing themselves.

mod claims;
mod tables;

use super::replay::{events, is_whole};
use integration::lab::LIMIT;
use integration::lab::process::{Finished, Process};
use integration::lab::watch::wait_for;
use integration::shim;
use integration::sim::{Sim, error_of};
use integration::under_test::once;
use nix::sys::signal::{Signal, kill};
use remps_proto::shim::DEFAULTS_NAME;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

const SPARE: &str = "[replay]\nkeep = \"state\"\nrecover = \"spare\"\n";
/// In which way a recovery was made, as `mps_shim.h` has it.
const COLD: u64 = 0;
const NO_SPARE: u64 = 2;

/// A program with these variables that a neighbour's fault hits.
fn is_hit(sim: &Sim, variables: &[(&str, &str)]) -> Finished {
    is_hit_in(sim, sim.lab.pipe_dir(), variables)
}

/// The same where both find the daemon in this directory.
fn is_hit_in(sim: &Sim, directory: &Path, variables: &[(&str, &str)]) -> Finished {
    let placed = |mut command: Command| {
        command.env("CUDA_MPS_PIPE_DIRECTORY", directory);
        command
    };
    is_hit_as(sim, &placed, variables)
}

/// The same where something is done with both.
fn is_hit_as(sim: &Sim, placed: &dyn Fn(Command) -> Command, variables: &[(&str, &str)]) -> Finished {
    let mut command = sim.command("mps-replay-probe", &["--recoveries", "1", "--seconds", "600"]);
    command.env("LD_PRELOAD", shim::library()).envs(variables.iter().copied());
    let program = Process::start(&mut placed(command));
    sim.wait_event(&program, "ready");
    let culprit = sim.lab.finish(&mut placed(sim.command("mps-aggressor", &["oob"])), b"");
    assert_eq!(error_of(&culprit), Some(700));
    program.finish(LIMIT).expect("it ends")
}

fn ways(finished: &Finished) -> Vec<u64> {
    events(finished, "recovered").iter().filter_map(|line| line["recovery"]["way"].as_u64()).collect()
}

#[test]
fn a_program_that_says_nothing_gets_what_the_daemon_is_set_to_and_its_own_word_wins() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let file = sim.lab.pipe_dir().join(DEFAULTS_NAME);
        // Without a spare server, so that which way is taken does not hang on how fast a spare copy is made.
        sim.config(&format!("[domains]\nspares = false\n{SPARE}"));
        sim.lab.start(&[]);
        assert_eq!(fs::metadata(&file).expect("it is there").mode() & 0o777, 0o644);
        let status = sim.lab.ask("status\n");
        assert!(status.contains("Programs with the preload library: keep state, recover spare"), "{status}");
        let finished = is_hit(&sim, &[]);
        is_whole(&finished, 1, &subject.to_string());
        assert_eq!(ways(&finished), [NO_SPARE], "{subject}: {finished:?}");
        let finished = is_hit(&sim, &[("MPS_SHIM_REPLAY", "in-place")]);
        is_whole(&finished, 1, &subject.to_string());
        assert_eq!(ways(&finished), [COLD], "{subject}: {finished:?}");
        for own in [("MPS_SHIM_REPLAY", "0"), ("MPS_SHIM_KEEP", "0"), ("MPS_SHIM_KEEP", "memory")] {
            let finished = is_hit(&sim, &[own]);
            assert!(error_of(&finished).is_some() && ways(&finished).is_empty(), "{subject}: {own:?}: {finished:?}");
            assert!(!finished.stderr_text().contains("needs MPS_SHIM_KEEP"), "{subject}: {own:?}: {finished:?}");
        }
        // A successor with another configuration takes it away, and so does the daemon's end.
        let daemon = sim.lab.running_daemon();
        kill(daemon, Signal::SIGKILL).expect("it runs");
        sim.lab.wait_gone(daemon);
        sim.config("");
        sim.lab.start(&[]);
        assert!(!file.exists(), "{subject}: nothing is set");
        let finished = is_hit(&sim, &[]);
        assert!(error_of(&finished).is_some(), "{subject}: {finished:?}");
    });
}

#[test]
fn a_daemon_that_ends_takes_what_it_has_for_programs_along() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let file = sim.lab.pipe_dir().join(DEFAULTS_NAME);
        sim.config(SPARE);
        sim.lab.start(&[]);
        assert!(file.exists(), "{subject}");
        let daemon = sim.lab.running_daemon();
        let _ = sim.lab.ask("quit\n");
        sim.lab.wait_gone(daemon);
        assert!(!file.exists(), "{subject}");
    });
}

/// Cold recoveries, which need no server beside the program's own.
const IN_PLACE: &str = "[replay]\nkeep = \"state\"\nrecover = \"in-place\"\n";

/// A daemon that was killed is followed by one with this configuration.
fn replaced(sim: &Sim, config: &str) {
    let daemon = sim.lab.running_daemon();
    kill(daemon, Signal::SIGKILL).expect("it runs");
    sim.lab.wait_gone(daemon);
    sim.config(config);
    sim.lab.start(&[]);
}

#[test]
fn programs_of_namespaces_are_told_what_those_of_the_daemons_own_directory_are() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        sim.config(IN_PLACE);
        sim.lab.start(&[]);
        let does = |line: &str| {
            let done = sim.lab.run(&line.split(' ').collect::<Vec<_>>(), b"");
            assert_eq!((done.code, done.stderr_text()), (Some(0), String::new()), "{line}");
        };
        does("server create training");
        does("namespace create jobs --server=training");
        let directories = ["training", "training/jobs"].map(|name| sim.lab.pipe_dir().join(name));
        let files = directories.clone().map(|directory| directory.join(DEFAULTS_NAME));
        let own = fs::read_to_string(sim.lab.pipe_dir().join(DEFAULTS_NAME)).expect("it is there");
        for (directory, file) in directories.iter().zip(&files) {
            assert_eq!(fs::metadata(file).expect("it is there").mode() & 0o777, 0o644, "{subject}");
            assert_eq!(fs::read_to_string(file).expect("it is there"), own, "{subject}");
            let finished = is_hit_in(&sim, directory, &[]);
            is_whole(&finished, 1, &subject.to_string());
            assert_eq!(ways(&finished), [COLD], "{subject}: {finished:?}");
            let finished = is_hit_in(&sim, directory, &[("MPS_SHIM_REPLAY", "0")]);
            assert!(error_of(&finished).is_some() && ways(&finished).is_empty(), "{subject}: {finished:?}");
        }
        // A successor says what it is set to itself, also where that is nothing.
        replaced(&sim, "[replay]\nkeep = \"memory\"\n");
        for file in &files {
            assert!(fs::read_to_string(file).expect("it is there").contains("keep=memory"), "{subject}");
        }
        replaced(&sim, "");
        assert!(files.iter().all(|file| !file.exists()), "{subject}: nothing is set");
        replaced(&sim, IN_PLACE);
        assert!(files.iter().all(|file| file.exists()), "{subject}");
        // What belongs to a namespace goes with it, and the daemon's end leaves folders that have nothing in them.
        does("namespace delete jobs --server=training");
        assert!(!directories[1].exists(), "{subject}");
        let daemon = sim.lab.running_daemon();
        let _ = sim.lab.ask("quit\n");
        sim.lab.wait_gone(daemon);
        assert_eq!(fs::read_dir(&directories[0]).expect("containers have a mount of it").count(), 0, "{subject}");
    });
}

#[test]
fn programs_of_a_thin_daemon_are_told_what_the_nodes_configuration_has() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        sim.config(IN_PLACE);
        sim.lab.start(&[]);
        let claim = sim.lab.dir().join("claim");
        fs::create_dir_all(&claim).expect("the bench's folder is ours");
        let file = claim.join(DEFAULTS_NAME);
        let thin = |words: &[&str]| {
            let mut command = sim.lab.command(words);
            command.env("CUDA_MPS_PIPE_DIRECTORY", &claim).env("CUDA_MPS_LOG_DIRECTORY", &claim);
            let done = sim.lab.finish(&mut command, b"");
            assert_eq!((done.code, done.stderr_text()), (Some(0), String::new()), "{subject}: {words:?}");
        };
        let node = sim.lab.pipe_dir().to_str().expect("ours");
        thin(&["-d", "--join", node]);
        assert_eq!(fs::metadata(&file).expect("it is there").mode() & 0o777, 0o644, "{subject}");
        let finished = is_hit_in(&sim, &claim, &[]);
        is_whole(&finished, 1, &subject.to_string());
        assert_eq!(ways(&finished), [COLD], "{subject}: {finished:?}");
        // It joins another daemon of the node by itself, which says what that one is set to.
        let waits = |what: &str, is_so: &dyn Fn() -> bool| {
            wait_for(sim.lab.dir(), sim.lab.log_dir(), LIMIT, what, is_so);
        };
        replaced(&sim, "");
        waits("nothing said", &|| !file.exists());
        replaced(&sim, IN_PLACE);
        waits("it is said again", &|| file.exists());
        // What the node's daemon said is gone with the thin one.
        thin(&["quit"]);
        waits("its end", &|| !file.exists());
    });
}
