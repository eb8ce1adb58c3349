//! The daemon as the first process of a container.

use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage};
use integration::under_test::Skipped;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::{Command, Stdio};

const ROOT: u32 = 0;

fn may_unshare() -> bool {
    let tried =
        Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// The children of a process, the dead ones that nobody has buried included, with their states.
fn children(pid: Pid) -> Vec<(Pid, char)> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let state = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.trim_start().chars().next()
    };
    list.split_whitespace().filter_map(|pid| Some((Pid::from_raw(pid.parse().ok()?), state(pid)?))).collect()
}

#[test]
fn ct_14_as_pid_1_it_buries_everybody_and_ends_with_status_0() {
    Stage::run(|stage| {
        if !may_unshare() {
            return Skipped("no right to make a process namespace".to_owned()).report();
        }
        let like = stage.lab().command(&[]);
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc"]).arg(&stage.lab().subject().control).arg("-f").env_clear();
        command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let unshare = Process::start(&mut command);
        stage.wait_for("the socket", || stage.pipe_dir().join("control").exists());
        let daemon = children(unshare.pid())[0].0;
        // A client outside of the namespace has no pid in it, and is served all the same.
        let mut client = Program::attached(stage, ROOT);
        client.ping();
        let server = stage.only(Part::Server);
        // An orphan: its parent, in the namespace too, ends before it.
        let inside = daemon.to_string();
        let orphan = Command::new("nsenter")
            .args([
                "--target",
                &inside,
                "--pid",
                "--mount",
                "sh",
                "-c",
                "sh -c 'exec true' & sh -c 'sleep 0.2 &'; exit 0",
            ])
            .status()
            .expect("nsenter runs");
        assert!(orphan.success());
        stage.wait_for("orphans buried", || {
            let of_daemon = children(daemon);
            of_daemon.len() == 2 && of_daemon.iter().all(|(_, state)| *state != 'Z')
        });
        // Its own children are its to wait for: a server that dies is known as killed.
        kill(server, Signal::SIGKILL).expect("it is ours");
        let second = Program::attached(stage, ROOT);
        stage.wait_for("its end in the log", || unshare.output().contains("(ended by signal 9)"));
        drop((client, second));
        kill(daemon, Signal::SIGTERM).expect("it is ours");
        let finished = unshare.finish(LIMIT).expect("it ends");
        assert_eq!(finished.code, Some(0), "{finished:?}");
        assert_eq!(stage.processes(), []);
        assert!(!stage.pipe_dir().join("control").exists());
    });
}

/// The daemon of a bench, which is not what asks it.
fn daemon(stage: &Stage) -> Option<Pid> {
    let words = |pid: &Pid| std::fs::read(format!("/proc/{pid}/cmdline"));
    stage.pids(Part::Daemon).into_iter().find(|pid| words(pid).is_ok_and(|words| words.ends_with(b"\0-f\0")))
}

/// `packaging/container/entrypoint`, which the image has as its first process.
#[test]
fn the_images_first_process_starts_another_daemon_and_programs_go_on() {
    Stage::run(|stage| {
        if !may_unshare() {
            return Skipped("no right to make a process namespace".to_owned()).report();
        }
        let like = stage.lab().command(&[]);
        let mut command = Command::new("unshare");
        let first = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/container/entrypoint");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", first]).env_clear();
        command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("MPS_ENTRY_PROGRAM", &stage.lab().subject().control).env("MPS_ENTRY_INTERVAL", "1");
        let unshare = Process::start(&mut command);
        stage.wait_for("the socket", || stage.pipe_dir().join("control").exists());
        let first = children(unshare.pid())[0].0;
        let mut client = Program::attached(stage, ROOT);
        client.ping();
        let server = stage.only(Part::Server);
        // A crash; and a daemon that hangs, which the first process finds out itself.
        for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
            let before = daemon(stage).expect("it is there");
            kill(before, signal).expect("it is ours");
            stage.wait_for("another daemon", || daemon(stage).is_some_and(|now| now != before));
            client.ping();
            Program::attached(stage, ROOT).ping();
            assert_eq!(stage.only(Part::Server), server, "it is taken back");
        }
        stage.wait_for("orphans buried", || children(first).iter().all(|(_, state)| *state != 'Z'));
        drop(client);
        kill(first, Signal::SIGTERM).expect("it is ours");
        let finished = unshare.finish(LIMIT).expect("it ends");
        assert_eq!(finished.code, Some(0), "{finished:?}");
        assert!(finished.stderr_text().contains("entrypoint: the daemon answers nobody"), "{finished:?}");
        assert_eq!(stage.processes(), []);
        assert!(!stage.pipe_dir().join("control").exists());
    });
}
