//! Programs that use a GPU beside MPS: who is told of them, and that nobody of MPS is one.

use crate::compute_mode::{MANAGE, ROOT, bench, events, quits, start, wait_managed};
use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage};
use integration::nvml::{DEFAULT, EXCLUSIVE_PROCESS, Gpus, PROHIBITED};
use serde_json::Value;
use std::process::Command;

/// A program outside MPS, for as long as nobody ends it.
fn stranger() -> Process {
    Process::start_with_input(&mut Command::new("cat"))
}

#[test]
fn strangers_are_told_everywhere_and_clients_and_servers_are_none() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        start(stage, gpus);
        wait_managed(stage);
        let client = Program::attached(stage, ROOT);
        let (stranger, server) = (stranger(), stage.only(Part::Server));
        let processes = format!("{} M+C\n{server} C\n{} C\n", client.pid(), stranger.pid());
        gpus.processes(0, &processes);
        stage.wait_for("the stranger", || !events(stage, "stranger-found").is_empty());
        let found = &events(stage, "stranger-found")[0];
        assert_eq!((&found["process"]["pid"], &found["command"]), (&stranger.pid().as_raw().into(), &"cat".into()));
        let status: Value = serde_json::from_str(&stage.ask("status --json\n")).expect("JSON");
        assert_eq!(status["strangers"].as_array().map(Vec::len), Some(1), "{status}");
        assert_eq!(status["strangers"][0]["gpus"][0], Gpus::uuid(0));
        assert!(stage.ask("status\n").contains("STRANGER"));
        assert_eq!(stage.ask_as(65534, "status --json\n").matches("\"command\":\"cat\"").count(), 0);
        let metrics = stage.ask("metrics\n");
        assert!(metrics.contains(&format!("mps_strangers{{UUID=\"{}\"}} 1", Gpus::uuid(0))), "{metrics}");
        assert!(metrics.contains("mps_gpu_compute_mode") && metrics.contains("mode=\"DEFAULT\""), "{metrics}");
        gpus.processes(0, &format!("{} M+C\n{server} C\n", client.pid()));
        stage.wait_for("its end", || !events(stage, "stranger-left").is_empty());
        assert!(!stranger.ended_within(std::time::Duration::ZERO), "nobody asked for its end");
        client.leave();
        quits(stage);
        assert_eq!(events(stage, "stranger-found").len(), 1);
    });
}

/// Whether this machine's pids are the machine's own, which the end of strangers takes.
fn has_first_pids() -> bool {
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    namespace.as_os_str() == "pid:[4026531836]" && nix::unistd::geteuid().is_root()
}

#[test]
fn strangers_are_ended_where_the_operator_wants_it_and_nobody_of_mps_ever_is() {
    bench(&[DEFAULT], |stage, gpus| {
        stage.config(&format!("{MANAGE}strangers = \"end\"\n"));
        start(stage, gpus);
        let mut client = Program::attached(stage, ROOT);
        let (stranger, elsewhere, server) = (stranger(), stranger(), stage.only(Part::Server));
        // Somebody else's client, and a client that the driver does not know as one.
        let others = format!("{} M+C\n{server} C\n{} C\n", elsewhere.pid(), client.pid());
        gpus.processes(0, &format!("{others}{} C\n", stranger.pid()));
        if has_first_pids() {
            assert!(stranger.ended_within(LIMIT), "it is ended");
            assert_eq!(events(stage, "stranger-ended")[0]["process"]["pid"], stranger.pid().as_raw());
        } else {
            stage.wait_for("the line", || stage.daemon().output().contains("told of and not ended"));
        }
        stage.wait_for("the stranger", || !events(stage, "stranger-found").is_empty());
        client.ping();
        assert!(!elsewhere.ended_within(std::time::Duration::ZERO));
        assert_eq!(stage.only(Part::Server), server);
        assert_eq!(events(stage, "stranger-found").len(), 1);
        client.leave();
        quits(stage);
    });
}

#[test]
fn a_driver_that_does_not_tell_clients_from_others_makes_nobody_a_stranger() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        stage.config(&format!("{MANAGE}strangers = \"end\"\n"));
        gpus.write("fail", "nvmlDeviceGetMPSComputeRunningProcesses_v3 3\n");
        let stranger = stranger();
        gpus.processes(0, &format!("{} C\n", stranger.pid()));
        start(stage, gpus);
        wait_managed(stage);
        gpus.set_mode(0, PROHIBITED);
        stage.wait_for("a look", || stage.ask("status\n").contains("compute mode PROHIBITED"));
        quits(stage);
        assert!(events(stage, "stranger-found").is_empty());
        assert!(!stranger.ended_within(std::time::Duration::ZERO));
    });
}

#[test]
fn doctor_tells_modes_and_strangers_with_a_daemon_and_without() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        stage.config("");
        let stranger = stranger();
        gpus.processes(0, &format!("{} C\n", stranger.pid()));
        let examine = |stage: &Stage| {
            let (name, folder) = gpus.environment();
            let finished = stage.lab().finish(stage.lab().command(&["doctor", "--json"]).env(name, folder), b"");
            serde_json::from_slice::<Value>(&finished.stdout).expect("JSON")
        };
        let finding = |report: &Value, id: &str| {
            let all = report["findings"].as_array().expect("findings");
            all.iter().find(|finding| finding["id"] == id).expect("every check has one").clone()
        };
        let found = finding(&examine(stage), "strangers");
        let named = format!("{} (cat) on GPU 0", stranger.pid());
        assert!(found["what"].as_str().is_some_and(|what| what.contains(&named)), "{found}");
        start(stage, gpus);
        let report = examine(stage);
        let mode = finding(&report, "compute-mode");
        assert_eq!(mode["severity"], "warning", "{mode}");
        assert!(mode["costs"].as_str().is_some_and(|costs| costs.contains("none stands by")), "{mode}");
        assert_eq!(finding(&report, "strangers")["severity"], "warning");
        quits(stage);
    });
}
