//! A bench on which our daemon runs with the simulated server: starts it, kills it, counts what is there.
//!
//! Everything that belongs to the bench is found by its pipe directory, in `/proc`: the daemon and its servers have it
//! in their environment, the holder in its arguments. So whatever a killed daemon left behind is seen, counted and, at
//! the end, killed.

use super::process::{Process, ended_within};
use super::{LIMIT, Lab, watch};
use crate::under_test::{Skipped, Subject, program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use remps_proto::admin::Personality;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The servers' name, and that of the program to copy.
pub const SERVER: &str = "nvidia-cuda-mps-server";
/// The client program.
pub const CLIENT: &str = "mps-lab-client";
/// The program that has memory to keep.
pub const VAULT_CLIENT: &str = "mps-vault-client";
/// Ours.
pub const CONTROL: &str = "nvidia-cuda-mps-control";
const SCRIPT: &str = "script";
const CONFIG: &str = "config.toml";

/// What a process of the bench is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The daemon.
    Daemon,
    /// Its holder.
    Holder,
    /// A server.
    Server,
}

/// A bench with the simulated server.
#[derive(Debug)]
pub struct Stage {
    lab: Lab,
    daemon: Option<Process>,
}

/// Whether the long variants run.
#[must_use]
pub fn is_long() -> bool {
    std::env::var_os("REMPS_LONG").is_some_and(|value| value == "1")
}

/// One of two numbers, by whether the long variants run.
#[must_use]
pub fn long_or<T>(long: T, short: T) -> T {
    if is_long() { long } else { short }
}

impl Stage {
    /// A bench without a daemon.
    ///
    /// # Panics
    /// When its folder can't be made.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a bench is made on purpose")]
    pub fn new() -> Self {
        Self::on(&Subject::ours(Personality::V580), [SERVER, CLIENT, VAULT_CLIENT].map(program))
    }

    /// The same with these programs: the simulated server, the client and the one that has memory to keep.
    ///
    /// # Panics
    /// When they can't be put there.
    #[must_use]
    pub fn on(subject: &Subject, [server, client, vault_client]: [PathBuf; 3]) -> Self {
        let lab = Lab::new(subject);
        let control = lab.subject().control.clone();
        let programs: [(&str, &Path); 4] =
            [(SERVER, &server), (CLIENT, &client), (VAULT_CLIENT, &vault_client), (CONTROL, &control)];
        let bin = lab.bin_dir(&programs);
        let (script, config) = (lab.dir().join(SCRIPT), lab.dir().join(CONFIG));
        fs::write(&script, "")
            .and_then(|()| fs::write(&config, for_bench(&lab, "")))
            .expect("the bench's folder is ours");
        let mut path = bin.into_os_string();
        path.push(":/usr/bin:/bin");
        let lab = lab.with("PATH", path).with("MPS_SIM_SCRIPT", script).with("MPS_CONTROL_CONFIG", config);
        Self { lab, daemon: None }
    }

    /// Runs `test` on a new bench, or says why not.
    pub fn run(test: impl FnOnce(&mut Self)) {
        if crate::under_test::theirs() {
            return Skipped("a promise of ours".to_owned()).report();
        }
        test(&mut Self::new());
    }

    /// The bench.
    #[must_use]
    pub const fn lab(&self) -> &Lab {
        &self.lab
    }

    /// `CUDA_MPS_PIPE_DIRECTORY`.
    #[must_use]
    pub fn pipe_dir(&self) -> &Path {
        self.lab.pipe_dir()
    }

    /// What servers that are started from now on do: lines `MPS_SIM_…=value`.
    pub fn script(&self, lines: &str) {
        // A server that reads while this is written would see half of it.
        let new = self.lab.dir().join("script.new");
        fs::write(&new, lines).and_then(|()| fs::rename(&new, self.lab.dir().join(SCRIPT))).expect("our folder");
    }

    /// The configuration file of the next daemon; what it does not speak of is about this bench alone.
    pub fn config(&self, text: &str) {
        fs::write(self.lab.dir().join(CONFIG), for_bench(&self.lab, text)).expect("the bench's folder is ours");
    }

    /// A program of the bench, as this user and that user's group alone.
    #[must_use]
    pub fn command_as(&self, uid: u32, program: &str, arguments: &[&str]) -> Command {
        let like = self.lab.command(arguments);
        let mut command = Command::new(self.lab.dir().join("bin").join(program));
        command.args(arguments).env_clear();
        command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if uid != nix::unistd::geteuid().as_raw() {
            command.uid(uid).gid(uid);
        }
        command
    }

    /// What the user interface prints for these lines when this user runs it.
    #[must_use]
    pub fn ask_as(&self, uid: u32, lines: &str) -> String {
        self.lab.finish(&mut self.command_as(uid, CONTROL, &[]), lines.as_bytes()).stdout_text()
    }

    /// Why a command of ours fails for this user: what the user interface says on standard error, with status 1.
    ///
    /// # Panics
    /// When it does not fail, or says anything on standard output.
    #[must_use]
    pub fn refusal_for(&self, uid: u32, line: &str) -> String {
        let finished = self.lab.finish(&mut self.command_as(uid, CONTROL, &[]), line.as_bytes());
        assert_eq!((finished.code, finished.stdout_text().as_str()), (Some(1), ""), "{line:?}");
        finished.stderr_text()
    }

    /// What the user interface prints for these lines.
    #[must_use]
    pub fn ask(&self, lines: &str) -> String {
        self.lab.ask(lines)
    }

    /// Starts a daemon in the foreground and waits until it answers.
    pub fn start(&mut self, arguments: &[&str]) {
        self.launch(arguments, &[]);
        self.wait_up();
    }

    /// Starts a daemon in the foreground with these further variables, and waits for nothing.
    pub fn launch(&mut self, arguments: &[&str], environment: &[(&str, &str)]) {
        let mut command = self.lab.command(&[&["-f"], arguments].concat());
        command.envs(environment.iter().copied());
        // The one before is dead; its output goes into the report of a failed test.
        if let Some(before) = self.daemon.replace(Process::start(&mut command)) {
            assert!(before.ended_within(LIMIT), "two daemons at a time");
        }
    }

    /// Starts a daemon with these arguments as this user, and waits for nothing.
    pub fn launch_as(&mut self, uid: u32, arguments: &[&str]) {
        let mut command = self.command_as(uid, CONTROL, arguments);
        assert!(self.daemon.is_none(), "two daemons at a time");
        self.daemon = Some(Process::start(&mut command));
    }

    /// Waits until the daemon that was started last answers; one that has ended instead fails the test.
    pub fn wait_up(&self) {
        let daemon = self.daemon.as_ref().expect("a daemon was started");
        let up = watch::became_true(self.lab.dir(), self.pipe_dir(), LIMIT, || {
            self.lab.daemon() == Some(daemon.pid()) && super::client::can_connect(self.pipe_dir())
                || daemon.ended_within(Duration::ZERO)
        });
        assert!(up, "the daemon does not come up");
        assert!(!daemon.ended_within(Duration::ZERO), "the daemon has ended: {}", daemon.output());
        assert_eq!(self.ask("get_default_client_priority\n").lines().count(), 1);
    }

    /// The daemon that was started last.
    #[must_use]
    pub fn daemon(&self) -> &Process {
        self.daemon.as_ref().expect("a daemon was started")
    }

    /// Takes the daemon, to wait for its end.
    #[must_use]
    pub fn take_daemon(&mut self) -> Process {
        self.daemon.take().expect("a daemon was started")
    }

    /// `kill -9` of the daemon; returns when it is gone.
    pub fn kill_daemon(&self) {
        self.daemon().signal(Signal::SIGKILL);
        assert!(self.daemon().ended_within(LIMIT), "a killed daemon lives on");
    }

    /// The processes of the bench, by what they are.
    #[must_use]
    pub fn processes(&self) -> Vec<(Part, Pid)> {
        let pipe_dir = self.pipe_dir().as_os_str().as_bytes();
        let variable = [b"CUDA_MPS_PIPE_DIRECTORY=".as_slice(), pipe_dir].concat();
        let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
        let mut found: Vec<(Part, Pid)> = entries
            .filter_map(|entry| {
                let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
                let words = fs::read(entry.path().join("cmdline")).ok()?;
                let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
                let name = words.first()?.rsplit(|byte| *byte == b'/').next()?;
                if words.get(1) == Some(&b"--holder".as_slice()) {
                    return (words.get(2) == Some(&pipe_dir)).then_some((Part::Holder, Pid::from_raw(pid)));
                }
                let environment = fs::read(entry.path().join("environ")).ok()?;
                if !environment.split(|byte| *byte == 0).any(|entry| entry == variable) {
                    return None;
                }
                match name {
                    name if name == SERVER.as_bytes() => Some((Part::Server, Pid::from_raw(pid))),
                    name if name == CONTROL.as_bytes() => Some((Part::Daemon, Pid::from_raw(pid))),
                    _ => None,
                }
            })
            .collect();
        found.sort();
        found
    }

    /// The pids of those processes that are this.
    #[must_use]
    pub fn pids(&self, part: Part) -> Vec<Pid> {
        self.processes().into_iter().filter(|(is, _)| *is == part).map(|(_, pid)| pid).collect()
    }

    /// The only process that is this.
    ///
    /// # Panics
    /// When there is not exactly one.
    #[must_use]
    pub fn only(&self, part: Part) -> Pid {
        match self.pids(part).as_slice() {
            [one] => *one,
            others => panic!("not one {part:?} but {others:?}"),
        }
    }

    /// The servers that the daemon knows, oldest first.
    #[must_use]
    pub fn servers(&self) -> Vec<Pid> {
        let pids = self.ask("get_server_list\n");
        pids.lines().map(|line| Pid::from_raw(line.parse().expect("a pid"))).collect()
    }

    /// Waits until `fact` is true, looking again often; for facts that no descriptor tells of.
    ///
    /// # Panics
    /// When it does not become true in time.
    pub fn wait_for(&self, what: &str, fact: impl Fn() -> bool) {
        watch::wait_for(self.lab.dir(), self.lab.log_dir(), LIMIT, what, fact);
    }
}

/// A configuration with which a daemon shares no folder of the machine with those of other benches.
fn for_bench(lab: &Lab, text: &str) -> String {
    let records = format!("[gpu]\nrecords = \"{}\"\n", lab.dir().join("records").display());
    if text.contains("records = ") {
        return text.to_owned();
    }
    if text.contains("[gpu]\n") { text.replacen("[gpu]\n", &records, 1) } else { format!("{text}\n{records}") }
}

/// How many descriptors a process has open; `None` when it is gone.
#[must_use]
pub fn descriptors(pid: Pid) -> Option<usize> {
    fs::read_dir(format!("/proc/{pid}/fd")).ok().map(Iterator::count)
}

/// Lets a process have no more descriptors than this at a time.
///
/// # Panics
/// When it can't be limited.
pub fn limit_descriptors(pid: Pid, most: usize) {
    let limit = format!("--nofile={most}:");
    let done = Command::new("prlimit").args(["--pid", &pid.to_string(), &limit]).status().expect("prlimit runs");
    assert!(done.success(), "{limit}");
}

impl Drop for Stage {
    fn drop(&mut self) {
        let deadline = Instant::now() + LIMIT;
        if let Some(daemon) = &self.daemon
            && std::thread::panicking()
        {
            let _ = std::io::Write::write_all(&mut std::io::stderr(), daemon.output().as_bytes());
        }
        // The daemon first, which would only start what is killed anew.
        for (_, pid) in self.processes() {
            let _ = kill(pid, Signal::SIGKILL);
        }
        for (_, pid) in self.processes() {
            let _ = kill(pid, Signal::SIGKILL);
            let _ = ended_within(pid, deadline.saturating_duration_since(Instant::now()));
        }
    }
}
