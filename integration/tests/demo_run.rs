//! The demonstration keeps its promises on the simulated driver, says so when one is broken, and leaves nothing behind.

use integration::lab::install;
use integration::lab::process::{Finished, Process, run};
use integration::lab::watch::wait_for;
use integration::under_test::{built_library, name_program, profile_dir, program};
use integration::vendor::{self, Release};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// A run, however bad it goes.
const RUN_LIMIT: Duration = Duration::from_secs(300);
/// A slow machine keeps its promises late; it breaks none.
const PATIENCE: (&str, &str) = ("MPS_TEST_PATIENCE", "10");
const NOBODY: u32 = 65534;
const LIBRARIES: [&str; 3] = ["libcuda.so", "libuvm_sim.so", "libmps_client_shim.so"];

/// The demonstration with its libraries beside it, as somebody who has copied it has it. NVIDIA's daemon is not found from
/// there, so that its simulation plays it.
fn installed() -> PathBuf {
    let folder = profile_dir().join("under-test/demo");
    name_program(&program("demo"), &folder, "demo");
    for name in LIBRARIES {
        name_program(&built_library(name), &folder, name);
    }
    folder
}

/// A folder to start it in, where the picture goes.
fn current() -> TempDir {
    tempfile::Builder::new().prefix("mps-demo-test-").tempdir_in("/tmp").expect("a folder in /tmp")
}

fn command(current: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(installed().join("demo"));
    command.args(arguments).arg("--simulated").env_remove("MPS_THEIRS").env(PATIENCE.0, PATIENCE.1);
    // What is installed on this machine plays no part.
    command.env("PATH", "/nonexistent").current_dir(current);
    command
}

fn finished(command: &mut Command) -> Finished {
    run(command, b"", RUN_LIMIT).expect("it ends")
}

fn json(finished: &Finished) -> Value {
    let text = finished.stdout_text();
    assert_eq!(text.matches('\n').count(), 1, "one line and nothing else: {text}{}", finished.stderr_text());
    serde_json::from_str(&text).expect("one JSON object")
}

/// The names of the promises that are so.
fn promises(report: &Value, kept: &Value) -> Vec<String> {
    let promises = report["promises"].as_array().expect("a list");
    let names = promises.iter().filter(|promise| promise["kept"] == *kept).map(|promise| promise["name"].to_string());
    names.map(|name| name.trim_matches('"').to_owned()).collect()
}

/// The cells of one side, from the first row to the last, with a `#` in the place of each figure.
fn cells(report: &Value, side: &str) -> Vec<String> {
    let rows = report["table"].as_array().expect("a list");
    let without_figures = |text: &str| {
        let mut out = String::new();
        for letter in text.chars() {
            match (letter.is_ascii_digit() || letter == '.', out.ends_with('#')) {
                (true, true) => {}
                (true, false) => out.push('#'),
                (false, _) => out.push(letter),
            }
        }
        out
    };
    rows.iter().map(|row| without_figures(row[side].as_str().expect("a text"))).collect()
}

fn assert_good(report: &Value) {
    assert_eq!(report["passed"], true, "{report:#}");
    assert_eq!(promises(report, &true.into()).len(), 10, "{report:#}");
    let ours = cells(report, "remps");
    for (row, expected) in [
        (0, "# of # served, the last after # ms"),
        (2, "ends with CUDA error #"),
        (3, "goes on in place after # ms, all # MiB compared and equal"),
        (5, "has its # MiB again # ms after the fault, every byte equal"),
        (7, "# of # programs end; a newcomer is served after # ms"),
        (8, "# of # programs end; a newcomer is served after # ms"),
    ] {
        assert_eq!(ours[row], expected, "{report:#}");
    }
    assert!(ours[1].starts_with("names the culprit after # ms (certain, uvm-event)"), "{ours:?}");
    let theirs = cells(report, "nvidia");
    // Whom it names is whoever came first, and never the culprit.
    let named =
        theirs[1].strip_prefix("the server's log names another (").and_then(|rest| rest.strip_suffix("): wrong"));
    assert!(["plain program", "with the library", "other domain"].map(Some).contains(&named), "{theirs:?}");
    assert_eq!(theirs[5], "begins anew: nobody has kept its # MiB", "{report:#}");
    assert_eq!(theirs[7], "# of # programs end (CUDA error #); a newcomer runs without MPS", "{report:#}");
    for side in ["remps", "nvidia"] {
        let events = report[side]["events"].as_array().expect("a list");
        let times: Vec<f64> = events.iter().filter_map(|event| event["ms"].as_f64()).collect();
        assert!(times.is_sorted() && times.len() > 30, "{side}: {times:?}");
    }
}

#[test]
fn the_whole_play_keeps_every_promise_and_draws_what_happened() {
    let current = current();
    let finished = finished(&mut command(current.path(), &["--json"]));
    assert_eq!(finished.code, Some(0), "{}{}", finished.stdout_text(), finished.stderr_text());
    let report = json(&finished);
    assert_good(&report);
    let setting = report["nvidia"]["setting"].as_str().expect("a text");
    assert!(setting.starts_with("a simulation of it, since it is not on this machine"), "{setting}");
    let path = current.path().join("demo.svg");
    assert_eq!(report["svg"].as_str().map(Path::new), Some(path.as_path()));
    let picture = fs::read_to_string(path).expect("it was written");
    let servers = report["remps"]["events"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|event| event["lane"]["server"].as_i64().map(|pid| format!("data-lane=\"server {pid}\"")));
    let lanes = ["daemon", "plain program", "with the library", "culprit", "other domain", "killed program"];
    for lane in servers.chain(lanes.map(|lane| format!("data-lane=\"{lane}\""))) {
        assert!(picture.contains(&lane), "{lane}: {picture}");
    }
    for mark in ["fault", "verdict", "blamed", "recovered", "found", "killed", "upgraded", "failed"] {
        assert!(picture.contains(&format!("data-mark=\"{mark}\"")), "{mark}: {picture}");
    }
}

#[test]
fn nvidias_own_daemon_fares_as_its_simulation_does() {
    let vendor = match vendor::fetched() {
        Ok(vendor) => vendor,
        Err(skipped) => return skipped.report(),
    };
    let current = current();
    let mut command = command(current.path(), &["--json"]);
    let finished = finished(command.env("MPS_THEIRS", vendor.control(Release::R550)));
    assert_eq!(finished.code, Some(0), "{}{}", finished.stdout_text(), finished.stderr_text());
    let report = json(&finished);
    assert!(report["nvidia"]["setting"].as_str().is_some_and(|setting| setting.starts_with("NVIDIA's own /")));
    assert_good(&report);
}

#[test]
fn where_nvidias_daemon_does_not_start_its_simulation_plays_and_says_why() {
    let current = current();
    let finished = finished(command(current.path(), &["--json"]).env("MPS_THEIRS", "/bin/false"));
    assert_eq!(finished.code, Some(0), "{}{}", finished.stdout_text(), finished.stderr_text());
    let report = json(&finished);
    let setting = report["nvidia"]["setting"].as_str().expect("a text");
    let expected = "a simulation of it, since NVIDIA's own could not be played with (the daemon does not take connections: \
                    it ends with status 1), and of driver and servers";
    assert_eq!(setting, expected);
    assert_good(&report);
}

#[test]
fn a_promise_that_is_broken_is_told_and_ends_with_status_1() {
    let current = current();
    // Without the tools device nobody has a proof of who did it; what else that costs is not for this test to say.
    let finished = finished(command(current.path(), &["--json"]).env("MPS_SIM_UVM_TOOLS", "missing"));
    assert_eq!(finished.code, Some(1), "{}{}", finished.stdout_text(), finished.stderr_text());
    let report = json(&finished);
    assert_eq!(report["passed"], false);
    assert!(promises(&report, &false.into()).contains(&"culprit-named".to_owned()), "{report:#}");
    assert!(promises(&report, &true.into()).contains(&"goes-on-in-place".to_owned()), "{report:#}");
    let named = &cells(&report, "remps")[1];
    assert!(named.starts_with("names nobody after # ms (unknown, server-log)"), "{named}");
}

#[test]
fn a_plain_user_in_a_folder_that_he_may_not_write_to_gets_the_picture_elsewhere() {
    let folder = current();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("it is ours");
    let source = installed();
    for name in LIBRARIES.iter().chain(&["demo"]) {
        install(&source.join(name), &folder.path().join(name));
    }
    let mut command = Command::new(folder.path().join("demo"));
    command.arg("--simulated").env(PATIENCE.0, PATIENCE.1).env("PATH", "/nonexistent").current_dir("/proc");
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let finished = finished(&mut command);
    let text = finished.stdout_text();
    assert_eq!((finished.code, finished.stderr_text().as_str()), (Some(0), ""), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours where there is no terminal");
    for part in [
        "1. Three programs share a GPU",
        "5. The daemon is upgraded",
        "what happened        with NVIDIA's daemon",
        "kept       who made a memory fault is named for certain",
        "Result: every promise that could be tried was kept",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    let table: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("what happened")).collect();
    assert!(table.iter().all(|line| line.chars().count() <= 80 || line.starts_with("Picture: ")), "{text}");
    let picture = text.lines().find_map(|line| line.strip_prefix("Picture: ")).expect("it has a place");
    assert!(fs::read_to_string(picture).is_ok_and(|picture| picture.ends_with("</svg>\n")), "{picture}");
    fs::remove_file(picture).expect("it is there");
}

#[test]
fn ctrl_c_ends_it_and_leaves_no_process_and_no_folder() {
    let current = current();
    let process = Process::start(&mut command(current.path(), &[]));
    let dir = current.path();
    wait_for(dir, dir, RUN_LIMIT, "the second act", || process.output().contains("\n2. "));
    let folder = folder_of(&process.output());
    assert!(folder.is_dir(), "{}", folder.display());
    process.signal(Signal::SIGINT);
    let finished = process.finish(RUN_LIMIT).expect("it ends");
    assert_eq!(finished.code, Some(130), "{finished:?}");
    assert_eq!(finished.stderr_text(), "demo: ended by signal 2; everything was cleaned up\n");
    assert!(!folder.exists(), "{} is left", folder.display());
    let mark = folder.as_os_str().as_encoded_bytes();
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    let left = entries.filter(|entry| {
        let has = |name: &str| {
            let text = fs::read(entry.path().join(name)).unwrap_or_default();
            text.windows(mark.len()).any(|window| window == mark)
        };
        has("environ") || has("cmdline")
    });
    assert_eq!(left.map(|entry| entry.path()).collect::<Vec<_>>(), [""; 0].map(PathBuf::from));
}

/// The folder of a demonstration, which the environment of the daemon that it tells of names.
fn folder_of(output: &str) -> PathBuf {
    let pid = output.lines().find_map(|line| line.split_once("takes connections, pid ")).expect("a daemon").1;
    let environment = fs::read(format!("/proc/{pid}/environ")).expect("it runs");
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let pipes = environment.split('\0').find_map(|entry| entry.strip_prefix("CUDA_MPS_PIPE_DIRECTORY="));
    Path::new(pipes.expect("it has one")).ancestors().nth(2).expect("a folder").to_owned()
}

#[test]
fn an_unknown_option_is_named_and_help_is_no_error() {
    let refused = finished(&mut command(Path::new("/"), &["--jsn"]));
    assert_eq!((refused.code, refused.stdout.as_slice()), (Some(2), b"".as_slice()));
    assert!(refused.stderr_text().starts_with("demo: unknown option --jsn\nusage: demo [--json]"), "{refused:?}");
    let help = finished(&mut command(Path::new("/"), &["--help"]));
    assert_eq!((help.code, help.stderr.as_slice()), (Some(0), b"".as_slice()));
}
