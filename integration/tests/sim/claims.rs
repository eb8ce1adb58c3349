//! A claim of NVIDIA's DRA driver whose daemon has joined the one of the node, with simulated GPUs.
//!
//! The calls are those of NVIDIA/k8s-dra-driver-gpu at 22407113, `templates/mps-control-daemon.tmpl.yaml`, lines 30–57, with
//! `--join` behind the program's name.

use integration::lab::LIMIT;
use integration::lab::process::{Finished, Process, run};
use integration::sim::{Sim, library};
use integration::under_test::{for_each, only_ours};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
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
