//! Who answers, who else is there, and what a daemon would be told.

use crate::cli::{self, Invocation};
use crate::doctor::Outcome;
use crate::doctor::machine::{Daemon, Machine, numbers_in, read};
use crate::io::runtime_dir::PID_FILE;
use crate::patience::patient;
use remps_proto::admin::Personality;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

/// The daemon answers this from memory; a slower answer is a machine or a daemon that is not well.
const SLOW_ANSWER: Duration = Duration::from_secs(1);
/// The vendor's word for a server that has met a fatal fault and takes nobody.
const FAULT: &str = "FAULT";
/// The program's name, which the vendor's daemon has as well.
const PROGRAM: &str = "nvidia-cuda-mps-control";

pub(super) fn daemon(machine: &Machine) -> Outcome {
    let directory = machine.pipe_directory.display();
    match &machine.daemon {
        Daemon::Absent => Outcome::warning(
            format!("no daemon in {directory}"),
            "CUDA programs run without MPS and without its limits, and are not told",
            "nvidia-cuda-mps-control -d",
        ),
        Daemon::StaleSocket => Outcome::problem(
            format!("no daemon in {directory}, but its socket"),
            "CUDA programs may fail with error 805 instead of running without MPS",
            "nvidia-cuda-mps-control -d, or remove the files of stale-files",
        ),
        Daemon::Awaited => Outcome::problem(
            format!("the daemon of {directory} is gone, and its place is kept for a new one"),
            "running programs go on; new ones wait until a daemon comes or successor_wait is over",
            "nvidia-cuda-mps-control -d",
        ),
        Daemon::Silent(why) => Outcome::problem(
            format!("a daemon is there and does not answer: {why}"),
            "new CUDA programs hang, and nothing can be asked or set",
            "look at control.log; a stopped daemon goes on with SIGCONT, one of ours can be killed without harm",
        ),
        Daemon::Answers { took, servers } => {
            let faulty: Vec<String> =
                servers.iter().filter(|(_, status)| status == FAULT).map(|(pid, _)| pid.to_string()).collect();
            let took_ms = format!("{:.1} ms", took.as_secs_f64() * 1e3);
            let what = format!("in a fault: server {}", faulty.join(", "));
            if !faulty.is_empty() && faulty.len() < servers.len() {
                return Outcome::warning(
                    what,
                    "its clients have lost their work; newcomers are on another server",
                    "nothing; it ends with its last client or after faults.victims_timeout",
                );
            }
            if !faulty.is_empty() {
                return Outcome::problem(
                    what,
                    "it takes no new clients until the last client of the faulty GPU has left",
                    "end its clients: get_client_list names them, stop-client ends them without harm to others",
                );
            }
            if *took > patient(SLOW_ANSWER) {
                let what = format!("a daemon answers, after {took_ms}");
                return Outcome::warning(what, "clients wait as long before they start", "look at the machine's load");
            }
            let count = servers.len();
            Outcome::ok(format!("a daemon answers in {took_ms}, {count} server{}", if count == 1 { "" } else { "s" }))
        }
    }
}

pub(super) fn stale_files(machine: &Machine) -> Outcome {
    let pid_file = machine.pipe_directory.join(PID_FILE);
    let mut stale = Vec::new();
    if machine.daemon == Daemon::StaleSocket {
        stale.extend(["control", "control_privileged", "log"].map(|name| machine.pipe_directory.join(name)));
    }
    if let Some(text) = read(&pid_file) {
        let is_alive = text.trim().parse::<u32>().is_ok_and(|pid| machine.proc(pid.to_string()).exists());
        // A daemon of another namespace writes a pid that means nothing here.
        if !is_alive && matches!(machine.daemon, Daemon::Absent | Daemon::StaleSocket) {
            stale.push(pid_file);
        }
    }
    let names: Vec<String> = stale.iter().filter(|path| path.exists()).map(|path| path.display().to_string()).collect();
    if names.is_empty() {
        return Outcome::ok("none");
    }
    Outcome::warning(
        names.join(", "),
        "programs and scripts that look for these files take the daemon for running",
        format!("start a daemon, which replaces them, or rm {}", names.join(" ")),
    )
}

pub(super) fn other_daemons(machine: &Machine) -> Outcome {
    let others: Vec<u32> = numbers_in(&machine.proc(""))
        .into_iter()
        .filter(|pid| Some(*pid) != machine.daemon_pid && is_daemon(&machine.proc(pid.to_string())))
        .collect();
    if others.is_empty() {
        return Outcome::ok("none");
    }
    let describe = |pid: &u32| {
        let folder = machine.proc(pid.to_string());
        let directory = variable(&folder, "CUDA_MPS_PIPE_DIRECTORY");
        format!("{pid} in {}", directory.unwrap_or_else(|| "a directory that can't be read".to_owned()))
    };
    let what = others.iter().map(describe).collect::<Vec<_>>().join(", ");
    Outcome::warning(
        what,
        "programs meet one daemon or the other by their CUDA_MPS_PIPE_DIRECTORY; in EXCLUSIVE_PROCESS mode the servers \
         of one of them fail",
        "unless two are wanted, end one: echo quit | CUDA_MPS_PIPE_DIRECTORY=… nvidia-cuda-mps-control",
    )
}

/// Whether a process is a control daemon of anybody's.
fn is_daemon(process: &Path) -> bool {
    let Some(bytes) = std::fs::read(process.join("cmdline")).ok() else { return false };
    let mut words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty()).map(<[u8]>::to_vec);
    let Some(program) = words.next() else { return false };
    let name = program.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name == PROGRAM.as_bytes()
        && matches!(cli::parse(words.map(OsString::from_vec), Personality::V580), Invocation::Daemon(_))
}

/// A variable of a process's first environment.
fn variable(process: &Path, name: &str) -> Option<String> {
    let text = read(&process.join("environ"))?;
    let value = text.split('\0').find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='));
    Some(value.unwrap_or(crate::settings::DEFAULT_PIPE_DIRECTORY).to_owned())
}

pub(super) fn config(machine: &Machine) -> Outcome {
    match &machine.config {
        Err(errors) => Outcome::problem(
            errors.replace('\n', "; "),
            "the daemon does not start",
            "correct it; nvidia-cuda-mps-control --check-config shows the result",
        ),
        Ok(_) if !machine.remarks.is_empty() => Outcome::warning(
            machine.remarks.join("; "),
            "the daemon passes over it: this limit, priority or setting is not in force",
            "correct the environment in which the daemon is started, or take the key out of the file",
        ),
        Ok(_) => Outcome::ok("sound"),
    }
}
