//! Files, folders, devices, and who else is there.

use super::{DAEMON, GIB, Made};
use crate::core::{ComputeModeAction, Sharing};
use crate::devices::gpus::{ProbedGpu, ProbedProcess};
use crate::doctor::Severity::{Note, Ok as Fine, Problem, Warning};
use crate::doctor::gather::listening;
use crate::doctor::machine::{Daemon, Listening, Space};
use crate::settings::ConfigFile;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;

#[test]
fn the_state_of_the_daemon_comes_with_what_it_means_for_programs() {
    let mut made = Made::sound();
    for (state, severity, costs) in [
        (Daemon::Absent, Warning, "without MPS"),
        (Daemon::StaleSocket, Problem, "805"),
        (Daemon::Awaited, Problem, "wait until a daemon comes"),
        (Daemon::Silent("it took too long".into()), Problem, "hang"),
        (Daemon::Answers { took: Duration::from_secs(3), servers: Vec::new() }, Warning, "wait"),
        (Daemon::Answers { took: Duration::ZERO, servers: vec![(7, "FAULT".into())] }, Problem, "no new clients"),
        (
            Daemon::Answers { took: Duration::ZERO, servers: vec![(7, "FAULT".into()), (8, "ACTIVE".into())] },
            Warning,
            "another server",
        ),
    ] {
        made.machine.daemon = state;
        let finding = made.finding("daemon");
        assert_eq!(finding.severity, severity, "{finding:?}");
        assert!(finding.costs.contains(costs), "{finding:?}");
    }
    made.machine.daemon = Daemon::Answers { took: Duration::from_millis(2), servers: vec![(7, String::new())] };
    made.assert("daemon", Fine, "2.0 ms, 1 server");
}

#[test]
fn files_that_nobody_stands_behind_are_named() {
    let mut made = Made::sound();
    made.file("pipe/nvidia-cuda-mps-control.pid", "77");
    made.assert("stale-files", Fine, "none");
    made.machine.daemon = Daemon::Absent;
    made.assert("stale-files", Warning, "nvidia-cuda-mps-control.pid");
    made.file("proc/77/status", "");
    made.assert("stale-files", Fine, "none");
    made.machine.daemon = Daemon::StaleSocket;
    made.file("pipe/control", "");
    made.assert("stale-files", Warning, "pipe/control");
}

#[test]
fn another_daemon_is_found_whoever_made_it_and_wherever_it_listens() {
    let made = Made::sound();
    let command = |pid: u32, words: &str| made.file(&format!("proc/{pid}/cmdline"), words);
    // This one, a command line, a server, and a program that only has the name as an argument.
    command(DAEMON, "nvidia-cuda-mps-control\0-d\0");
    command(701, "nvidia-cuda-mps-control\0");
    command(702, "nvidia-cuda-mps-server\0");
    command(703, "tail\0nvidia-cuda-mps-control\0-d\0");
    command(704, "nvidia-cuda-mps-control\0get_server_list\0");
    made.assert("other-daemons", Fine, "none");
    command(705, "/usr/bin/nvidia-cuda-mps-control\0-f\0-multiuser-server\0");
    made.file("proc/705/environ", "A=1\0CUDA_MPS_PIPE_DIRECTORY=/run/other\0");
    command(706, "nvidia-cuda-mps-control\0-d\0");
    made.file("proc/706/environ", "A=1\0");
    made.assert("other-daemons", Warning, "705 in /run/other, 706 in /tmp/nvidia-mps");
}

#[test]
fn a_configuration_that_can_not_be_used_is_a_problem_and_a_bad_variable_a_warning() {
    let mut made = Made::sound();
    made.machine.remarks.push("CUDA_MPS_CLIENT_PRIORITY=9: no priority".into());
    made.assert("config", Warning, "CUDA_MPS_CLIENT_PRIORITY=9");
    made.machine.config = Err("c.toml: line 1: x: no such key\nc.toml: line 2: y: no such key".into());
    made.assert("config", Problem, "line 1: x: no such key; c.toml: line 2");
}

#[test]
fn device_files_must_be_there_for_everybody_and_open() {
    let mut made = Made::sound();
    made.mode("dev/nvidiactl", 0o660);
    made.assert("devices", Warning, "nvidiactl");
    made.machine.open = |_| Err(io::Error::from_raw_os_error(libc::EPERM));
    made.assert("devices", Problem, "can't be opened");
    made.assert("uvm-tools", Warning, "can't be opened");
    made.remove("dev/nvidia-uvm");
    made.assert("devices", Problem, "missing in /dev: nvidia-uvm");
    let made = Made::sound();
    made.remove("dev/nvidia0");
    made.assert("devices", Problem, "no GPU");
    made.remove("dev/nvidia-uvm-tools");
    made.assert("uvm-tools", Warning, "missing");
}

#[test]
fn gpus_and_their_mig_instances_are_told_by_name_and_where_the_names_are_missing_what_that_costs() {
    let mut made = Made::sound();
    made.file("dev/nvidia1", "");
    made.mode("dev/nvidia1", 0o666);
    made.assert("devices", Note, "2 GPUs, whose names /proc/driver/nvidia does not tell");
    assert!(made.finding("devices").costs.contains("a fault on all"));
    let tell = |made: &Made, root: &str| {
        for (bus, uuid, minor) in [("3b", "GPU-3d6da830-3ec1-ba21-50e0-3be12cfc8eca", 0), ("3c", "GPU-7a2edb18", 1)] {
            let text = format!("Model: \t\t NVIDIA H200\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n");
            made.file(&format!("{root}/gpus/0000:{bus}:00.0/information"), &text);
        }
        for instance in ["gi5", "gi6"] {
            made.file(&format!("{root}/capabilities/gpu1/mig/{instance}/access"), "DeviceFileMinor: 30\n");
        }
    };
    tell(&made, "proc/driver/nvidia");
    let named = "2 GPUs: GPU-3d6da830-3ec1-ba21-50e0-3be12cfc8eca GPU-7a2edb18 (MIG gi5 gi6)";
    made.assert("devices", Fine, named);
    // A container has them elsewhere, and the daemon is told where.
    made.remove("proc/driver/nvidia/gpus");
    tell(&made, "host/nvidia");
    made.assert("devices", Note, "does not tell");
    made.machine.config.as_mut().unwrap().witness.gpus = "/host/nvidia".into();
    made.assert("devices", Fine, named);
    made.machine.config.as_mut().unwrap().witness.gpus = String::new();
    made.assert("devices", Note, "does not tell");
}

#[test]
fn a_witness_that_is_switched_off_is_noted() {
    let mut made = Made::sound();
    made.machine.config.as_mut().unwrap().witness.uvm = false;
    made.assert("uvm-tools", Note, "not used");
}

#[test]
fn an_exclusive_gpu_fits_one_server_and_no_more() {
    let mut made = Made::sound();
    let set = |made: &mut Made, mode: &str| made.machine.gpus.as_mut().unwrap()[0].compute_mode = mode.into();
    set(&mut made, "Exclusive_Process");
    made.assert("compute-mode", Warning, "one server at a time");
    made.machine.config.as_mut().unwrap().policy.sharing = Sharing::Single;
    made.assert("compute-mode", Fine, "EXCLUSIVE_PROCESS");
    made.machine.config.as_mut().unwrap().policy.sharing = Sharing::MultiUser;
    made.assert("compute-mode", Fine, "EXCLUSIVE_PROCESS");
    made.machine.config.as_mut().unwrap().policy.domains.default.group.standby = true;
    made.assert("compute-mode", Warning, "one server at a time");
    set(&mut made, "Prohibited");
    made.assert("compute-mode", Problem, "GPU 0");
    made.machine.gpus = Err("nvidia-smi: not there".into());
    made.assert("compute-mode", Note, "not known: nvidia-smi");
    made.assert("persistence", Note, "not known");
}

fn looked_at(mode: u32, outside: Option<&[u32]>) -> ProbedGpu {
    let row = |pid: &u32| ProbedProcess { pid: *pid, bytes: None, instance: None };
    let outside = outside.map(|pids| pids.iter().map(row).collect());
    ProbedGpu {
        index: 3,
        uuid: "GPU-3".into(),
        mode: Some(mode),
        whole: true,
        outside,
        memory: None,
        library: String::new(),
    }
}

#[test]
fn what_the_library_says_of_a_mode_counts_and_what_the_daemon_does_about_it() {
    let mut made = Made::sound();
    made.machine.look = Ok(vec![looked_at(3, None)]);
    made.assert("compute-mode", Warning, "EXCLUSIVE_PROCESS on GPU 3");
    let finding = made.finding("compute-mode");
    assert!(finding.costs.contains("none stands by") && finding.advice.contains("manage"), "{finding:?}");
    made.machine.config.as_mut().unwrap().policy.gpus.compute_mode = ComputeModeAction::Manage;
    made.assert("compute-mode", Warning, "EXCLUSIVE_PROCESS on GPU 3");
    assert!(made.finding("compute-mode").advice.contains("the log says why"));
    made.machine.daemon_pid = None;
    made.assert("compute-mode", Fine, "DEFAULT while a daemon runs");
}

#[test]
fn who_has_contexts_outside_mps_is_named_and_servers_are_not() {
    let mut made = Made::sound();
    made.assert("strangers", Fine, "nobody");
    made.machine.look = Err("the management library: it took too long".into());
    made.assert("strangers", Note, "not known: the management library");
    made.machine.look = Ok(vec![looked_at(0, None)]);
    made.assert("strangers", Note, "not known: this driver");
    // The daemon's server, and one of another daemon's.
    made.file("proc/601/comm", "nvidia-cuda-mps\n");
    made.machine.look = Ok(vec![looked_at(0, Some(&[600, 601]))]);
    made.assert("strangers", Fine, "nobody");
    made.file("proc/77/comm", "train\u{1b}[2J\n");
    made.machine.look = Ok(vec![looked_at(0, Some(&[600, 601, 77]))]);
    made.assert("strangers", Warning, "77 (train?[2J) on GPU 3");
}

#[test]
fn persistence_and_mig_are_told() {
    let mut made = Made::sound();
    let gpu = &mut made.machine.gpus.as_mut().unwrap()[0];
    gpu.persistence = "Disabled".into();
    gpu.mig = "Enabled".into();
    made.assert("persistence", Note, "off for GPU 0; MIG is on for GPU 0");
}

#[test]
fn a_container_s_little_dev_shm_is_a_warning_and_a_closed_one_a_problem() {
    let mut made = Made::sound();
    made.machine.space = |_| Ok(Space { total: 64 * MIB, free: 64 * MIB });
    made.assert("shm", Warning, "64 MiB");
    made.machine.space = super::plenty;
    made.file(&format!("proc/{DAEMON}/mounts"), "overlay / overlay rw 0 0\n");
    made.assert("shm", Note, "no tmpfs");
    made.mode("dev/shm", 0o755);
    made.assert("shm", Problem, "0755");
    made.remove("dev/shm");
    made.assert("shm", Problem, "missing");
}

#[test]
fn a_pipe_directory_is_judged_by_length_place_and_mode() {
    let mut made = Made::sound();
    made.mode("pipe", 0o750);
    made.assert("pipe-directory", Warning, "0750");
    made.mode("pipe", 0o777);
    made.assert("pipe-directory", Warning, "0777");
    made.mode("pipe", 0o1777);
    made.assert("pipe-directory", Fine, "pipe");
    made.file(
        "proc/self/mounts",
        &format!("server:/x {} nfs4 rw 0 0\ntmpfs / tmpfs rw 0 0\n", made.path("pipe").display()),
    );
    made.assert("pipe-directory", Problem, "nfs4");
    made.remove("pipe");
    made.assert("pipe-directory", Note, "makes it");
    made.file("pipe", "");
    made.assert("pipe-directory", Problem, "no folder");
    made.machine.pipe_directory = made.path("no/such");
    made.assert("pipe-directory", Problem, "nor the folder");
    made.machine.pipe_directory = Path::new("/").join("a".repeat(90));
    made.assert("pipe-directory", Problem, "110 bytes");
}

#[test]
fn the_room_for_logs_is_that_of_the_folder_they_will_be_in() {
    let mut made = Made::sound();
    made.machine.space = |_| Ok(Space { total: GIB, free: 100 * MIB });
    made.assert("log-directory", Warning, "100 MiB free");
    made.machine.space = |_| Ok(Space { total: GIB, free: MIB });
    made.assert("log-directory", Problem, "1 MiB free");
    made.machine.space = super::plenty;
    made.machine.log_directory = made.path("new/log");
    made.assert("log-directory", Note, "makes it, 16384 MiB free");
    made.file("new/log", "");
    made.assert("log-directory", Warning, "no folder");
}

#[test]
fn a_daemon_that_sees_another_pipe_directory_is_not_met_here() {
    let made = Made::sound();
    made.remove(&format!("proc/{DAEMON}/root"));
    made.assert("mount-namespace", Note, "not known");
    let relative = made.path("pipe").strip_prefix("/").unwrap().to_owned();
    let theirs = made.path(&format!("proc/{DAEMON}/root")).join(relative);
    std::fs::create_dir_all(theirs).unwrap();
    made.assert("mount-namespace", Warning, "another folder");
}

#[test]
fn the_vendors_program_before_ours_in_path_is_a_warning() {
    let mut made = Made::sound();
    made.assert("path", Fine, "this program");
    made.file("other/nvidia-cuda-mps-control", "");
    let folders = [made.path("other"), made.path("bin")];
    made.machine.search_path = Some(std::env::join_paths(folders).unwrap());
    made.assert("path", Warning, "comes first");
    made.machine.search_path = Some(made.path("empty").into());
    made.assert("path", Note, "no folder of PATH");
    made.assert("server-program", Problem, "nvidia-cuda-mps-server");
    made.machine.search_path = None;
    made.assert("path", Note, "not known");
}

#[test]
fn metrics_need_an_address_that_is_the_daemons() {
    let mut made = Made::sound();
    let mut config = ConfigFile::default();
    config.observe.listen = "127.0.0.1:9401".to_owned();
    made.machine.config = Ok(config);
    made.assert("metrics", Warning, "nobody listens");
    made.machine.listening = |_| Listening::Ours;
    made.assert("metrics", Fine, "served on 127.0.0.1:9401");
    made.machine.listening = |_| Listening::Another;
    made.assert("metrics", Warning, "another program");
    made.machine.listening = |_| Listening::Unknown("no permission".into());
    made.assert("metrics", Note, "no permission");
    made.machine.daemon = Daemon::Absent;
    made.machine.listening = |_| Listening::Nobody;
    made.assert("metrics", Fine, "free");
    made.machine.listening = |_| Listening::Ours;
    made.assert("metrics", Warning, "another pipe directory");
}

#[test]
fn who_listens_is_found_out_by_a_question() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.sock");
    let listen = format!("unix:{}", path.display());
    assert_eq!(listening(&listen), Listening::Nobody, "there is no such file");
    let listener = UnixListener::bind(&path).unwrap();
    let answering = std::thread::spawn(move || {
        for answer in ["HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n", "SSH-2.0\r\n"] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = [0; 1024];
            assert!(stream.read(&mut question).unwrap() > 0);
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    assert_eq!(listening(&listen), Listening::Ours);
    assert_eq!(listening(&listen), Listening::Another);
    answering.join().unwrap();
    assert_eq!(listening(&listen), Listening::Nobody, "whoever it was has gone and left the file");
    assert!(matches!(listening("nonsense"), Listening::Unknown(_)));
}
