//! What needs a process of its own: going into the background, the lock of the pipe directory, reaping orphans.
//!
//! A `main` of its own: the cases fork, and a process with threads must not. Each case runs in a child of its own, so that
//! a panic or a signal ends that case alone.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::exit;
use std::rc::Rc;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use remps_controld::parts::io::daemonize::{Process, Report, daemonize};
use remps_controld::parts::io::reaper::{Reaper, reap_orphans};
use remps_controld::parts::io::runtime_dir::{CONTROL, CONTROL_LOCK, RuntimeDir, RuntimeDirError};
use remps_controld::parts::io::server_process::{ExitCause, Identity, SERVER_NAME, ServerSpec};
use remps_controld::parts::sys::fork::{Side, single_threaded};

const CASES: &[(&str, fn())] = &[
    ("the_started_process_ends_only_when_the_daemon_is_ready", the_started_process_ends_only_when_the_daemon_is_ready),
    ("the_daemon_is_detached_and_keeps_what_users_read", the_daemon_is_detached_and_keeps_what_users_read),
    ("a_failing_start_passes_its_message_and_status_on", a_failing_start_passes_its_message_and_status_on),
    ("a_daemon_that_dies_without_a_word_is_a_failed_start", a_daemon_that_dies_without_a_word_is_a_failed_start),
    ("a_second_daemon_is_refused_until_the_first_ends", a_second_daemon_is_refused_until_the_first_ends),
    ("orphans_are_reaped_and_no_servers_status_is_lost", orphans_are_reaped_and_no_servers_status_is_lost),
];

const DEADLINE_SECONDS: u32 = 120;

fn main() {
    // The daemons of the cases come back here when their parents have ended, and are reaped.
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let mut arguments = Arguments::from_args();
    // With one at a time they run on this thread, and the process keeps no other.
    arguments.test_threads = Some(1);
    let trials = CASES.iter().map(|(name, case)| {
        Trial::test(*name, move || {
            let ended = wait(run(case));
            if matches!(ended, WaitStatus::Exited(_, 0)) { Ok(()) } else { Err(format!("{ended:?}").into()) }
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    while waitid(Id::All, WaitPidFlag::WEXITED).is_ok() {}
    conclusion.exit();
}

/// Runs something in a child, whose status is 0 unless it panics.
fn run(body: impl FnOnce()) -> Pid {
    match single_threaded().unwrap() {
        Side::Parent(child) => child,
        Side::Child => {
            end_in_time();
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            exit(i32::from(result.is_err()));
        }
    }
}

/// Makes a case that hangs end by SIGALRM; not inherited through fork.
fn end_in_time() {
    nix::unistd::alarm::set(DEADLINE_SECONDS);
}

fn wait(pid: Pid) -> WaitStatus {
    waitid(Id::Pid(pid), WaitPidFlag::WEXITED).unwrap()
}

fn is_running(pid: Pid) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::Pid(pid), flags).unwrap() == WaitStatus::StillAlive
}

fn read_all(mut pipe: PipeReader) -> String {
    let mut text = String::new();
    pipe.read_to_string(&mut text).unwrap();
    text
}

fn said(status: u8, stdout: &str, stderr: &str) -> Report {
    Report { status, stdout: stdout.to_owned(), stderr: stderr.to_owned() }
}

/// Goes into the background in a child; gives the child, which ends with the report's status, and the report.
fn background(daemon: impl FnOnce(remps_controld::parts::io::daemonize::Readiness)) -> (Pid, PipeReader) {
    let (report_rx, mut report_tx) = pipe().unwrap();
    let child = run(move || match daemonize().unwrap() {
        Process::Started(Report { status, stdout, stderr }) => {
            write!(report_tx, "out={stdout} err={stderr}").unwrap();
            exit(status.into());
        }
        Process::Daemon(readiness) => {
            drop(report_tx);
            end_in_time();
            daemon(readiness);
        }
    });
    (child, report_rx)
}

fn the_started_process_ends_only_when_the_daemon_is_ready() {
    let (mut go_rx, mut go_tx) = pipe().unwrap();
    let (mut here_rx, mut here_tx) = pipe().unwrap();
    let (child, report) = background(move |readiness| {
        here_tx.write_all(b"1").unwrap();
        go_rx.read_exact(&mut [0]).unwrap();
        readiness.tell(&said(0, "", ""));
        // The daemon lives on.
        go_rx.read_exact(&mut [0]).unwrap();
        here_tx.write_all(b"2").unwrap();
    });
    let mut byte = [0];
    here_rx.read_exact(&mut byte).unwrap();
    assert!(is_running(child), "it ended before the daemon was ready");
    go_tx.write_all(b"1").unwrap();
    assert_eq!(wait(child), WaitStatus::Exited(child, 0));
    assert_eq!(read_all(report), "out= err=");
    go_tx.write_all(b"2").unwrap();
    here_rx.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"2");
}

fn the_daemon_is_detached_and_keeps_what_users_read() {
    let own = Pid::this();
    let (facts_rx, facts_tx) = pipe().unwrap();
    let (child, _report) = background(move |readiness| {
        tell_facts(facts_tx);
        readiness.tell(&said(0, "", ""));
    });
    let text = read_all(facts_rx);
    assert_eq!(wait(child), WaitStatus::Exited(child, 0));
    let facts: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let pid = |fact: &str| facts[fact].parse::<i32>().unwrap();
    assert_ne!(pid("session"), nix::unistd::getsid(Some(own)).unwrap().as_raw());
    assert_ne!(pid("session"), pid("pid"), "a session leader could get a terminal");
    assert_ne!(pid("parent"), child.as_raw());
    for (number, name) in ["input", "output", "error"].into_iter().enumerate() {
        assert_eq!(facts[name], "/dev/null", "descriptor {number}");
    }
    assert_eq!(facts["umask"], "0022");
    assert_eq!(facts["directory"], std::env::current_dir().unwrap().to_str().unwrap());
    for unchanged in ["cmdline", "environ"] {
        let own = fs::read(format!("/proc/self/{unchanged}")).unwrap();
        assert_eq!(facts[unchanged], format!("{own:?}"), "{unchanged}");
    }
}

fn tell_facts(mut facts: PipeWriter) {
    let link = |path: &str| fs::read_link(path).unwrap().display().to_string();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap().trim().to_owned();
    let facts_now = [
        ("pid", std::process::id().to_string()),
        ("parent", nix::unistd::getppid().to_string()),
        ("session", nix::unistd::getsid(None).unwrap().to_string()),
        ("input", link("/proc/self/fd/0")),
        ("output", link("/proc/self/fd/1")),
        ("error", link("/proc/self/fd/2")),
        ("umask", umask),
        ("directory", link("/proc/self/cwd")),
        ("cmdline", format!("{:?}", fs::read("/proc/self/cmdline").unwrap())),
        ("environ", format!("{:?}", fs::read("/proc/self/environ").unwrap())),
    ];
    for (name, value) in facts_now {
        writeln!(facts, "{name}={value}").unwrap();
    }
}

fn a_failing_start_passes_its_message_and_status_on() {
    let (child, report) = background(|readiness| readiness.tell(&said(244, "", "no libcuda")));
    assert_eq!(wait(child), WaitStatus::Exited(child, 244));
    assert_eq!(read_all(report), "out= err=no libcuda");
    let running = RuntimeDirError::AlreadyRunning.to_string();
    let (child, report) = background(move |readiness| readiness.tell(&said(1, &running, "beside it")));
    assert_eq!(wait(child), WaitStatus::Exited(child, 1));
    assert_eq!(read_all(report), "out=An instance of this daemon is already running err=beside it");
}

fn a_daemon_that_dies_without_a_word_is_a_failed_start() {
    let (child, report) = background(|readiness| {
        kill(Pid::this(), Signal::SIGKILL).unwrap();
        readiness.tell(&said(0, "", ""));
    });
    assert_eq!(wait(child), WaitStatus::Exited(child, 1));
    assert_eq!(read_all(report), "out= err=the daemon ended before it was ready");
}

fn a_second_daemon_is_refused_until_the_first_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let refused = |path: &Path| {
        let path = path.to_owned();
        wait(run(move || assert!(matches!(RuntimeDir::open(&path), Err(RuntimeDirError::AlreadyRunning)))))
    };
    let mut first = RuntimeDir::open(&path).unwrap();
    let listener = first.bind_listener(CONTROL, 0o666).unwrap();
    assert!(matches!(refused(&path), WaitStatus::Exited(_, 0)));
    assert!(path.join(CONTROL).exists(), "the refused one removed the first one's socket");
    drop((first, listener));
    assert!(!path.join(CONTROL_LOCK).exists());

    // One that is killed leaves everything behind, and the next one replaces it.
    let (mut here_rx, mut here_tx) = pipe().unwrap();
    let killed = {
        let path = path.clone();
        run(move || {
            let mut directory = RuntimeDir::open(&path).unwrap();
            let _listener = directory.bind_listener(CONTROL, 0o666).unwrap();
            here_tx.write_all(b"1").unwrap();
            nix::unistd::pause();
        })
    };
    here_rx.read_exact(&mut [0]).unwrap();
    assert!(matches!(refused(&path), WaitStatus::Exited(_, 0)));
    kill(killed, Signal::SIGKILL).unwrap();
    wait(killed);
    // Nobody listens on the socket that was left, whatever its type.
    assert!(UnixStream::connect(path.join(CONTROL)).is_err());
    let mut next = RuntimeDir::open(&path).unwrap();
    let _listener = next.bind_listener(CONTROL, 0o666).unwrap();
}

/// Servers and orphans of the case below.
const EACH: usize = 100;

fn orphans_are_reaped_and_no_servers_status_is_lost() {
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(SERVER_NAME);
    // The child of the subshell outlives it, so it becomes ours, and ends with 3; the server ends with 7.
    fs::write(&program, "#!/bin/sh\n(sh -c 'exit 3' &)\nexit 7\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let identity = Identity { uid: nix::unistd::geteuid().as_raw(), gid: 0, groups: Vec::new() };
    let spec = ServerSpec { program, multi_user: false, gpu: None, identity };

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tasks = tokio::task::LocalSet::new();
    let work = tasks.run_until(async {
        let ours: Rc<RefCell<HashSet<Pid>>> = Rc::default();
        let mut reaper = Reaper::new().unwrap();
        let (causes_tx, mut causes_rx) = tokio::sync::mpsc::unbounded_channel();
        let (mut causes, mut orphans, mut started) = (Vec::new(), Vec::new(), 0);
        while causes.len() < EACH || orphans.len() < EACH {
            if started < EACH {
                let mut server = spec.spawn().unwrap();
                started += 1;
                ours.borrow_mut().insert(server.pid());
                let (ours, causes_tx) = (ours.clone(), causes_tx.clone());
                tokio::task::spawn_local(async move {
                    let cause = server.wait().await;
                    ours.borrow_mut().remove(&server.pid());
                    causes_tx.send(cause).unwrap();
                });
            }
            tokio::select! {
                () = reaper.child_ended() => {}
                Some(cause) = causes_rx.recv() => causes.push(cause),
            }
            orphans.extend(reap_orphans(|pid| ours.borrow().contains(&pid)));
        }
        (causes, orphans)
    });
    let (causes, orphans) = runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(DEADLINE_SECONDS.into()), work).await })
        .expect("a status was lost or an orphan was not reaped");
    assert_eq!(causes, [ExitCause::Exited(7); EACH]);
    assert!(orphans.iter().filter(|orphan| orphan.cause == ExitCause::Exited(3)).count() >= EACH);
    let left = waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
    assert_eq!(left, Err(nix::Error::ECHILD), "a zombie is left");
}
