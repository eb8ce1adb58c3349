//! Clients without a pid for the daemon, on the simulated driver: who is ended and how, and who is named for a fault.

use integration::lab::place::{Container, within};
use integration::lab::pod::{POD, Pod, machines_proc};
use integration::lab::process::Process;
use integration::lab::watch::wait_for;
use integration::lab::{LIMIT, Lab, VERY_PATIENT};
use integration::sim::{Sim, error_of, find_event};
use integration::under_test::{Skipped, once};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// Runs a test with a daemon in a pod of its own and two containers of these names beside it, which are this test's alone,
/// where all can be made.
fn in_a_pod(names: [u32; 2], config: &str, test: impl Fn(&Sim, &Pod, &[Container; 2])) {
    in_a_pod_with(Pod::start, names, config, test);
}

fn in_a_pod_with(
    begin: fn(&Lab, &Command) -> Pod,
    names: [u32; 2],
    config: &str,
    test: impl Fn(&Sim, &Pod, &[Container; 2]),
) {
    once(|subject| {
        let can_be = Command::new(POD[0]).args(&POD[1..]).arg("true").status().is_ok_and(|status| status.success());
        if !can_be || !nix::unistd::geteuid().is_root() {
            return Skipped(format!("no right to {}", POD.join(" "))).report();
        }
        let made = names.map(|name| Container::make(&format!("22222222-0000-0000-0000-{name:012x}"), name));
        let [Ok(one), Ok(two)] = made else {
            return Skipped("no right to make a cgroup".to_owned()).report();
        };
        let sim = Sim::watched(subject, &[VERY_PATIENT]);
        sim.config(&format!("{config}\n[witness]\nproc = \"{}\"\n", machines_proc(&sim.lab)));
        let pod = begin(&sim.lab, &sim.lab.command(&["-f"]));
        test(&sim, &pod, &[one, two]);
    });
}

/// A client in a container that says how it fares.
fn client(sim: &Sim, container: &Container, command: &Command, event: &str) -> Process {
    let entered = container.entered();
    let words: Vec<&str> = entered.iter().map(String::as_str).collect();
    let process = Process::start(&mut within(&words, command));
    sim.wait_event(&process, event);
    process
}

fn bystander(sim: &Sim, container: &Container) -> Process {
    client(sim, container, &sim.command("mps-bystander", &["--every-ms", "50"]), "ready")
}

/// The clients that the daemon shows to its owner.
fn clients(sim: &Sim, pod: &Pod) -> Vec<Value> {
    let status = pod.ask(&sim.lab, "status --json\n");
    let status: Value = serde_json::from_str(status.trim()).unwrap_or_else(|error| panic!("{error}: {status}"));
    status["clients"].as_array().cloned().unwrap_or_default()
}

/// What the daemon shows of this client.
fn shown(sim: &Sim, pod: &Pod, client: &Process) -> Value {
    let all = clients(sim, pod);
    let found = all.iter().find(|shown| shown["seen_as"] == client.pid().as_raw());
    found.unwrap_or_else(|| panic!("{}: {all:?}", client.pid())).clone()
}

#[test]
fn a_client_without_a_pid_is_ended_by_its_server_where_it_is_the_only_one_there() {
    in_a_pod([0x5e, 0x6f], "[domains]\nby = \"cgroup\"", |sim, pod, [one, two]| {
        let [ended, other] = [bystander(sim, one), bystander(sim, two)];
        let known = shown(sim, pod, &ended);
        let line = format!("terminate_client {} {}\n", known["server"], known["process"]["pid"]);
        assert_eq!(pod.ask(&sim.lab, &line), "0\n", "{}", pod.output());
        pod.wait_for(&sim.lab, "is ended by its server");
        assert_eq!(error_of(&sim.finish(ended)), Some(810), "as anybody who is terminated");
        let progress = || other.output().matches("progress").count();
        let before = progress();
        wait_for(sim.lab.dir(), sim.lab.dir(), LIMIT, "the other one goes on", || progress() > before + 2);
        assert_eq!(find_event(&other.output(), "error"), None);
    });
}

/// Whether the kernel's event has proven whose a fault was, whoever else had spoken by then.
fn is_proven(log: &str) -> bool {
    let witnesses = log.lines().filter_map(|line| line.split_once("; certain, by "));
    witnesses.filter_map(|(_, by)| by.split(';').next()).any(|by| by.split(' ').any(|word| word == "uvm-event"))
}

#[test]
fn a_culprit_without_a_pid_is_proven_and_named_with_its_victim_wherever_faults_are_told_of() {
    in_a_pod([0x71, 0x72], "[domains]\nby = \"uid\"\n[faults]\nculprit = \"terminate\"", |sim, pod, [one, two]| {
        let gate = sim.lab.dir().join("gate");
        mkfifo(&gate, Mode::S_IRWXU).expect("the bench's folder is ours");
        let victim = bystander(sim, one);
        let mut aggressor = sim.command("mps-aggressor", &["oob"]);
        aggressor.env("MPS_SIM_FAULT_GATE", &gate);
        let culprit = client(sim, two, &aggressor, "launched");
        let [of_culprit, of_victim] =
            [&culprit, &victim].map(|client| shown(sim, pod, client)["process"]["pid"].clone());
        let machine = culprit.pid();
        drop(fs::OpenOptions::new().write(true).open(&gate).expect("the culprit waits there"));
        assert_eq!(error_of(&sim.finish(culprit)), Some(700));
        assert_eq!(error_of(&sim.finish(victim)), Some(700));
        wait_for(sim.lab.dir(), sim.lab.dir(), LIMIT, "a verdict", || is_proven(&pod.output()));
        let faults: Value = serde_json::from_str(pod.ask(&sim.lab, "get_fault_list --json\n").trim()).expect("JSON");
        let verdict = faults.as_array().and_then(|all| all.last()).unwrap_or(&faults);
        let named = &verdict["culprit"];
        assert_eq!((&named["pid"], &named["seen_as"]), (&of_culprit, &machine.as_raw().into()), "{verdict}");
        assert_eq!(named["container"], format!("{:064x}", 0x72), "{verdict}");
        assert_eq!(named["pod"], format!("22222222-0000-0000-0000-{:012x}", 0x72), "{verdict}");
        assert_eq!(verdict["victims"], Value::from(vec![of_victim]), "{verdict}");
        let number = of_culprit.to_string();
        let mut explain = pod.inside(&sim.lab.command(&["explain", "1"]));
        let page = sim.lab.finish(&mut explain, b"").stdout_text();
        for line in ["get_fault_list\n", "get_fault_list -o wide\n", "events --json\n"] {
            let told = pod.ask(&sim.lab, line);
            assert!(told.contains(&number), "{line}: {told}");
        }
        assert!(page.contains(&number) && page.contains(&machine.to_string()), "{page}");
    });
}

#[test]
fn a_culprit_without_a_pid_is_proven_to_the_next_daemon_too() {
    in_a_pod_with(Pod::under_init, [0x81, 0x82], "[domains]\nby = \"uid\"", |sim, pod, [one, two]| {
        let gate = sim.lab.dir().join("gate");
        mkfifo(&gate, Mode::S_IRWXU).expect("the bench's folder is ours");
        let victim = bystander(sim, one);
        let mut aggressor = sim.command("mps-aggressor", &["oob"]);
        aggressor.env("MPS_SIM_FAULT_GATE", &gate);
        let culprit = client(sim, two, &aggressor, "launched");
        let before = shown(sim, pod, &culprit)["process"].clone();
        // The daemon is the child of the pod's first process.
        let children = format!("/proc/{0}/task/{0}/children", pod.first());
        let children = || fs::read_to_string(&children).expect("it lives");
        let daemon = children().split_whitespace().next().expect("the daemon").parse().expect("a pid");
        kill(Pid::from_raw(daemon), Signal::SIGKILL).expect("it runs");
        let dir = sim.lab.dir();
        wait_for(dir, dir, LIMIT, "its end", || !children().split_whitespace().any(|pid| pid == daemon.to_string()));
        let next = Process::start(&mut pod.inside(&sim.lab.command(&["-f"])));
        let is_known = || next.output().contains("is taken over from an earlier daemon");
        wait_for(dir, dir, LIMIT, "the next daemon", is_known);
        assert_eq!(shown(sim, pod, &culprit)["process"], before, "{}", next.output());
        let is_followed = || shown(sim, pod, &culprit)["tracked"] == true;
        wait_for(dir, dir, LIMIT, "its queue", is_followed);
        drop(fs::OpenOptions::new().write(true).open(&gate).expect("the culprit waits there"));
        assert_eq!(error_of(&sim.finish(culprit)), Some(700));
        assert_eq!(error_of(&sim.finish(victim)), Some(700));
        wait_for(dir, dir, LIMIT, "a verdict", || is_proven(&next.output()));
        assert!(next.output().contains(&format!("client {} (user 0, process ", before["pid"])), "{}", next.output());
    });
}
