//! `MPS_SHIM_REQUIRE`: without a control daemon `cuInit` fails, says why once, and the driver is not called.

use std::{
    fs,
    io::Read,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::lab::{Lab, Ran, finish, run, start_until};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind, listen, recv, send, socket,
        socketpair,
    },
};

const GREETING: &[u8] = b"OUTBHELL\0";
const REFUSED: &str = "cuInit 805 calls 0\n";

/// A listener where the lab's programs look for the daemon.
fn bound(lab: &Lab) -> OwnedFd {
    fs::create_dir_all(lab.pipe_directory()).unwrap();
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
    let address = UnixAddr::new(&lab.pipe_directory().join("control")).unwrap();
    bind(listener.as_raw_fd(), &address).unwrap();
    listener
}

fn listening(lab: &Lab) -> OwnedFd {
    let listener = bound(lab);
    listen(&listener, Backlog::new(16).unwrap()).unwrap();
    listener
}

fn accepted(listener: &OwnedFd) -> OwnedFd {
    let connection = accept(listener.as_raw_fd()).unwrap();
    #[expect(unsafe_code, reason = "nix hands out a bare descriptor")]
    // SAFETY: `accept` has just made it, and nobody else knows it.
    unsafe {
        OwnedFd::from_raw_fd(connection)
    }
}

/// Greets every peer as the control daemon does, until dropped.
struct Daemon {
    stop: OwnedFd,
    probes: JoinHandle<u32>,
}

impl Daemon {
    fn start(lab: &Lab) -> Self {
        let listener = listening(lab);
        let (stop, stopped) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let probes = thread::spawn(move || {
            let mut probes = 0;
            loop {
                let mut fds =
                    [PollFd::new(listener.as_fd(), PollFlags::POLLIN), PollFd::new(stopped.as_fd(), PollFlags::POLLIN)];
                poll(&mut fds, PollTimeout::NONE).unwrap();
                if fds[0].any() == Some(true) {
                    let peer = accepted(&listener);
                    send(peer.as_raw_fd(), GREETING, MsgFlags::MSG_NOSIGNAL).unwrap();
                    // The probe sends nothing and closes: credentials and a role are for a real connection.
                    assert_eq!(recv(peer.as_raw_fd(), &mut [0; 16], MsgFlags::empty()), Ok(0));
                    probes += 1;
                } else {
                    return probes;
                }
            }
        });
        Self { stop, probes }
    }

    /// Ends the daemon; how many probes it has seen.
    fn stop(self) -> u32 {
        drop(self.stop);
        self.probes.join().unwrap()
    }
}

/// `lookup <way>` under a requirement. Compiles what is not compiled yet, so a clock starts after it.
fn required(lab: &Lab, way: &str, seconds: &str) -> Command {
    let mut command = lab.preloaded(lab.lookup());
    command.arg(way).env("MPS_SHIM_REQUIRE", seconds);
    command
}

/// Asserts that standard error is the one line of a refusal, with all of `parts`.
fn refused_once(ran: &Ran, parts: &[&str]) {
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    assert!(ran.said(&["mps-client-shim[", "cuInit fails with CUDA_ERROR_MPS_CONNECTION_FAILED (805)"]), "{ran:?}");
    assert!(ran.said(parts), "{ran:?}");
}

#[test]
fn without_a_daemon_cuinit_fails_after_the_time_given() {
    let lab = Lab::new();
    let mut command = required(&lab, "dlsym", "1");
    let start = Instant::now();
    let ran = run(&mut command);
    assert_eq!(ran.stdout, REFUSED);
    refused_once(&ran, &["no MPS control daemon at", "/mps/control within 1 s", "No such file or directory"]);
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[test]
fn every_way_of_reaching_cuinit_is_refused() {
    let lab = Lab::new();
    for way in ["dlsym", "default", "program", "v1", "v2", "v1-v1", "v1-v2", "reopened"] {
        assert_eq!(run(&mut required(&lab, way, "1")).stdout, REFUSED, "{way}");
    }
    let direct = lab.compile("direct.c", "direct", &["-l:libcuda.so.1"]);
    let ran = run(lab.preloaded(direct).env("MPS_SHIM_REQUIRE", "1"));
    assert_eq!(ran.stdout, "cuInit 805 805 calls 0\n");
}

#[test]
fn a_program_that_tries_again_waits_once_and_is_told_once() {
    let lab = Lab::new();
    // A second wait would take longer than a program may.
    let ran = run(&mut required(&lab, "once-more-patiently", "1"));
    assert_eq!(ran.stdout, REFUSED.repeat(3));
    refused_once(&ran, &["within 1 s"]);
}

#[test]
fn with_a_daemon_cuinit_goes_through_after_one_probe() {
    let lab = Lab::new();
    let daemon = Daemon::start(&lab);
    let ran = run(&mut required(&lab, "thrice", "3600"));
    assert_eq!(ran.stdout, "cuInit 0 calls 1\ncuInit 0 calls 2\ncuInit 0 calls 3\n");
    assert_eq!(ran.stderr, "");
    assert_eq!(daemon.stop(), 1, "an initialised driver is not checked again");
}

#[test]
fn a_daemon_that_appears_later_is_waited_for() {
    let lab = Lab::new();
    let child = {
        // The first probe finds somebody who closes at once, which shows that the program is waiting.
        let listener = listening(&lab);
        let child = start_until(required(&lab, "dlsym", "3600").env("MPS_SHIM_LOG", "1"), "cuInit: reached");
        drop(accepted(&listener));
        child
    };
    fs::remove_file(lab.pipe_directory().join("control")).unwrap();
    let daemon = Daemon::start(&lab);
    assert_eq!(finish(child).stdout, "cuInit 0 calls 1\n");
    assert_eq!(daemon.stop(), 1);
}

#[test]
fn a_slow_daemon_is_heard_through_the_programs_own_signals() {
    /// Interruptions of the probe before the daemon greets.
    const INTERRUPTIONS: usize = 100;
    let lab = Lab::new();
    let listener = listening(&lab);
    let mut alarms = lab.preloaded(lab.compile("alarms.c", "alarms", &[]));
    let mut child =
        alarms.env("MPS_SHIM_REQUIRE", "3600").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let peer = accepted(&listener);
    let letters = child.stdout.as_mut().unwrap();
    letters.read_exact(&mut [0; INTERRUPTIONS]).unwrap();
    // Fails if the program has given the connection up.
    send(peer.as_raw_fd(), GREETING, MsgFlags::MSG_NOSIGNAL).unwrap();
    let ran = finish(child);
    assert!(ran.stdout.ends_with(" cuInit 0\n"), "{ran:?}");
    assert_eq!(ran.stderr, "");
}

#[test]
fn a_stale_socket_file_is_no_daemon() {
    let lab = Lab::new();
    drop(listening(&lab));
    let ran = run(&mut required(&lab, "dlsym", "1"));
    assert_eq!(ran.stdout, REFUSED);
    refused_once(&ran, &["Connection refused"]);
}

#[test]
fn a_peer_that_never_greets_is_no_daemon() {
    let lab = Lab::new();
    let _listener = listening(&lab);
    let mut command = required(&lab, "dlsym", "2");
    let start = Instant::now();
    let ran = run(&mut command);
    assert_eq!(ran.stdout, REFUSED);
    refused_once(&ran, &["whoever listens there does not greet"]);
    assert!(start.elapsed() >= Duration::from_secs(2));
}

#[test]
fn a_path_too_long_for_the_driver_is_refused_at_once() {
    let lab = Lab::new();
    let long = format!("/{}", "x".repeat(120));
    // Waiting would take longer than a program may.
    let mut command = required(&lab, "dlsym", "3600");
    let ran = run(command.env("CUDA_MPS_PIPE_DIRECTORY", long));
    assert_eq!(ran.stdout, REFUSED);
    refused_once(&ran, &["longer than the 106 bytes"]);
}

#[test]
fn a_value_that_is_no_number_refuses_and_never_switches_the_check_off() {
    let lab = Lab::new();
    let _daemon = Daemon::start(&lab);
    let ran = run(&mut required(&lab, "dlsym", "yes"));
    assert_eq!(ran.stdout, REFUSED);
    refused_once(&ran, &["MPS_SHIM_REQUIRE is not a number of seconds: \"yes\""]);
}

#[test]
fn unset_empty_and_zero_change_nothing() {
    let lab = Lab::new();
    for value in ["", "0"] {
        let ran = run(&mut required(&lab, "dlsym", value));
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("cuInit 0 calls 1\n", ""), "{value:?}");
    }
}

#[test]
fn the_server_itself_is_never_held_up() {
    let lab = Lab::new();
    let ran = run(required(&lab, "dlsym", "3600").arg0("nvidia-cuda-mps-server").env("MPS_SHIM_LOG", "1"));
    assert_eq!(ran.stdout, "cuInit 0 calls 1\n");
    assert!(ran.said(&["cuInit: passed on: this is the MPS server itself"]), "{ran:?}");
}

#[test]
fn a_forked_child_is_checked_anew() {
    let lab = Lab::new();
    let forks = lab.compile("forks.c", "forks", &[]);
    let daemon = Daemon::start(&lab);
    let ran = run(lab.preloaded(forks).env("MPS_SHIM_REQUIRE", "3600").env("MPS_SHIM_LOG", "1"));
    assert_eq!(ran.stdout, "child 0 0\nparent 0 0 child's end 0\n");
    assert_eq!(daemon.stop(), 2, "one probe for each process");
    let reached = ran.stderr.lines().filter(|line| line.ends_with("cuInit: reached")).count();
    assert_eq!(reached, 2, "one line for each process: {ran:?}");
}
