//! A claim of NVIDIA's DRA driver whose daemon has joined the one of the node, with simulated GPUs.
//!
//! The calls are those of NVIDIA/k8s-dra-driver-gpu at 22407113, `templates/mps-control-daemon.tmpl.yaml`, lines 30–57, with
//! `--join` behind the program's name.

use integration::lab::LIMIT;
use integration::lab::process::{Finished, Process, run};
use integration::lab::watch::wait_for;
use integration::sim::{Sim, error_of, library};
use integration::under_test::{for_each, only_ours};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

fn placed(mut command: Command, pipe: &Path, log: &Path) -> Command {
    command.env("CUDA_MPS_PIPE_DIRECTORY", pipe).env("CUDA_MPS_LOG_DIRECTORY", log);
    command
}

fn ask(sim: &Sim, pipe: &Path, line: &str) -> String {
    let done: Finished = sim.lab.finish(&mut placed(sim.lab.command(&[]), pipe, pipe), line.as_bytes());
    assert_eq!((done.code, done.stderr_text().as_str()), (Some(0), ""), "{line}");
    done.stdout_text().trim_end().to_owned()
}

#[test]
fn a_claim_of_the_dra_driver_joins_by_its_shell_and_has_its_gpu_and_its_limits() {
    for_each(only_ours(), |subject| {
        // The daemon's child that lists devices finds the driver there.
        let folder = tempfile::tempdir().expect("there is room");
        symlink(library(), folder.path().join("libcuda.so.1")).expect("the folder is new");
        let place = folder.path().to_str().expect("its name is plain");
        let sim = Sim::started(subject, &[("MPS_SIM_DEVICES", "2"), ("LD_LIBRARY_PATH", place)]);
        let listed = sim.lab.ask("device list --format=csv,noheader\n");
        let gpus: Vec<&str> = listed.lines().filter_map(|line| line.split(',').nth(3)).collect();
        let gpu = gpus.last().expect("a GPU");
        let dir = sim.lab.dir().join("claim");
        let (pipe, log) = (dir.join("pipe"), dir.join("log"));
        fs::create_dir_all(&pipe).and_then(|()| fs::create_dir_all(&log)).expect("the bench's folder is ours");
        let path = format!(
            "{}:/usr/bin:/bin",
            sim.lab.bin_dir(&[("nvidia-cuda-mps-control", &sim.lab.subject().control)]).display()
        );
        let script = format!(
            "set -e\nrm -f {log}/startup.log\n\
             sh -c \"nvidia-cuda-mps-control -d --join {node}\"\n\
             sh -c \"echo set_default_active_thread_percentage 50 | nvidia-cuda-mps-control\"\n\
             sh -c \"echo set_default_device_pinned_mem_limit {gpu} 10240M | nvidia-cuda-mps-control\"\n\
             echo up > {log}/startup.log\ntail -n +1 {log}/control.log\n",
            log = log.display(),
            node = sim.lab.pipe_dir().display(),
        );
        let mut pod = Command::new("sh");
        pod.args(["-c", &script]).env_clear().env("PATH", path).env("CUDA_VISIBLE_DEVICES", gpu);
        let done = run(&mut placed(pod, &pipe, &log), b"", LIMIT).unwrap_or_else(|error| panic!("{subject}: {error}"));
        assert_eq!(done.code, Some(0), "{subject}: {done:?}");
        assert!(log.join("startup.log").exists(), "{subject}");
        let shown = done.stdout_text();
        assert!(shown.starts_with("50.0\n") && shown.contains("Starting control daemon using socket"), "{shown}");
        // A program of the claim, which has nothing but the directory.
        let mut program = placed(sim.command("mps-bystander", &[]), &pipe, &log);
        let program = Process::start(program.env("CUDA_VISIBLE_DEVICES", gpu));
        sim.wait_event(&program, "ready");
        let server = ask(&sim, &pipe, "get_server_list");
        assert_eq!(ask(&sim, &pipe, &format!("get_client_list {server}")), program.pid().to_string(), "{subject}");
        assert_eq!(ask(&sim, &pipe, &format!("get_active_thread_percentage {server}")), "50.0", "{subject}");
        assert_eq!(ask(&sim, &pipe, &format!("get_device_pinned_mem_limit {server} 0")), "10G", "{subject}");
        // Not in words alone.
        for (mebibytes, is_within) in [("10239", true), ("10241", false)] {
            let mut program = placed(sim.command("mps-first-alloc", &["--mib", mebibytes]), &pipe, &log);
            let output = sim.finish(Process::start(program.env("CUDA_VISIBLE_DEVICES", gpu)));
            assert_eq!(error_of(&output).is_none(), is_within, "{subject}: {mebibytes}: {output:?}");
        }
        // The node's operator sees the claim as a server of its own, with the one GPU.
        let rows = sim.lab.ask("server list --format=csv,noheader\n");
        let row = rows.lines().find(|row| row.starts_with("joined_")).expect("the claim's server");
        assert!(row.contains(&server), "{rows}");
        let name = row.split(',').next().expect("its name");
        let devices = sim.lab.ask(&format!("device list --server={name} --format=csv,noheader\n"));
        assert!(devices.lines().count() == 1 && devices.contains(gpu), "{devices}");
        // A GPU that there is not is none that a claim can have.
        let mut other =
            placed(sim.lab.command(&["-d", "--join", sim.lab.pipe_dir().to_str().expect("ours")]), &log, &log);
        other.env("CUDA_VISIBLE_DEVICES", "GPU-00000000-0000-0000-0000-000000000000");
        let refused = sim.lab.finish(&mut other, b"");
        assert_eq!(refused.code, Some(1), "{subject}");
        assert!(refused.stderr_text().contains("There is no device"), "{}", refused.stderr_text());
    });
}

/// A claim on this bench: a directory, and a thin daemon in it.
struct Claim<'a> {
    sim: &'a Sim,
    pipe: PathBuf,
}

impl<'a> Claim<'a> {
    fn join(sim: &'a Sim, folder: &str, name: &str) -> Self {
        let claim = Self { sim, pipe: sim.lab.dir().join(folder) };
        fs::create_dir_all(&claim.pipe).expect("the bench's folder is ours");
        let node = sim.lab.pipe_dir().to_str().expect("ours").to_owned();
        let joined = claim.run(&["-d", "--join", &node, "--join-name", name]);
        assert_eq!((joined.code, joined.stderr_text()), (Some(0), String::new()), "{name}");
        claim
    }

    fn run(&self, words: &[&str]) -> Finished {
        self.sim.lab.finish(&mut placed(self.sim.lab.command(words), &self.pipe, &self.pipe), b"")
    }

    fn prints(&self, words: &str) -> String {
        let done = self.run(&words.split(' ').collect::<Vec<_>>());
        assert_eq!((done.code, done.stderr_text().as_str()), (Some(0), ""), "{words}: {done:?}");
        done.stdout_text()
    }

    fn fails(&self, words: &str) -> String {
        let done = self.run(&words.split(' ').collect::<Vec<_>>());
        assert_eq!((done.code, done.stdout_text().as_str()), (Some(1), ""), "{words}: {done:?}");
        done.stderr_text()
    }

    fn starts(&self, name: &str, arguments: &[&str], event: &str) -> Process {
        let mut command = placed(self.sim.command(name, arguments), &self.pipe, &self.pipe);
        let process = Process::start_with_input(&mut command);
        self.sim.wait_event(&process, event);
        process
    }

    fn waits(&self, what: &str, fact: impl Fn() -> bool) {
        wait_for(self.sim.lab.dir(), self.sim.lab.log_dir(), LIMIT, what, fact);
    }
}

/// Whether a number is one of those in a text, and not a part of one.
fn has_number(text: &str, number: &str) -> bool {
    text.split(|c: char| !c.is_ascii_digit() && c != '.').any(|word| word == number)
}

const WORKS: &[&str] = &["--until-stdin-closes", "--every-ms", "50"];

/// Waits until it has gone on for some steps.
fn goes_on(claim: &Claim<'_>, process: &Process) {
    let steps = || process.output().matches("progress").count();
    let before = steps();
    claim.waits("more steps", || steps() >= before + 3);
    assert!(!process.output().contains("\"error\""), "{}", process.output());
}

#[test]
fn what_a_claims_operator_sees_of_clients_and_faults_is_the_claims_alone() {
    for_each(only_ours(), |subject| {
        let sim = Sim::started(subject, &[]);
        let (one, two) = (Claim::join(&sim, "one", "one"), Claim::join(&sim, "two", "two"));
        let empty: Value = serde_json::from_str(&two.prints("status --json")).expect("one object");
        assert_eq!((&empty["ready"], empty["named"][0]["name"].as_str()), (&Value::from(true), Some("two")), "{empty}");
        // A client that stays keeps its server in the state in which it can be asked what has happened.
        let victim = one.starts("mps-first-alloc", &["--until-stdin-closes"], "allocated");
        let neighbour = two.starts("mps-bystander", WORKS, "ready");
        let of_node = sim.start_with_input("mps-bystander", WORKS, "ready");
        let aggressor = one.starts("mps-aggressor", &["oob"], "launched");
        let (lost, culprit) = (victim.pid().to_string(), aggressor.pid().to_string());
        assert!(error_of(&sim.finish(aggressor)).is_some());
        one.waits("a verdict", || one.prints("get_fault_list -o json").lines().count() == 1);
        // The claim's own operator has what a daemon of his own would tell.
        let fault: Value = serde_json::from_str(&one.prints("get_fault_list -o json")).expect("one object");
        let domain = fault["domain"].as_str().expect("it has one");
        assert!(domain.contains(", server one"), "{domain}");
        for command in
            ["status", "status -o wide", "status -o json", "status --memory -o json", "top --once", "top --json"]
        {
            let shown = one.prints(command);
            assert!(shown.contains(&lost), "{command}: {shown}");
            for stranger in [&neighbour, &of_node] {
                assert!(!has_number(&shown, &stranger.pid().to_string()), "{command}: {shown}");
            }
        }
        assert!(one.prints("explain 1").starts_with("Fault 1, "));
        assert!(one.prints("get_fault_events 1 -o json").contains("\"verdict\""));
        assert!(one.prints(&format!("get_client_state {lost}")).contains(&lost));
        assert!(one.prints(&format!("get_channel_list {lost}")).contains(&lost));
        // His neighbour finds nothing of it, by whatever name or number.
        for command in [
            "get_fault_list",
            "get_fault_list -o wide",
            "get_fault_list -o json",
            "status -o wide",
            "status -o json",
            "status --memory -o json",
            "top --once",
            "top --json",
            "get_channel_list -o json",
        ] {
            let shown = two.prints(command);
            for stranger in [&lost, &culprit, &of_node.pid().to_string()] {
                assert!(!has_number(&shown, stranger), "{command}: {shown}");
            }
            assert!(!shown.contains("server one"), "{command}: {shown}");
        }
        assert_eq!(two.prints("get_fault_list -o json"), "");
        assert!(two.fails("explain 1").contains("no fault 1"));
        assert_eq!(two.fails("get_fault_events 1"), "The events of fault 1 are not known\n");
        for stranger in [&lost, &of_node.pid().to_string()] {
            for command in ["get_client_state", "get_channel_list"] {
                assert_eq!(two.fails(&format!("{command} {stranger}")), format!("Client {stranger} not found\n"));
            }
        }
        // Nor does whoever takes the name when the claim is gone.
        drop(sim.finish(victim));
        assert_eq!(one.prints("quit"), "");
        let heir = Claim::join(&sim, "heir", "one");
        assert_eq!(heir.prints("get_fault_list -o json"), "");
        assert_eq!(heir.fails("get_fault_events 1"), "The events of fault 1 are not known\n");
        assert!(!has_number(&heir.prints("status -o json"), &culprit));
        goes_on(&two, &neighbour);
        goes_on(&two, &of_node);
    });
}

#[test]
fn a_claims_operator_stops_a_client_of_his_own_and_none_of_others() {
    for_each(only_ours(), |subject| {
        let sim = Sim::started(subject, &[]);
        let (one, two) = (Claim::join(&sim, "one", "one"), Claim::join(&sim, "two", "two"));
        let neighbour = two.starts("mps-bystander", WORKS, "ready");
        let (doomed, beside) =
            (one.starts("mps-bystander", WORKS, "ready"), one.starts("mps-bystander", WORKS, "ready"));
        // Nobody is terminated for a claim in which he is not.
        let stranger = neighbour.pid().to_string();
        let refused = one.run(&["stop-client", "--no-signal", &stranger]);
        let remark = format!("stop-client: {stranger}: no client of this daemon's\n");
        assert_eq!((refused.code, refused.stderr_text()), (Some(1), remark), "{refused:?}");
        goes_on(&two, &neighbour);
        let done = one.run(&["stop-client", &doomed.pid().to_string()]);
        assert_eq!((done.code, done.stderr_text().as_str()), (Some(0), ""), "{done:?}");
        assert!(done.stdout_text().contains("terminated at server"), "{done:?}");
        goes_on(&one, &beside);
        goes_on(&two, &neighbour);
    });
}
