//! How the daemon ends: drained, forced, by every way out, with nothing left behind.

use integration::lab::LIMIT;
use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage};
use nix::sys::signal::{Signal, kill};
use std::time::{Duration, Instant};

const ROOT: u32 = 0;

/// No file of ours in the pipe directory and no process of ours anywhere.
fn nothing_is_left(stage: &Stage) {
    let left: Vec<_> = std::fs::read_dir(stage.pipe_dir())
        .map(|entries| entries.flatten().map(|entry| entry.file_name()).collect())
        .unwrap_or_default();
    assert!(left.is_empty(), "left in the pipe directory: {left:?}");
    stage.wait_for("everything gone", || stage.processes().is_empty());
}

/// Waits for a line on the daemon's standard output, where a daemon in the foreground logs.
fn says(stage: &Stage, text: &str) {
    stage.wait_for(text, || stage.daemon().output().contains(text));
}

#[test]
fn sigterm_lets_clients_finish_and_then_ends_with_status_0() {
    Stage::run(|stage| {
        stage.start(&[]);
        let mut client = Program::attached(stage, ROOT);
        stage.daemon().signal(Signal::SIGTERM);
        says(stage, "active worker threads. Server will not shutdown");
        client.ping();
        client.does("context", "context");
        client.leave();
        let finished = stage.take_daemon().finish(LIMIT).expect("it ends");
        assert_eq!(finished.code, Some(0));
        nothing_is_left(stage);
    });
}

#[test]
fn sigterm_forces_clients_that_do_not_finish_in_time() {
    Stage::run(|stage| {
        stage.config("drain_timeout = 0.5\n");
        stage.start(&[]);
        let _client = Program::attached(stage, ROOT);
        let asked = Instant::now();
        stage.daemon().signal(Signal::SIGTERM);
        let finished = stage.take_daemon().finish(LIMIT).expect("it ends");
        assert_eq!(finished.code, Some(0));
        assert!(asked.elapsed() >= Duration::from_millis(500), "forced after {:?}", asked.elapsed());
        nothing_is_left(stage);
    });
}

#[test]
fn a_second_sigterm_forces_at_once() {
    Stage::run(|stage| {
        stage.config("drain_timeout = 3600\n");
        stage.start(&[]);
        let _client = Program::attached(stage, ROOT);
        stage.daemon().signal(Signal::SIGTERM);
        says(stage, "active worker threads. Server will not shutdown");
        stage.daemon().signal(Signal::SIGTERM);
        assert!(stage.daemon().ended_within(LIMIT));
        let finished = stage.take_daemon().finish(LIMIT).expect("it ends");
        assert_eq!(finished.code, Some(0));
        nothing_is_left(stage);
    });
}

#[test]
fn quit_sigterm_and_sigint_remove_every_file_and_process() {
    for way in [None, Some(Signal::SIGTERM), Some(Signal::SIGINT)] {
        Stage::run(|stage| {
            stage.start(&[]);
            Program::attached(stage, ROOT).leave();
            match way {
                Some(signal) => stage.daemon().signal(signal),
                None => assert_eq!(stage.ask("quit\n"), ""),
            }
            let finished = stage.take_daemon().finish(LIMIT).expect("it ends");
            assert_eq!(finished.code, Some(0), "{way:?}");
            nothing_is_left(stage);
        });
    }
}

#[test]
fn what_is_in_the_way_goes_aside_and_the_daemon_starts() {
    const NAMES: [&str; 4] = ["control", "control_privileged", "log", "nvidia-cuda-mps-control.pid"];
    Stage::run(|stage| {
        for name in NAMES {
            std::fs::create_dir_all(stage.pipe_dir().join(name)).expect("our folder");
        }
        stage.start(&[]);
        Program::attached(stage, ROOT).ping();
        says(stage, "/control was in the way, it is ");
        assert_eq!(stage.ask("quit\n"), "");
        assert_eq!(stage.take_daemon().finish(LIMIT).expect("it ends").code, Some(0));
        let left = std::fs::read_dir(stage.pipe_dir()).expect("our folder").flatten().map(|entry| entry.path());
        let mut aside: Vec<_> = left
            .flat_map(|left| std::fs::read_dir(left).expect("a folder of its own").flatten())
            .map(|entry| entry.file_name().into_string().expect("our names"))
            .collect();
        aside.sort();
        assert_eq!(aside, NAMES);
    });
}

#[test]
fn a_failed_start_removes_what_it_made_and_nothing_else() {
    Stage::run(|stage| {
        let apart = |script: &str, arguments: &[&std::ffi::OsStr]| {
            let like = stage.lab().command(&[]);
            let mut command = std::process::Command::new("unshare");
            command.env_clear().envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command.args(["-m", "sh", "-c", script, "sh"]).args(arguments);
            stage.lab().finish(&mut command, b"")
        };
        if apart("true", &[]).code != Some(0) {
            return println!("Skipped(no mount namespace can be made here)");
        }
        for name in ["control", "control_privileged", "log", "nvidia-cuda-mps-control.pid"] {
            std::fs::create_dir_all(stage.pipe_dir()).expect("our folder");
            let foreign = stage.pipe_dir().join(name);
            // What is mounted can't be moved out of the way.
            std::fs::create_dir(&foreign).expect("our folder");
            let control = stage.lab().subject().control.as_os_str();
            let finished = apart("mount --bind \"$1\" \"$1\" && exec \"$2\" -f", &[foreign.as_os_str(), control]);
            assert_eq!(finished.code, Some(1), "{name}: {finished:?}");
            assert!(finished.stderr_text().contains("is in the way and can't be moved"), "{name}: {finished:?}");
            std::fs::remove_dir(&foreign).expect("it was left alone");
            nothing_is_left(stage);
        }
        // And nothing of it is in the way of a sound start.
        stage.start(&[]);
        Program::visits(stage, ROOT);
    });
}

#[test]
fn a_forced_server_that_ignores_everything_holds_up_quit_for_its_grace_time_only() {
    Stage::run(|stage| {
        stage.config("kill_timeout = 1\n");
        stage.start(&[]);
        let _client = Program::attached(stage, ROOT);
        let server = stage.only(Part::Server);
        // A stopped process takes no SIGINT, closes nothing and answers nothing.
        kill(server, Signal::SIGSTOP).expect("it is ours");
        assert_eq!(stage.ask(&format!("shutdown_server {server} -f\n")), "");
        // Without an end to its grace `quit` would wait for ever.
        assert_eq!(stage.ask("quit\n"), "");
        assert_eq!(stage.take_daemon().finish(LIMIT).expect("it ends").code, Some(0));
        nothing_is_left(stage);
    });
}

#[test]
fn quit_while_a_server_is_starting_starts_nothing_and_ends() {
    Stage::run(|stage| {
        stage.config("kill_timeout = 1\n");
        stage.script("MPS_SIM_HANG=role\n");
        stage.start(&[]);
        // Another user's groups are looked up first, so the quit can come before the process is there.
        assert_eq!(stage.ask("start_server -uid 1000\nquit\n"), "");
        let finished = stage.take_daemon().finish(LIMIT).expect("it ends");
        assert_eq!(finished.code, Some(0));
        nothing_is_left(stage);
    });
}
