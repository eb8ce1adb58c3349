//! Who may do what, and whose files are left alone.

use integration::lab::process::{Finished, run};
use integration::lab::{LIMIT, Lab};
use integration::under_test::{Skipped, Subject, for_each, subjects};
use nix::unistd::Uid;
use remps_proto::admin::{Command, Personality, reply};
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;

const NOBODY: u32 = 65534;

/// Runs commands as somebody who is neither root nor the daemon's user.
fn ask_as_nobody(lab: &Lab, lines: &str) -> Finished {
    let control = lab.bin_dir(&[("nvidia-cuda-mps-control", &lab.subject().control)]).join("nvidia-cuda-mps-control");
    let mut command = std::process::Command::new(control);
    command.env_clear().env("CUDA_MPS_PIPE_DIRECTORY", lab.pipe_dir()).envs(lab.subject().environment());
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    run(&mut command, lines.as_bytes(), LIMIT).expect("it ends in time")
}

fn root() -> bool {
    let root = Uid::effective().is_root();
    if !root {
        Skipped("only root can be somebody else".to_owned()).report();
    }
    root
}

/// Starts a daemon as another user, with a log directory of that user's: the vendor's says so where it can't have one.
fn start_as(user: u32, lab: &Lab, option: &str) -> Finished {
    let log_dir = lab.dir().join(format!("log-{user}"));
    if !log_dir.exists() {
        fs::create_dir(&log_dir).and_then(|()| chown(&log_dir, Some(user), Some(user))).expect("the folder is ours");
    }
    let control = lab.bin_dir(&[("nvidia-cuda-mps-control", &lab.subject().control)]).join("nvidia-cuda-mps-control");
    let like = lab.command(&[option]);
    let mut command = std::process::Command::new(control);
    command.arg(option).env_clear().envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("CUDA_MPS_LOG_DIRECTORY", log_dir).uid(user).gid(user).current_dir("/");
    run(&mut command, b"", LIMIT).expect("it ends in time")
}

#[test]
fn ct_06_a_second_daemon_is_told_about_the_first_whosever_it_is() {
    if !root() {
        return;
    }
    let is_told = |lab: &Lab, user: u32| {
        for option in ["-d", "-f"] {
            let second = start_as(user, lab, option);
            assert_eq!(
                (second.code, second.stdout_text().as_str(), second.stderr_text().as_str()),
                (Some(1), "An instance of this daemon is already running\n", ""),
                "{} {option} of user {user}",
                lab.subject()
            );
        }
    };
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        is_told(&lab, NOBODY);
        assert_eq!(lab.ask("quit\n"), "");
    });
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        for folder in [lab.pipe_dir(), lab.log_dir()] {
            fs::create_dir(folder)
                .and_then(|()| chown(folder, Some(NOBODY), Some(NOBODY)))
                .expect("the folder is ours");
        }
        let first = start_as(NOBODY, &lab, "-d");
        assert_eq!(first.code, Some(0), "{subject}: {first:?}");
        is_told(&lab, 0);
        is_told(&lab, NOBODY - 1);
        assert_eq!(ask_as_nobody(&lab, "quit\n").code, Some(0), "{subject}");
    });
}

#[test]
fn ct_19_another_user_may_ask_but_not_quit() {
    if !root() {
        return;
    }
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        let start_refused = if subject.personality >= Personality::V580 {
            "Insufficient privileges for UID 65534. Control deamon settings can only be modified by the user who started \
             it or by the root user.\n"
        } else if subject.personality >= Personality::V550 {
            "Insufficient privileges for UID 65534. Only the root user may start server for another user.\n"
        } else {
            "Insufficient privileges for UID 65534\n"
        };
        for (line, want) in [
            ("get_default_active_thread_percentage\n", "100.0\n"),
            ("get_server_list\n", ""),
            ("ps\n", "Server not found\n"),
            ("quit\n", "Not enough privilege to execute quit command\n"),
            ("quit -t 1\n", "Not enough privilege to execute quit command\n"),
            ("start_server -uid 0\n", start_refused),
        ] {
            let finished = ask_as_nobody(&lab, line);
            assert_eq!(
                (finished.code, finished.stdout_text().as_str(), finished.stderr_text().as_str()),
                (Some(0), want, ""),
                "{subject}: {line:?}"
            );
        }
        assert_eq!(lab.ask("get_default_active_thread_percentage\n"), "100.0\n", "{subject}: still there");
    });
}

#[test]
fn ct_19_another_user_may_not_change_the_defaults() {
    if !root() {
        return;
    }
    // 535 lets everybody do so.
    let guarded = subjects().map(|subjects| {
        subjects.into_iter().filter(|subject| subject.ours || subject.personality.guards_defaults()).collect()
    });
    for_each(guarded, |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        let lines = [
            "set_default_active_thread_percentage 1\n",
            "set_default_device_pinned_mem_limit 0 1M\n",
            "set_default_client_priority 1\n",
        ];
        for line in lines {
            let command = Command::parse(line.as_bytes(), subject.personality);
            let want = format!("{}\n", reply::refused(&command, NOBODY, subject.personality));
            assert_eq!(ask_as_nobody(&lab, line).stdout_text(), want, "{subject}: {line:?}");
        }
        let defaults = "get_default_active_thread_percentage\nget_default_device_pinned_mem_limit 0\n\
                        get_default_client_priority\n";
        assert_eq!(lab.ask(defaults), "100.0\n0\n", "{subject}");
    });
}

#[test]
fn ct_19_another_user_may_not_touch_a_server() {
    if !root() {
        return;
    }
    let guarded = subjects().map(|subjects| {
        subjects.into_iter().filter(|subject| subject.ours || subject.personality.guards_defaults()).collect()
    });
    for_each(guarded, a_server_is_guarded);
}

fn a_server_is_guarded(subject: &Subject) {
    let lab = Lab::new(subject);
    let server = Path::new(env!("CARGO_BIN_EXE_nvidia-cuda-mps-server"));
    let path = lab.bin_dir(&[("nvidia-cuda-mps-server", server)]);
    let lab = lab.with("PATH", path);
    lab.start(&[]);
    assert_eq!(lab.ask("start_server -uid 0\n"), "");
    lab.wait_log("control.log", ": Ready");
    let server = lab.ask("get_server_list\n").trim().to_owned();
    for line in [
        format!("set_active_thread_percentage {server} 5"),
        format!("set_device_pinned_mem_limit {server} 0 1G"),
        format!("terminate_client {server} 2"),
        format!("shutdown_server {server}"),
    ] {
        let command = Command::parse(line.as_bytes(), subject.personality);
        let want: String =
            reply::refusal(&command, NOBODY, subject.personality).iter().map(|line| format!("{line}\n")).collect();
        assert_eq!(ask_as_nobody(&lab, &line).stdout_text(), want, "{subject}: {line:?}");
    }
    assert_eq!(lab.ask("get_server_list\n"), format!("{server}\n"), "{subject}: the server is gone");
    assert_eq!(lab.ask(&format!("get_active_thread_percentage {server}\n")), "100.0\n", "{subject}");
    assert_eq!(lab.ask("quit\n"), "", "{subject}");
}

#[test]
fn ct_25_foreign_files_in_a_shared_directory_are_left_alone() {
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject).with_one_directory();
        fs::create_dir(lab.pipe_dir()).unwrap();
        let file = lab.pipe_dir().join("gpu_partitions.yaml");
        fs::write(&file, "mine").unwrap();
        lab.start(&[]);
        assert!(lab.pipe_dir().join("control.log").is_file(), "{subject}");
        assert_eq!(lab.ask("quit\n"), "");
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine", "{subject}");
        assert!(lab.pipe_dir().join("control.log").is_file(), "{subject}: the log is gone");
    });
}
