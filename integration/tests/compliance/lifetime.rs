//! Starting, ending and dying: files, signals, processes left behind.

use integration::lab::client::{Client, can_connect};
use integration::lab::process::ended_within;
use integration::lab::{LIMIT, Lab, watch};
use integration::under_test::{Subject, for_each, only_ours, subjects};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use remps_proto::admin::Personality;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CANNOT_SEND: &str = "Cannot send command to MPS control daemon process\n";
const PID_FILE: &str = "nvidia-cuda-mps-control.pid";

/// A bench whose daemon finds the simulated server.
fn lab_with_servers(subject: &Subject) -> Lab {
    let lab = Lab::new(subject);
    let server = Path::new(env!("CARGO_BIN_EXE_nvidia-cuda-mps-server"));
    let path = lab.bin_dir(&[("nvidia-cuda-mps-server", server)]);
    lab.with("PATH", path)
}

/// Starts a server for the test's user and waits until it serves; its pid.
fn start_server(lab: &Lab) -> String {
    assert_eq!(lab.ask(&format!("start_server -uid {}\n", Uid::effective())), "");
    lab.wait_log("control.log", ": Ready");
    lab.ask("get_server_list\n").trim().to_owned()
}

#[test]
fn ct_12_the_pid_file_names_the_daemon_without_a_line_end() {
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        let file = lab.pipe_dir().join(PID_FILE);
        if !subject.personality.writes_pid_file() {
            assert!(!file.exists(), "{subject}");
            return;
        }
        let daemon = lab.running_daemon();
        assert_eq!(fs::read_to_string(&file).unwrap(), daemon.to_string(), "{subject}");
        assert_eq!(lab.ask("quit\n"), "");
        // The vendor's daemon answers first and tidies up then.
        lab.wait_gone(daemon);
        assert!(!file.exists() && !lab.pipe_dir().join("log").exists(), "{subject}: files left behind");
    });
}

#[test]
fn ct_12_a_signal_is_as_clean_as_quit() {
    for_each(only_ours(), |subject| {
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            let mut lab = Lab::new(subject);
            lab.start_foreground(&[]);
            assert_eq!(lab.ask("get_server_list\n"), "", "{subject}");
            let daemon = lab.running_daemon();
            kill(daemon, signal).unwrap();
            lab.wait_gone(daemon);
            let left: Vec<_> = fs::read_dir(lab.pipe_dir()).unwrap().flatten().map(|entry| entry.file_name()).collect();
            assert!(left.iter().all(|name| name == "control_lock"), "{subject} {signal}: {left:?} left behind");
        }
    });
}

/// Something that a `quit` has to wait for, and how it goes away.
///
/// For ours it is a client with a context. The vendor's daemons up to 555 leave the waiting to the server and wait for
/// the server's end; the simulated server waits as that of 580 does, so that it is the server itself that stays here.
enum Obstacle {
    Client(Client),
    Server(Pid),
}

impl Obstacle {
    fn put_up(subject: &Subject) -> (Lab, Self) {
        if subject.ours {
            let lab = lab_with_servers(subject);
            lab.start(&[]);
            start_server(&lab);
            let client = Client::attach(lab.pipe_dir()).unwrap_or_else(|error| panic!("{subject}: {error}"));
            (lab, Self::Client(client))
        } else {
            let lab = lab_with_servers(subject).with("MPS_SIM_HANG", "start");
            lab.start(&[]);
            let answer = lab.ask(&format!("start_server -uid {}\nget_server_list\n", Uid::effective()));
            let server = answer.trim().parse().unwrap_or_else(|error| panic!("{subject}: {answer:?}: {error}"));
            (lab, Self::Server(Pid::from_raw(server)))
        }
    }

    fn take_away(self) {
        match self {
            Self::Client(client) => drop(client),
            Self::Server(pid) => kill(pid, Signal::SIGKILL).expect("the server is there"),
        }
    }
}

#[test]
fn ct_13_quit_waits_and_refuses_others_meanwhile() {
    for_each(subjects(), |subject| {
        let (lab, obstacle) = Obstacle::put_up(subject);
        std::thread::scope(|scope| {
            let quit = scope.spawn(|| lab.run(&[], b"quit\n"));
            lab.wait_log("control.log", "Cmd:quit");
            let daemon = lab.running_daemon();
            let second = lab.run(&[], b"get_server_list\n");
            if subject.ours {
                assert_eq!((second.code, second.stderr_text().as_str()), (Some(1), CANNOT_SEND), "{subject}");
            } else {
                // The vendor's user interface may lose the race and end with 0 and without a word.
                assert!(second.stdout.is_empty(), "{subject}: {second:?}");
            }
            // A daemon that would not wait has had the time of a whole program for ending.
            assert!(!ended_within(daemon, Duration::ZERO), "{subject}: it did not wait");
            obstacle.take_away();
            let quit = quit.join().expect("the user interface was waited for");
            assert_eq!((quit.code, quit.stderr_text().as_str()), (Some(0), ""), "{subject}");
            lab.wait_gone(daemon);
        });
    });
}

#[test]
fn ct_13_quit_with_a_time_limit_ends_in_time() {
    for_each(subjects(), |subject| {
        let (lab, obstacle) = Obstacle::put_up(subject);
        let daemon = lab.running_daemon();
        let asked = Instant::now();
        let quit = lab.run(&[], b"quit -t 2\n");
        let took = asked.elapsed();
        assert!(took >= Duration::from_millis(1900), "{subject}: {took:?}, {quit:?}");
        lab.wait_gone(daemon);
        // What it waited for has not gone away until now: the time alone has ended it.
        drop(obstacle);
    });
}

#[test]
fn ct_15_a_killed_daemon_can_be_followed_by_another() {
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        // A container has mounted the folder: what it sees must be the folder and the new sockets in it.
        let mounted = fs::File::open(lab.pipe_dir()).unwrap();
        let seen = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&mounted)));
        let first = lab.running_daemon();
        kill(first, Signal::SIGKILL).unwrap();
        lab.wait_gone(first);
        let finished = lab.run(&[], b"get_server_list\n");
        assert_eq!(finished.code, Some(1), "{subject}: {finished:?}");
        lab.start(&[]);
        assert_ne!(lab.running_daemon(), first, "{subject}");
        assert!(can_connect(&seen), "{subject}: the mounted folder does not see the new daemon");
        assert_eq!(lab.ask("get_default_client_priority\n"), "0\n", "{subject}");
    });
}

#[test]
fn ct_16_the_instant_the_socket_is_there_a_server_can_be_started() {
    let loops = if integration::lab::stage::is_long() { 1000 } else { 30 };
    for_each(only_ours(), |subject| {
        for _ in 0..loops {
            let lab = Lab::new(subject).with("PATH", "/nonexistent");
            let mut command = lab.command(&["-f"]);
            let process = integration::lab::process::Process::start(&mut command);
            let socket = lab.pipe_dir().join("control");
            watch::wait_for(lab.dir(), lab.pipe_dir(), LIMIT, "control", || socket.exists());
            let finished = lab.run(&[], format!("start_server -uid {}\n", Uid::effective()).as_bytes());
            assert_eq!((finished.code, finished.stderr_text().as_str()), (Some(0), ""), "{subject}");
            assert_eq!(lab.ask("quit\n"), "");
            assert!(process.ended_within(LIMIT));
        }
    });
}

#[test]
fn ct_17_nothing_is_left_in_the_process_table_after_quit() {
    for_each(subjects(), |subject| {
        let lab = lab_with_servers(subject);
        lab.start(&[]);
        start_server(&lab);
        assert!(!processes_of(&lab).is_empty(), "{subject}: the daemon is not recognised");
        assert_eq!(lab.ask("quit\n"), "");
        for pid in processes_of(&lab) {
            assert!(ended_within(pid, LIMIT), "{subject}: {pid} is left");
        }
    });
}

/// Processes of this bench as `ps aux | grep nvidia-cuda-mps` finds them.
fn processes_of(lab: &Lab) -> Vec<Pid> {
    let named = |pid: &Pid| {
        let shown = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&shown).contains("nvidia-cuda-mps")
    };
    lab.processes().into_iter().filter(named).collect()
}

#[test]
fn ct_28_the_daemons_environment_names_its_pipe_directory() {
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        let environment = fs::read(format!("/proc/{}/environ", lab.running_daemon())).unwrap();
        let want = format!("CUDA_MPS_PIPE_DIRECTORY={}", lab.pipe_dir().display());
        assert!(environment.split(|byte| *byte == 0).any(|variable| variable == want.as_bytes()), "{subject}");
    });
}

#[test]
fn a_server_goes_through_its_states_and_names_its_clients() {
    for_each(subjects(), |subject| {
        let lab = lab_with_servers(subject);
        lab.start(&[]);
        let server = start_server(&lab);
        if subject.personality >= Personality::V550 {
            assert_eq!(lab.ask(&format!("get_server_status {server}\n")), "ACTIVE\n", "{subject}");
        }
        assert_eq!(lab.ask(&format!("get_client_list {server}\n")), "", "{subject}");
        let client = Client::attach(lab.pipe_dir()).unwrap_or_else(|error| panic!("{subject}: {error}"));
        let own = format!("{}\n", std::process::id());
        assert_eq!(lab.ask(&format!("get_client_list {server}\n")), own, "{subject}");
        assert_eq!(lab.ask(&format!("get_active_thread_percentage {server}\n")), "100.0\n", "{subject}");
        let table = lab.ask("ps\n");
        let lines: Vec<&str> = table.lines().collect();
        let heading = "PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        ";
        assert_eq!((lines.first(), lines.len()), (Some(&heading), 2), "{subject}: {table}");
        let start = format!("{:<10}{:<10}{server:<15}GPU-", std::process::id(), 1);
        assert!(lines[1].starts_with(&start), "{subject}: {table}");
        let namespace = fs::metadata("/proc/self/ns/pid").unwrap().ino().to_string();
        assert_eq!(lines[1][61..76].trim_end(), namespace, "{subject}: {table}");
        assert_eq!(lab.ask(&format!("ps -p {server}\n")), table, "{subject}");
        let refused = lab.ask(&format!("terminate_client {server} 99999999\n"));
        assert_eq!(refused, "Invalid process 99999999!\n1\n", "{subject}");
        drop(client);
        assert_eq!(lab.ask("quit\n"), "", "{subject}");
    });
}
