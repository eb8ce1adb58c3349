//! A server that a trap has spoilt and that the daemon ends at once: its clients go on with their spare copies before their
//! own driver tells them of anything.
//!
//! The simulated server tells nobody but the culprit of a trap here, so whoever else goes on does so by its end.

use super::replay::{events, is_whole};
use super::spare::{STANDS, level};
use integration::lab::LIMIT;
use integration::lab::process::{Finished, Process};
use integration::shim;
use integration::sim::{Sim, error_of, find_event, wait};
use integration::under_test::{Subject, once};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::path::PathBuf;

/// What the library says when there is no copy.
const NONE: &str = "no spare copy of the driver";
/// The library's step at which the driver has answered a call with an error, and nobody was told.
pub(super) const ERROR_ANSWERED: &str = "error-answered";
/// In which way a recovery was made, as `mps_shim.h` has it.
const BY_THE_SPARE: u64 = 1;
/// Nobody but its culprit hears of a trap as long as the server lives.
const UNTOLD: (&str, &str) = ("MPS_SIM_TRAPS_UNTOLD", "1");
/// By itself no server ends.
const PATIENT: &str = "[faults]\nvictims_timeout = 3600\n";

fn bench(subject: &Subject, config: &str) -> Sim {
    let sim = Sim::new(subject, &[UNTOLD]);
    sim.config(&format!("{PATIENT}{config}"));
    sim.lab.start(&[]);
    sim
}

/// A program with a spare copy that waits for one recovery, in one of the ways in which a program can wait.
fn bystander(sim: &Sim, more: &[&str]) -> Process {
    let arguments = [&["--recoveries", "1", "--seconds", "600", "--light"], more].concat();
    let mut command = shim::recording(sim.command("mps-replay-probe", &arguments));
    let program = Process::start(command.env("MPS_SHIM_REPLAY", "spare").env("MPS_SHIM_LOG", "1"));
    sim.wait_event(&program, "ready");
    program
}

/// A program with a spare copy that is in the driver without end, so that it can't go on by itself.
fn endless(sim: &Sim) -> Process {
    let mut command = shim::recording(sim.command("mps-aggressor", &["endless"]));
    let program = Process::start(command.env("MPS_SHIM_REPLAY", "spare").env("MPS_SHIM_LOG", "1"));
    sim.wait_event(&program, "launched");
    program
}

/// A program that does wrong itself when the gate is opened.
struct Culprit {
    process: Process,
    gate: PathBuf,
}

impl Culprit {
    fn start(sim: &Sim, kind: &str, has_spare: bool) -> Self {
        Self::start_with(sim, kind, has_spare, &[])
    }

    fn start_with(sim: &Sim, kind: &str, has_spare: bool, more: &[(&str, &str)]) -> Self {
        let gate = sim.lab.dir().join("gate");
        mkfifo(&gate, Mode::S_IRWXU).expect("a FIFO");
        let mut command = if has_spare {
            let mut command =
                shim::recording(sim.command("mps-replay-probe", &["--faults", kind, "--light", "--seconds", "600"]));
            command.env("MPS_SHIM_REPLAY", "spare").env("MPS_SHIM_LOG", "1");
            command
        } else {
            sim.command("mps-aggressor", &[kind])
        };
        let process = Process::start(command.env("MPS_SIM_FAULT_GATE", &gate).envs(more.iter().copied()));
        sim.wait_event(&process, "ready");
        Self { process, gate }
    }

    /// The kernel does wrong now, and the scene goes on with the spare copy: there is nothing on the other GPU until it uses it.
    fn goes_on_alone(self, subject: &Subject) {
        self.faults();
        let finished = self.process.finish(LIMIT).expect("it ends");
        let line = find_event(&finished.stdout_text(), "scene").unwrap_or_else(|| panic!("{subject}: {finished:?}"));
        let expected = json!({
            "absent": 709, "early": 0, "found": [719, 0], "active": [false, false, false],
            "the_same": [true, true], "again": [true, true], "used": true,
        });
        assert_eq!(line["heard"], expected, "{subject}: {line}");
        let said = String::from_utf8_lossy(&finished.stderr);
        assert_eq!(line["recovery"]["way"], BY_THE_SPARE, "{subject}: {line}: {said}");
    }

    /// The kernel does wrong now.
    fn faults(&self) {
        drop(OpenOptions::new().write(true).open(&self.gate).expect("the kernel waits at the gate"));
    }
}

/// All of what the daemon has told so far under this name.
fn told(sim: &Sim, event: &str) -> Vec<Value> {
    let answer = sim.lab.ask("events --json\n");
    let parsed = answer.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    parsed.filter(|line| line["event"] == event).collect()
}

/// Waits until these programs have a copy that stands, and the daemon knows.
fn all_have_spares(sim: &Sim, programs: &[&Process]) {
    for program in programs {
        wait(sim, "a spare copy", || {
            let said = program.errors();
            said.rfind(STANDS) > said.rfind(NONE) && {
                let ready = told(sim, "spare-ready");
                ready.iter().any(|event| event["process"]["pid"] == program.pid().as_raw())
            }
        });
    }
}

fn ways(finished: &Finished) -> Vec<u64> {
    let all = events(finished, "recovered");
    all.iter().filter_map(|line| line["recovery"]["way"].as_u64()).collect()
}

/// The ways in which a bystander can wait: between calls, in no call at all, in a synchronisation with work on its way.
const WAITS: [&[&str]; 3] = [&[], &["--idle"], &["--busy"]];

#[test]
fn bystanders_with_spare_copies_go_on_after_a_trap_whose_server_tells_them_nothing() {
    once(|subject| {
        let sim = bench(subject, "");
        let bystanders = WAITS.map(|more| bystander(&sim, more));
        let endless = endless(&sim);
        let culprit = Culprit::start(&sim, "trap", true);
        let everybody: Vec<&Process> = bystanders.iter().chain([&endless, &culprit.process]).collect();
        all_have_spares(&sim, &everybody);
        let server = sim.servers()[0];
        culprit.faults();
        for (program, how) in bystanders.into_iter().zip(WAITS) {
            let finished = program.finish(LIMIT).expect("it ends");
            is_whole(&finished, 1, &format!("{subject}: {how:?}"));
            assert_eq!(ways(&finished), [BY_THE_SPARE], "{subject}: {how:?}: {finished:?}");
        }
        let culprit = culprit.process.finish(LIMIT).expect("it ends");
        assert_eq!(error_of(&culprit), None, "{subject}: {culprit:?}");
        let finished = endless.finish(LIMIT).expect("it ends");
        assert_eq!(error_of(&finished), Some(806), "{subject}: its server is gone: {finished:?}");
        let [ended] = &told(&sim, "server-ended-early")[..] else { panic!("{}", sim.lab.ask("events --json\n")) };
        assert_eq!((&ended["server"], &ended["reason"]), (&server.into(), &"all-have-spares".into()), "{ended}");
    });
}

#[test]
fn an_error_that_the_daemons_word_has_overtaken_is_told_and_the_server_is_ended() {
    once(|subject| {
        let sim = bench(subject, "");
        let endless = endless(&sim);
        let (go, library) = (sim.lab.dir().join("go"), shim::with_steps());
        let held_at = format!("hold:{ERROR_ANSWERED}");
        let more = [
            ("LD_PRELOAD", library.to_str().expect("a plain path")),
            ("MPS_SHIM_TEST_AT", held_at.as_str()),
            ("MPS_SHIM_TEST_GO", go.to_str().expect("a plain path")),
        ];
        let culprit = Culprit::start_with(&sim, "trap", true, &more);
        all_have_spares(&sim, &[&endless, &culprit.process]);
        let server = sim.servers()[0];
        culprit.faults();
        // Its call has the error, and comes no further, while the daemon's word begins the recovery.
        wait(&sim, "the call's error", || go.with_extension("held").exists());
        wait(&sim, "a recovery", || culprit.process.errors().contains("from CUDA error 719"));
        wait(&sim, "the server's end", || !told(&sim, "server-ended-early").is_empty());
        let [ended] = &told(&sim, "server-ended-early")[..] else { panic!("{}", sim.lab.ask("events --json\n")) };
        assert_eq!((&ended["server"], &ended["reason"]), (&server.into(), &"all-have-spares".into()), "{ended}");
        fs::write(&go, "").expect("the folder is ours");
        let finished = culprit.process.finish(LIMIT).expect("it ends");
        assert_eq!(error_of(&finished), None, "{subject}: {finished:?}");
        let finished = endless.finish(LIMIT).expect("it ends");
        assert_eq!(error_of(&finished), Some(806), "{subject}: its server is gone: {finished:?}");
    });
}

#[test]
fn a_client_without_a_spare_copy_keeps_the_server_until_it_has_left() {
    once(|subject| {
        let sim = bench(subject, "");
        let spared = endless(&sim);
        let without = sim.start_with_input("mps-bystander", &["--until-stdin-closes"], "ready");
        let culprit = Culprit::start(&sim, "trap", true);
        all_have_spares(&sim, &[&spared, &culprit.process]);
        culprit.faults();
        wait(&sim, "the taint", || !told(&sim, "server-tainted").is_empty());
        let finished = culprit.process.finish(LIMIT).expect("it ends");
        assert_eq!(error_of(&finished), None, "{subject}: {finished:?}");
        assert!(told(&sim, "server-ended-early").is_empty(), "{subject}: it is harmed");
        let finished = without.finish(LIMIT).expect("it ends");
        assert_eq!(error_of(&finished), None, "{subject}: nobody has told it of a fault: {finished:?}");
        let finished = spared.finish(LIMIT).expect("it ends");
        assert_eq!(error_of(&finished), Some(806), "{subject}: its server is gone: {finished:?}");
        assert_eq!(told(&sim, "server-ended-early").len(), 1, "{subject}");
    });
}

#[test]
fn an_illegal_access_ends_no_server_and_neither_does_anything_where_the_operator_says_so() {
    once(|subject| {
        for (kind, config) in [("oob", ""), ("oob", "[replay]\nend_tainted = \"always\"\n"), ("trap", NEVER)] {
            let sim = bench(subject, config);
            let spared = bystander(&sim, &[]);
            let culprit = Culprit::start(&sim, kind, true);
            all_have_spares(&sim, &[&spared, &culprit.process]);
            culprit.faults();
            wait(&sim, "the taint", || !told(&sim, "server-tainted").is_empty());
            let finished = culprit.process.finish(LIMIT).expect("it ends");
            assert_eq!(error_of(&finished), None, "{subject}: {finished:?}");
            if kind == "oob" {
                let finished = spared.finish(LIMIT).expect("it ends");
                is_whole(&finished, 1, &format!("{subject}: {kind}"));
            }
            assert!(told(&sim, "server-ended-early").is_empty(), "{subject}: {kind}: {config}");
        }
    });
}

/// A program that asks what another GPU's context is called, before or after it has a spare copy, and has a fault then.
fn asks_for_a_handle(subject: &Subject, has_copy_first: bool) {
    let sim = Sim::new(subject, &[("MPS_SIM_DEVICES", "2")]);
    sim.lab.start(&[]);
    let (gate, go) = (sim.lab.dir().join("gate"), sim.lab.dir().join("go"));
    mkfifo(&gate, Mode::S_IRWXU).expect("a FIFO");
    let mut command = shim::recording(sim.command("mps-replay-probe", &["--scene", "named-contexts"]));
    command.env("MPS_SHIM_REPLAY", "spare").env("MPS_SHIM_LOG", "1").env("MPS_SIM_FAULT_GATE", &gate);
    if has_copy_first {
        command.env("MPS_PROBE_GO", &go);
    }
    let process = Process::start(&mut command);
    wait(&sim, "a spare copy", || {
        let said = process.errors();
        said.rfind(STANDS) > said.rfind(NONE) && (!has_copy_first || level(&said).is_some())
    });
    fs::write(&go, "").expect("the folder is ours");
    Culprit { process, gate }.goes_on_alone(subject);
}

#[test]
fn a_spare_copy_has_no_context_on_a_gpu_of_which_the_program_has_the_handle_alone() {
    once(|subject| asks_for_a_handle(subject, false));
}

#[test]
fn a_spare_copy_stays_where_the_program_asks_what_another_gpus_context_is_called() {
    once(|subject| asks_for_a_handle(subject, true));
}

const NEVER: &str = "[replay]\nend_tainted = \"never\"\n";

#[test]
fn a_program_with_nothing_at_work_goes_on_before_its_driver_says_anything() {
    once(|subject| {
        // The server lives on and tells nobody.
        let sim = bench(subject, NEVER);
        let waits: [&[&str]; 2] = [&[], &["--idle"]];
        let bystanders = waits.map(|more| bystander(&sim, more));
        let culprit = Culprit::start(&sim, "trap", true);
        let everybody: Vec<&Process> = bystanders.iter().chain([&culprit.process]).collect();
        all_have_spares(&sim, &everybody);
        culprit.faults();
        for (program, how) in bystanders.into_iter().zip(waits) {
            let finished = program.finish(LIMIT).expect("it ends");
            is_whole(&finished, 1, &format!("{subject}: {how:?}"));
            let recovery = &events(&finished, "recovered")[0]["recovery"];
            let seen =
                ["way", "begun_by", "error", "lost_streams", "modules_anew"].map(|field| recovery[field].as_u64());
            assert_eq!(
                seen,
                [Some(BY_THE_SPARE), Some(2), Some(0), Some(0), Some(0)],
                "{subject}: {how:?}: {finished:?}"
            );
            let said = String::from_utf8_lossy(&finished.stderr);
            assert!(said.contains("recovered before any error of CUDA's"), "{finished:?}");
        }
        assert!(told(&sim, "server-ended-early").is_empty(), "{subject}");
        let culprit = culprit.process.finish(LIMIT).expect("it ends");
        assert_eq!(error_of(&culprit), None, "{subject}: {culprit:?}");
    });
}

#[test]
fn the_operator_may_have_a_server_ended_whatever_its_clients_have() {
    once(|subject| {
        let sim = bench(subject, "[replay]\nend_tainted = \"always\"\n");
        let without = sim.start_with_input("mps-bystander", &["--until-stdin-closes"], "ready");
        let culprit = Culprit::start(&sim, "trap", true);
        all_have_spares(&sim, &[&culprit.process]);
        culprit.faults();
        wait(&sim, "its end", || !told(&sim, "server-ended-early").is_empty());
        assert_eq!(told(&sim, "server-ended-early")[0]["reason"], "always", "{subject}");
        wait(&sim, "an error", || without.output().contains("\"event\":\"error\""));
    });
}
