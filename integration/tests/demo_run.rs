//! The demonstration keeps its promises on the simulated driver, and says so when one is broken.

use integration::lab::install;
use integration::lab::process::{Finished, run};
use integration::under_test::{Subject, built_library, name_program, profile_dir, program};
use remps_proto::admin::Personality;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A run, however bad it goes.
const RUN_LIMIT: Duration = Duration::from_secs(300);
/// A slow machine keeps its promises late; it breaks none.
const PATIENCE: (&str, &str) = ("MPS_TEST_PATIENCE", "10");
const NOBODY: u32 = 65534;
const PROGRAMS: [&str; 7] = [
    "demo",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "mps-bystander",
    "mps-aggressor",
    "mps-first-alloc",
    "libcuda.so",
];

/// The demonstration with its programs beside it, as somebody who has copied it has it: it builds nothing there.
fn installed() -> PathBuf {
    let folder = profile_dir().join("under-test/demo");
    let control = Subject::ours(Personality::V580).control;
    for name in PROGRAMS {
        let file = match name {
            "nvidia-cuda-mps-control" => control.clone(),
            "libcuda.so" => built_library(name),
            _ => program(name),
        };
        name_program(&file, &folder, name);
    }
    folder
}

/// A run of what is built.
fn demo(arguments: &[&str], environment: &[(&str, &OsStr)]) -> Finished {
    let mut command = Command::new(installed().join("demo"));
    command.args(arguments).arg("--simulated").env_remove("CARGO").env(PATIENCE.0, PATIENCE.1);
    command.envs(environment.iter().copied());
    run(&mut command, b"", RUN_LIMIT).expect("it ends")
}

fn json(finished: &Finished) -> Value {
    let text = finished.stdout_text();
    assert_eq!(text.matches('\n').count(), 1, "one line and nothing else: {text}{}", finished.stderr_text());
    serde_json::from_str(&text).expect("one JSON object")
}

fn promise<'a>(facts: &'a Value, name: &str) -> &'a Value {
    let promises = facts["promises"].as_array().expect("a list");
    &promises.iter().find(|promise| promise["name"] == name).expect("the promise is judged")["kept"]
}

/// What holds for every run in which all went well.
fn assert_good(facts: &Value, users: &[u32]) {
    assert_eq!(facts["passed"], true, "{facts:#}");
    assert_eq!(facts["machine"]["driver"], "simulated");
    assert_eq!(facts["machine"]["users"], serde_json::json!(users));
    for name in ["clients-served", "not-refused-by-us", "newcomers-served", "daemon-lived", "nothing-left"] {
        assert_eq!(promise(facts, name), true, "{name}: {facts:#}");
    }
    let clients = facts["clients"].as_array().expect("a list");
    assert_eq!(clients.len(), 3);
    for client in clients {
        assert!(client["served_after_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{client}");
        assert!(client["server"].is_u64(), "the daemon has told its server: {client}");
        if client["shares_the_fault"] == true {
            assert_eq!(client["failure"]["code"], 700, "{client}");
        }
    }
    let (fault, culprit) = (&facts["fault"], &clients[2]);
    assert_eq!((&culprit["is_culprit"], &culprit["pid"]), (&true.into(), &fault["culprit"]));
    assert!(fault["named_by_server"].is_i64() && fault["named_by_server"] != fault["culprit"], "the log lies: {fault}");
    assert_eq!(fault["is_named_rightly"], false);
    assert_eq!(facts["quit"]["files_left"], serde_json::json!([]));
    let times: Vec<f64> =
        facts["timeline"].as_array().expect("a list").iter().filter_map(|entry| entry["ms"].as_f64()).collect();
    assert!(times.is_sorted() && times.len() > 20, "{times:?}");
    let not_proven = facts["not_proven"].to_string();
    assert!(not_proven.contains("containment inside one server"), "{not_proven}");
    assert!(not_proven.contains("anything about a GPU"), "{not_proven}");
}

#[test]
fn root_shows_that_another_users_client_feels_nothing() {
    if !nix::unistd::geteuid().is_root() {
        return integration::under_test::Skipped("only root can run clients of two users".to_owned()).report();
    }
    let finished = demo(&["--json"], &[]);
    assert_eq!(finished.code, Some(0), "{}{}", finished.stdout_text(), finished.stderr_text());
    let facts = json(&finished);
    assert_good(&facts, &[0, NOBODY]);
    assert_eq!(promise(&facts, "other-users-unharmed"), true);
    let other = &facts["clients"][1];
    assert_eq!((&other["failure"], &other["is_intact"]), (&Value::Null, &true.into()), "{other}");
    assert_ne!(other["server"], facts["clients"][0]["server"], "each user has a server");
    let newcomers = facts["newcomers"].as_array().expect("a list");
    assert_eq!(newcomers.len(), 3);
    assert_eq!(newcomers[1]["server"], other["server"], "a newcomer of the other user goes to that user's server");
}

#[test]
fn a_plain_user_with_copies_of_the_programs_runs_it_as_one_user() {
    let folder = tempfile::Builder::new().prefix("mps-demo-test-").tempdir_in("/tmp").expect("a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("it is ours");
    let source = installed();
    for name in PROGRAMS {
        install(&source.join(name), &folder.path().join(name));
    }
    let mut command = Command::new(folder.path().join("demo"));
    command.args(["--json", "--simulated"]).env_remove("CARGO").env(PATIENCE.0, PATIENCE.1).current_dir("/");
    let own = nix::unistd::geteuid();
    if own.is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let finished = run(&mut command, b"", RUN_LIMIT).expect("it ends");
    assert_eq!(finished.code, Some(0), "{}{}", finished.stdout_text(), finished.stderr_text());
    let facts = json(&finished);
    assert_good(&facts, &[if own.is_root() { NOBODY } else { own.as_raw() }]);
    assert_eq!(promise(&facts, "other-users-unharmed"), &Value::Null, "it is not claimed");
    assert!(facts["not_proven"].to_string().contains("that other users are unharmed"));
}

#[test]
fn the_text_has_its_headings_and_names_the_lie_of_the_log() {
    let finished = demo(&[], &[]);
    let text = finished.stdout_text();
    assert_eq!((finished.code, finished.stderr_text().as_str()), (Some(0), ""), "{text}");
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase())).collect();
    assert_eq!(headings[0], "Driver and servers: simulated (asked for)");
    assert!(headings[1].starts_with("Users: "));
    assert_eq!(
        headings[2..],
        [
            "Timeline, in milliseconds since the start of the daemon",
            "Clients",
            "The fault",
            "Newcomers",
            "Promises of this release",
            "Not proven",
            "Result: every promise that was tried was kept",
        ]
    );
    for part in [
        "demo            tells the daemon to quit",
        "culprit         launches a kernel that writes to an address where nothing is mapped",
        "encountered a fatal GPU error.",
        ", which is WRONG",
        "because another client of its server faulted, and the vendor's server gives the error to all of them",
        "  kept       nothing-left: after quit no file is left in the pipe directory and no process runs",
        "  - containment inside one server: this release does not do it, and bystander ",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
}

#[test]
fn a_server_that_never_starts_breaks_promises_and_the_status_says_so() {
    let finished = demo(&["--json"], &[("MPS_SIM_EXIT_STATUS", OsStr::new("8")), (PATIENCE.0, OsStr::new("1"))]);
    assert_eq!(finished.code, Some(1), "{}{}", finished.stdout_text(), finished.stderr_text());
    let facts = json(&finished);
    assert_eq!(facts["passed"], false);
    assert_eq!(promise(&facts, "clients-served"), false);
    assert_eq!(promise(&facts, "nothing-left"), true, "{facts:#}");
    assert_eq!(facts["fault"]["launched_ms"], Value::Null);
}

#[test]
fn an_unknown_option_is_refused_with_the_usage() {
    let mut command = Command::new(installed().join("demo"));
    let finished = run(command.arg("--jsn"), b"", RUN_LIMIT).expect("it ends");
    assert_eq!((finished.code, finished.stdout.as_slice()), (Some(2), b"".as_slice()));
    assert!(finished.stderr_text().starts_with("usage: demo [--json] [--simulated]\n"));
}
