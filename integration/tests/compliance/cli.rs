//! Options, exit statuses, messages and the form of lines.

use integration::lab::client::can_connect;
use integration::lab::{LIMIT, Lab, watch};
use integration::under_test::{Subject, for_each, only_ours, subjects};
use remps_proto::admin::Personality;
use std::process::Stdio;

/// `SIGPIPE` in a mask.
const BROKEN_PIPE: u64 = 1 << 12;
const CANNOT_FIND: &str = "Cannot find MPS control daemon process\n";

#[test]
fn ct_01_a_daemon_in_the_background_is_there_when_its_parent_returns() {
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        assert!(can_connect(lab.pipe_dir()), "{subject}: not connectable at once");
        assert!(lab.log_dir().join("control.log").is_file(), "{subject}: no control.log");
        let pid = lab.running_daemon();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
        assert_eq!(field("Umask:"), "0022", "{subject}");
        // Ignored, whoever starts it, and so by its servers too, which would end by it with all their clients.
        let ignored = u64::from_str_radix(&field("SigIgn:"), 16).unwrap();
        assert_eq!(ignored & BROKEN_PIPE, BROKEN_PIPE, "{subject}: {ignored:x}");
        for descriptor in 0..3 {
            let target = std::fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).unwrap();
            assert_eq!(target.to_str(), Some("/dev/null"), "{subject}: descriptor {descriptor}");
        }
        let own = std::env::current_dir().unwrap();
        assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), own, "{subject}: the folder is kept");
    });
}

#[test]
fn ct_01_a_start_that_succeeds_says_nothing() {
    for_each(subjects(), |subject| {
        // There is neither a GPU nor a server's program on most machines that this runs on.
        let started = Lab::new(subject).run(&["-d"], b"");
        let said = (started.code, started.stdout_text(), started.stderr_text());
        assert_eq!(said, (Some(0), String::new(), String::new()), "{subject}");
    });
}

#[test]
fn ct_02_a_command_without_a_line_end_is_answered() {
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        assert_eq!(lab.ask("get_default_active_thread_percentage"), "100.0\n", "{subject}");
    });
}

#[test]
fn ct_05_without_a_daemon_the_message_is_exact_and_the_status_1() {
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        let finished = lab.run(&[], b"get_server_list\n");
        assert_eq!(
            (finished.code, finished.stdout_text().as_str(), finished.stderr_text().as_str()),
            (Some(1), "", CANNOT_FIND),
            "{subject}"
        );
    });
}

#[test]
fn a_command_as_argument_without_a_daemon_is_told_where_none_was_found() {
    for_each(only_ours(), |subject| {
        let lab = Lab::new(subject);
        let finished = lab.run(&["status"], b"");
        let said = finished.stderr_text();
        assert_eq!((finished.code, finished.stdout_text().as_str()), (Some(1), ""), "{subject}");
        let rest = said.strip_prefix(CANNOT_FIND).unwrap_or_else(|| panic!("{subject}: {said}"));
        assert!(rest.contains(&lab.pipe_dir().display().to_string()) && rest.contains(" -d"), "{subject}: {rest}");
    });
}

#[test]
fn help_needs_no_daemon() {
    for_each(only_ours(), |subject| {
        let lab = Lab::new(subject);
        for words in [&["help"][..], &["help", "quit"], &["status", "--help"], &["run", "-h"]] {
            let finished = lab.run(words, b"");
            assert_eq!((finished.code, finished.stderr_text().as_str()), (Some(0), ""), "{subject}: {words:?}");
            assert!(finished.stdout_text().contains("nvidia-cuda-mps-control"), "{subject}: {words:?}");
        }
        let unknown = lab.run(&["help", "staus"], b"");
        let said = "help: there is no command \"staus\", did you mean \"status\"?\n";
        assert_eq!((unknown.code, unknown.stderr_text().as_str()), (Some(2), said), "{subject}");
    });
}

#[test]
fn an_answer_of_ours_that_a_full_disk_does_not_take_is_a_failure() {
    for_each(only_ours(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        for (words, status) in [(&["status"][..], 1), (&["help"][..], 1), (&["get_server_list"][..], 0)] {
            let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
            let said = lab.command(words).stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).output();
            let said = said.unwrap_or_else(|error| panic!("{subject}: {error}"));
            assert_eq!(said.status.code(), Some(status), "{subject}: {words:?}");
            assert_eq!(said.stderr.is_empty(), status == 0, "{subject}: {words:?}");
        }
    });
}

#[test]
fn ct_06_a_second_daemon_is_told_about_the_first() {
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        let first = lab.running_daemon();
        for option in ["-d", "-f"] {
            let finished = lab.run(&[option], b"");
            assert_eq!(
                (finished.code, finished.stdout_text().as_str(), finished.stderr_text().as_str()),
                (Some(1), "An instance of this daemon is already running\n", ""),
                "{subject} {option}"
            );
        }
        assert_eq!(lab.running_daemon(), first, "{subject}");
        assert_eq!(lab.ask("get_server_list\n"), "", "{subject}");
    });
}

#[test]
fn ct_06_a_pipe_directory_without_a_parent_is_named() {
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        let absent = lab.dir().join("no/such/pipe");
        let mut command = lab.command(&["-d"]);
        let finished = lab.finish(command.env("CUDA_MPS_PIPE_DIRECTORY", &absent), b"");
        let want = format!("Cannot access CUDA_MPS_PIPE_DIRECTORY={}\n", absent.display());
        assert_eq!((finished.code, finished.stdout_text()), (Some(1), want), "{subject}");
    });
}

#[test]
fn ct_09_words_after_the_program_are_a_command() {
    for_each(only_ours(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        let ask = |words: &[&str]| {
            let finished = lab.run(words, b"");
            assert_eq!((finished.code, finished.stderr_text().as_str()), (Some(0), ""), "{subject}: {words:?}");
            finished.stdout_text()
        };
        assert_eq!(ask(&["get_client_list 7"]), "Server 7 not found\n");
        assert_eq!(ask(&["get_client_list", "7"]), "Server 7 not found\n");
        assert_eq!(ask(&["lspart"]), "Unknown command \"lspart\"\n");
        assert_eq!(ask(&["start_server", "-uid", "none"]), "A user id (UID) is required to start a new server\n");
        assert!(
            lab.log("control.log").contains("Cmd:start_server -uid none"),
            "{subject}: it did not reach the daemon"
        );
    });
}

#[test]
fn ct_10_the_version_can_be_found_by_its_words() {
    for_each(only_ours(), |subject| {
        let finished = Lab::new(subject).run(&["-v"], b"");
        assert_eq!((finished.code, finished.stderr_text().as_str()), (Some(0), ""), "{subject}");
        let text = finished.stdout_text();
        let number = text.split_once("Binary version: ").and_then(|(_, rest)| rest.lines().next()?.parse::<u32>().ok());
        assert_eq!(number, subject.personality.binary_version(), "{subject}: {text}");
    });
}

#[test]
fn ct_10_help_is_given_with_status_0() {
    for_each(subjects(), |subject| {
        for option in ["-h", "--help"] {
            let finished = Lab::new(subject).run(&[option], b"");
            assert_eq!((finished.code, finished.stderr_text().as_str()), (Some(0), ""), "{subject}");
            assert!(finished.stdout_text().starts_with("CUDA MPS Control for Linux/Unix"), "{subject}");
        }
    });
}

#[test]
fn ct_11_every_spelling_of_the_options_starts_a_daemon_that_keeps_its_arguments() {
    for_each(only_ours(), |subject| {
        let options: &[&[&str]] =
            &[&["-d", "-s", "-q"], &["-d", "-S"], &["-d", "-M"], &["--daemon"], &["-d", "-multiuser-server"]];
        for options in options {
            let lab = Lab::new(subject);
            let started = lab.run(options, b"");
            assert_eq!(started.code, Some(0), "{subject} {options:?}: {started:?}");
            let shown = std::fs::read(format!("/proc/{}/cmdline", lab.running_daemon())).unwrap();
            let words: Vec<_> = shown.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
            assert!(words[0].ends_with("nvidia-cuda-mps-control"), "{subject}: {words:?}");
            assert_eq!(&words[1..words.len() - 1], *options, "{subject}");
            assert_eq!(lab.ask("quit\n"), "", "{subject} {options:?}");
        }
        for options in [&["-multiuser-server"][..], &["--multiuser-server"][..]] {
            let mut lab = Lab::new(subject);
            lab.start_foreground(options);
            assert_eq!(lab.ask("quit\n"), "", "{subject} {options:?}");
        }
    });
}

#[test]
fn an_unknown_option_does_what_it_does_in_the_release() {
    for_each(subjects(), |subject| {
        let finished = Lab::new(subject).run(&["-x"], b"");
        if subject.personality >= Personality::V580 {
            assert_eq!(finished.code, Some(0), "{subject}");
            assert!(finished.stdout_text().starts_with("Unrecognized option  \n"), "{subject}");
        } else {
            assert_eq!((finished.code, finished.stderr_text().as_str()), (Some(1), CANNOT_FIND), "{subject}");
        }
    });
}

#[test]
fn ct_24_lines_of_every_form_are_answered() {
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        for (line, want) in [
            ("  get_default_client_priority  \r\n", "0\n"),
            ("\tget_default_client_priority\n", "0\n"),
            ("GET_SERVER_LIST\n", "Unknown command \"GET_SERVER_LIST\"\n"),
            ("\n", "Unknown command \"\"\n"),
            ("a b c\n", "Unknown command \"a\"\n"),
            ("get_client_list 12abc\n", "Server 12 not found\n"),
            ("get_client_list 99999999999\n", "Server 1215752191 not found\n"),
            ("ps -p5\n", "Server 5 not found\nServer 5 not found\n\n"),
        ] {
            assert_eq!(lab.ask(line), want, "{subject}: {line:?}");
        }
        let long = lab.ask(&format!("{}\nget_default_client_priority\n", "x".repeat(5000)));
        assert!(long.starts_with("Unknown command \"xxxx") && long.ends_with("\n0\n"), "{subject}: {long:?}");
        let spaced = lab.ask(&format!("get_default_client_priority{}\nps\n", " ".repeat(1000)));
        assert_eq!(spaced, "0\nServer not found\n", "{subject}");
    });
}

#[test]
fn a_thousand_commands_in_one_session_are_all_answered() {
    const COMMANDS: usize = 1000;
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        let answers = lab.ask(&"get_default_client_priority\n".repeat(COMMANDS));
        assert_eq!(answers, "0\n".repeat(COMMANDS), "{subject}");
    });
}

#[test]
fn a_user_interface_without_standard_input_ends() {
    for_each(only_ours(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", "exec \"$0\" <&-"]).arg(&subject.control).env("CUDA_MPS_PIPE_DIRECTORY", lab.pipe_dir());
        let finished = lab.finish(&mut shell, b"");
        assert_eq!((finished.code, finished.stderr_text().as_str()), (Some(0), ""), "{subject}");
    });
}

#[test]
fn a_log_directory_that_cannot_be_made_is_a_warning_only() {
    for_each(subjects(), warns_of_missing_logs);
}

fn warns_of_missing_logs(subject: &Subject) {
    let lab = Lab::new(subject);
    let absent = lab.dir().join("no/such/log");
    let mut command = lab.command(&["-d"]);
    let finished = lab.finish(command.env("CUDA_MPS_LOG_DIRECTORY", &absent), b"");
    let want =
        format!("Warning: Failed writing log files to directory [{}]. No logs will be available.\n", absent.display());
    assert_eq!((finished.code, finished.stdout_text()), (Some(0), want), "{subject}");
    assert!(watch::became_true(lab.dir(), lab.pipe_dir(), LIMIT, || can_connect(lab.pipe_dir())));
}
