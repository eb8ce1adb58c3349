//! Several GPUs and MIG instances: a fault belongs to the GPU that it was on, and costs nobody elsewhere anything.

use integration::lab::process::Process;
use integration::lab::watch::wait_for;
use integration::lab::{LIMIT, VERY_PATIENT};
use integration::sim::{Sim, error_of, find_event};
use integration::under_test::{Subject, for_each, once, subjects};
use nix::sys::signal::Signal;
use serde_json::Value;
use sim_wire::hardware::{Device, machine};
use sim_wire::script::Script;
use std::time::Instant;

/// Two whole GPUs.
const TWO: &str = "MPS_SIM_DEVICES=2\n";
/// A server that has nobody left to stay for is ended at once.
const SETTINGS: &str = "[faults]\nvictims_timeout = 0\nquarantine_after = 0\n";

/// The same where victims have time to hear of their error.
const PATIENT: &str = "[faults]\nvictims_timeout = 3600\n";

/// What the server knows of a fault comes as late as from a real one: the daemon knows from the tools queue by then which
/// GPU it was on. A server that says that it is in a fault before that is known has lost everybody.
const SPREAD: (&str, &str) = ("MPS_SIM_FAULT_MS", "300");

fn devices(script: &str) -> Vec<Device> {
    machine(&Script::parse(script))
}

/// A bench on a machine with these GPUs and with the simulated kernel module.
fn bench(subject: &Subject, script: &str, settings: &str) -> Sim {
    let variables = script.lines().filter_map(|line| line.split_once('='));
    let variables: Vec<(&str, &str)> = variables.chain([SPREAD, VERY_PATIENT]).collect();
    let sim = Sim::watched(subject, &variables);
    sim.config(&format!("{settings}{}", sim.machine()));
    sim.lab.start(&[]);
    sim
}

/// A program that works on one GPU, by its number, until its input is closed.
fn bystander(sim: &Sim, arguments: &[&str]) -> Process {
    sim.start_with_input("mps-bystander", &[&["--every-ms", "50", "--until-stdin-closes"], arguments].concat(), "ready")
}

fn status(sim: &Sim) -> Value {
    serde_json::from_str(&sim.lab.ask("status --json\n")).expect("the answer is an object")
}

/// Of the client with this pid, what `status` says.
fn client(sim: &Sim, process: &Process) -> Value {
    let pid = process.pid().as_raw();
    let clients = status(sim)["clients"].clone();
    let is_it = |client: &&Value| client["process"]["pid"] == pid && client["phase"] != "gone";
    clients.as_array().into_iter().flatten().find(is_it).cloned().unwrap_or_default()
}

/// Waits until the daemon knows that a client is on these GPUs and on no others.
fn is_known_on(sim: &Sim, process: &Process, gpus: &[&Device]) {
    let mut names: Vec<Value> = gpus.iter().map(|gpu| gpu.uuid.to_string().into()).collect();
    names.sort_by_key(Value::to_string);
    let dir = sim.lab.dir();
    wait_for(dir, dir, LIMIT, "a client's GPUs", || client(sim, process)["gpus"] == Value::Array(names.clone()));
}

fn events(sim: &Sim, name: &str) -> Vec<Value> {
    let text = sim.lab.log("events.jsonl");
    let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    all.filter(|event| event["event"] == name).collect()
}

fn wait_event(sim: &Sim, name: &str, count: usize) -> Vec<Value> {
    let logs = sim.lab.dir().join("log");
    wait_for(&logs, &logs, LIMIT, name, || events(sim, name).len() >= count);
    events(sim, name)
}

/// It goes on making steps.
fn goes_on(sim: &Sim, process: &Process) {
    let lines = || process.output().matches("progress").count();
    let before = lines();
    let dir = sim.lab.dir();
    let is_over = || find_event(&process.output(), "error").is_some();
    wait_for(dir, dir, LIMIT, "the bystander goes on", || lines() >= before + 3 || is_over());
    assert!(!is_over(), "{}\n{}", process.output(), sim.lab.log("control.log"));
}

/// The error that ends a bystander by itself: told to leave before it has met it, it would end well.
fn error_met(sim: &Sim, process: Process) -> Option<u64> {
    sim.wait_event(&process, "error");
    error_of(&sim.finish(process))
}

fn pids(value: &Value) -> Vec<i64> {
    value.as_array().into_iter().flatten().filter_map(Value::as_i64).collect()
}

#[test]
fn a_client_on_another_gpu_is_no_victim_and_keeps_its_server_until_it_leaves() {
    once(|subject| {
        let sim = bench(subject, TWO, SETTINGS);
        let gpus = devices(TWO);
        let (healthy, victim) = (bystander(&sim, &["--device", "1"]), bystander(&sim, &[]));
        is_known_on(&sim, &healthy, &[&gpus[1]]);
        is_known_on(&sim, &victim, &[&gpus[0]]);
        let old = sim.server();
        let culprit = sim.run("mps-aggressor", &["oob"]);
        assert_eq!(error_of(&culprit), Some(700));
        assert_eq!(error_met(&sim, victim), Some(700));
        let verdict = wait_event(&sim, "verdict", 1).remove(0)["verdict"].clone();
        assert_eq!(pids(&verdict["spared"]), [i64::from(healthy.pid().as_raw())], "{verdict}");
        assert_eq!(
            (verdict["victims"].as_array().map(Vec::len), verdict["gpus"].clone()),
            (Some(1), serde_json::json!([gpus[0].uuid.to_string()]))
        );
        let tainted = wait_event(&sim, "server-tainted", 1).remove(0);
        assert_eq!(tainted["gpus"], verdict["gpus"]);
        assert!(sim.lab.ask("get_fault_list --wide\n").contains(&gpus[0].uuid.to_string()));
        // With `victims_timeout = 0` its server would be ended at once.
        wait_event(&sim, "server-swapped", 1);
        goes_on(&sim, &healthy);
        assert_eq!(client(&sim, &healthy)["phase"], "live");
        // Newcomers on both.
        for device in ["0", "1"] {
            let newcomer = sim.run("mps-first-alloc", &["--device", device]);
            assert_eq!(error_of(&newcomer), None, "{}", newcomer.stdout_text());
        }
        goes_on(&sim, &healthy);
        assert!(sim.servers().contains(&old));
        let finished = sim.finish(healthy);
        assert_eq!((error_of(&finished), find_event(&finished.stdout_text(), "end").is_some()), (None, true));
        let exited = wait_event(&sim, "server-exited", 1).remove(0);
        assert_eq!((exited["server"].as_i64(), exited["reason"].as_str()), (Some(old.into()), Some("fault")));
    });
}

/// A program with contexts on both GPUs carries a fault from the one to the other, whichever it has made first.
#[test]
fn a_program_on_both_gpus_is_a_victim_of_a_fault_on_either_and_so_is_everybody_else() {
    once(|subject| {
        for device in ["0", "1"] {
            let sim = bench(subject, TWO, PATIENT);
            let gpus = devices(TWO);
            let other = if device == "0" { "1" } else { "0" };
            let there = bystander(&sim, &["--device", other]);
            let both = bystander(&sim, &["--device", device, "--also-device", other]);
            is_known_on(&sim, &both, &[&gpus[0], &gpus[1]]);
            let of_other = &gpus[other.parse::<usize>().expect("a number")];
            is_known_on(&sim, &there, &[of_other]);
            let culprit = sim.run("mps-aggressor", &["oob", "--device", device]);
            assert_eq!(error_of(&culprit), Some(700));
            let verdict = wait_event(&sim, "verdict", 1).remove(0)["verdict"].clone();
            let hit = [&there, &both].map(|process| i64::from(process.pid().as_raw()));
            let mut victims = pids(&verdict["victims"]);
            victims.sort_unstable();
            assert_eq!(
                victims,
                {
                    let mut hit = hit;
                    hit.sort_unstable();
                    hit
                },
                "{verdict}"
            );
            assert_eq!(pids(&verdict["spared"]), Vec::<i64>::new(), "{verdict}");
            assert!(error_met(&sim, both).is_some());
            assert_eq!(error_met(&sim, there), Some(719));
        }
    });
}

/// A successor has not counted its clients' contexts, so it can't know whom a fault leaves alone: the server does.
#[test]
fn a_successor_keeps_a_server_for_those_whom_a_later_fault_turns_out_to_have_left_alone() {
    once(|subject| {
        let sim = bench(subject, TWO, &format!("{PATIENT}quarantine_after = 0\n"));
        let healthy = bystander(&sim, &["--device", "1"]);
        let old = sim.server();
        let daemon = sim.lab.daemon().expect("it runs");
        nix::sys::signal::kill(daemon, Signal::SIGKILL).expect("it is ours");
        let dir = sim.lab.dir();
        wait_for(dir, dir, LIMIT, "the daemon's end", || sim.lab.daemon().is_none_or(|pid| pid != daemon));
        sim.lab.start(&[]);
        wait_for(dir, dir, LIMIT, "the client is found again", || client(&sim, &healthy)["phase"] == "live");
        // Long enough for the daemon to hear the server say that it is in a fault.
        let victim = bystander(&sim, &[]);
        nix::sys::signal::kill(victim.pid(), Signal::SIGSTOP).expect("it is ours");
        assert_eq!(error_of(&sim.run("mps-aggressor", &["oob"])), Some(700));
        wait_event(&sim, "server-tainted", 1);
        wait_for(dir, dir, LIMIT, "it is in a fault", || {
            sim.lab.ask(&format!("get_server_status {old}\n")).contains("FAULT")
        });
        nix::sys::signal::kill(victim.pid(), Signal::SIGCONT).expect("it is ours");
        assert_eq!(error_met(&sim, victim), Some(700));
        sim.lab.wait_log("control.log", &format!("Server {old} stays for its clients"));
        goes_on(&sim, &healthy);
        assert_eq!(client(&sim, &healthy)["phase"], "live");
        assert_eq!(error_of(&sim.finish(healthy)), None);
    });
}

#[test]
fn a_newcomer_that_sees_only_sound_gpus_joins_the_server_when_that_takes_clients_again() {
    once(|subject| {
        let sim = bench(subject, TWO, SETTINGS);
        let gpus = devices(TWO);
        let healthy = bystander(&sim, &["--device", "1"]);
        is_known_on(&sim, &healthy, &[&gpus[1]]);
        let old = sim.server();
        assert_eq!(error_of(&sim.run("mps-aggressor", &["oob"])), Some(700));
        let line = format!("Server {old} takes clients again that have nothing on {}", gpus[0].uuid);
        sim.lab.wait_log("control.log", &line);
        let seeing = |visible: &str| {
            let mut command = sim.command("mps-bystander", &["--every-ms", "50", "--until-stdin-closes"]);
            let process = Process::start_with_input(command.env("CUDA_VISIBLE_DEVICES", visible));
            sim.wait_event(&process, "ready");
            process
        };
        // A sign of the same fault that was read late keeps newcomers away from it once more, until it is asked again.
        let deadline = Instant::now() + LIMIT;
        let second = loop {
            let newcomer = seeing(&gpus[1].uuid.to_string());
            if client(&sim, &newcomer)["server"] == old {
                break newcomer;
            }
            assert_eq!(error_of(&sim.finish(newcomer)), None);
            assert!(Instant::now() < deadline, "nobody gets to server {old}: {}", sim.lab.log("control.log"));
        };
        let first = seeing(&gpus[0].uuid.to_string());
        assert_ne!(client(&sim, &first)["server"], old);
        for process in [first, second, healthy] {
            assert_eq!(error_of(&sim.finish(process)), None);
        }
    });
}

#[test]
fn a_daemon_that_is_killed_and_follows_keeps_the_server_for_whom_its_fault_has_left_alone() {
    once(|subject| {
        let sim = bench(subject, TWO, SETTINGS);
        let gpus = devices(TWO);
        let healthy = bystander(&sim, &["--device", "1"]);
        is_known_on(&sim, &healthy, &[&gpus[1]]);
        let old = sim.server();
        assert_eq!(error_of(&sim.run("mps-aggressor", &["oob"])), Some(700));
        sim.lab.wait_log("control.log", &format!("Server {old} stays for its clients"));
        let daemon = sim.lab.daemon().expect("it runs");
        nix::sys::signal::kill(daemon, Signal::SIGKILL).expect("it is ours");
        let dir = sim.lab.dir();
        wait_for(dir, dir, LIMIT, "the daemon's end", || sim.lab.daemon().is_none_or(|pid| pid != daemon));
        sim.lab.start(&[]);
        goes_on(&sim, &healthy);
        let newcomer = sim.run("mps-first-alloc", &["--device", "1"]);
        assert_eq!(error_of(&newcomer), None, "{}", newcomer.stdout_text());
        assert!(sim.servers().contains(&old));
        assert_eq!(error_of(&sim.finish(healthy)), None);
        wait_event(&sim, "server-exited", 1);
    });
}

#[test]
fn clients_that_see_one_gpu_or_mig_instance_have_a_server_for_it() {
    once(|subject| {
        let script = "MPS_SIM_DEVICES=2\nMPS_SIM_MIG=1:5,1:6\n";
        let sim = bench(subject, script, &format!("[domains]\nby_gpu = true\n{PATIENT}"));
        let all = devices(script);
        let seeing = |device: &Device| {
            let mut command = sim.command("mps-bystander", &["--every-ms", "50", "--until-stdin-closes"]);
            let process = Process::start_with_input(command.env("CUDA_VISIBLE_DEVICES", device.visible_name()));
            sim.wait_event(&process, "ready");
            process
        };
        let clients: Vec<Process> = all.iter().map(seeing).collect();
        let servers: Vec<Value> = clients.iter().map(|process| client(&sim, process)["server"].clone()).collect();
        assert_eq!(sim.servers().len(), all.len(), "{servers:?}");
        for (process, device) in clients.iter().zip(&all) {
            let domain = client(&sim, process)["domain"].to_string();
            assert!(domain.contains(&device.visible_name()), "{domain}");
        }
        // What the server says of itself names the GPU and the instance.
        let parent = machine(&Script::parse("MPS_SIM_DEVICES=2\n"))[1].uuid;
        let instance = format!("{parent}/{}", all[2].visible_name());
        let dir = sim.lab.dir();
        let has_it = || status(&sim)["servers"].to_string().contains(&instance);
        wait_for(dir, dir, LIMIT, "the instance's name", has_it);
        // A fault of one is nothing to the others.
        let mut command = sim.command("mps-aggressor", &["oob"]);
        let culprit = Process::start(command.env("CUDA_VISIBLE_DEVICES", all[1].visible_name()));
        assert_eq!(error_of(&sim.finish(culprit)), Some(700));
        let verdict = wait_event(&sim, "verdict", 1).remove(0);
        let instance = format!("{parent}/{}", all[1].visible_name());
        assert_eq!(verdict["verdict"]["gpus"], serde_json::json!([instance]), "{verdict}");
        let metrics = sim.lab.ask("metrics\n");
        let labels = [format!("UUID=\"{parent}\""), format!("MIG=\"{}\"", all[1].visible_name())];
        let mut faults = metrics.lines().filter(|line| line.starts_with("mps_client_faults_total{"));
        assert!(faults.any(|line| labels.iter().all(|label| line.contains(label))), "{metrics}");
        goes_on(&sim, &clients[0]);
        goes_on(&sim, &clients[2]);
    });
}

#[test]
fn a_client_whose_server_has_the_second_gpu_alone_works_on_that_whatever_it_sees_itself() {
    for_each(subjects(), |subject| {
        let gpu = devices(TWO)[1].clone();
        let sim = Sim::new(subject, &[("MPS_SIM_DEVICES", "2")]);
        let mut daemon = sim.lab.command(&["-d"]);
        daemon.env("CUDA_VISIBLE_DEVICES", gpu.visible_name());
        assert_eq!(sim.lab.finish(&mut daemon, b"").code, Some(0), "{subject}");
        let name = gpu.visible_name();
        for visible in [None, Some("0"), Some(name.as_str())] {
            let mut command = sim.command("mps-first-alloc", &[]);
            command.envs(visible.map(|visible| ("CUDA_VISIBLE_DEVICES", visible)));
            let finished = sim.lab.finish(&mut command, b"");
            assert_eq!((finished.code, error_of(&finished)), (Some(0), None), "{subject}: {visible:?}: {finished:?}");
        }
        // What its server has not it has not.
        let mut command = sim.command("mps-first-alloc", &[]);
        let finished = sim.lab.finish(command.env("CUDA_VISIBLE_DEVICES", "1"), b"");
        assert!(error_of(&finished).is_some(), "{subject}: {finished:?}");
    });
}
