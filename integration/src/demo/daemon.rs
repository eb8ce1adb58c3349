//! The daemon of one run: started, killed, upgraded, ended.

use super::DemoError;
use super::machine::Control;
use super::part;
use super::stage::{COMMAND_LIMIT, Stage};
use super::story::End;
use crate::lab::client::can_connect;
use crate::lab::lock_holder;
use crate::lab::process::{die_with_parent, ended_within, run};
use crate::lab::watch::became_true;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use remps_controld::parts::patience::patient;
use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

/// How long the daemon may take to listen; with a cold driver it waits for the GPU.
const START_LIMIT: Duration = Duration::from_secs(20);
/// How long a daemon that was killed or told to make room may take to be gone.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Lines of its log that are shown of a daemon that does not start.
const LAST_LINES: usize = 5;

/// A running daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    /// Its pid.
    pub(super) pid: Pid,
    /// The process where it is a child of ours; the others are their own sessions.
    child: Option<Child>,
}

impl Daemon {
    /// Starts it and waits until it takes connections.
    pub(super) fn start(stage: &Stage) -> Result<Self, DemoError> {
        let mut command = stage.daemon();
        let mut child = None;
        if stage.setting().control == Control::Simulated {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            die_with_parent(&mut command);
            child = Some(command.spawn().map_err(DemoError::system("start the daemon"))?);
        } else {
            let started = run(command.arg("-d"), b"", patient(START_LIMIT));
            let started = started.map_err(DemoError::system("start the daemon"))?;
            if started.code != Some(0) {
                let status =
                    started.code.map_or_else(|| "by a signal".to_owned(), |code| format!("with status {code}"));
                let said = started.stdout_text() + &started.stderr_text();
                let said = said.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
                return Err(DemoError::Daemon(format!("it ends {status}{said}")));
            }
        }
        let pipe_dir = stage.pipe_dir();
        let listens = || can_connect(&pipe_dir) && lock_holder(&pipe_dir).is_some();
        // The vendor's tests its lock in a child of its own meanwhile: asked for again when it listens.
        let is_up = became_true(stage.root(), &pipe_dir, patient(START_LIMIT), listens);
        match lock_holder(&pipe_dir).filter(|_| is_up) {
            Some(pid) => Ok(Self { pid, child }),
            None => Err(DemoError::Daemon(last_lines(stage))),
        }
    }

    /// `kill -9`; returns when it is gone.
    pub(super) fn kill(mut self) -> bool {
        self.end_by(Signal::SIGKILL)
    }

    /// Puts a fresh copy of the program in its place and tells the daemon to make room for it; whether it has.
    pub(super) fn make_room(mut self, stage: &Stage) -> Result<bool, DemoError> {
        stage.folder().renew(part::CONTROL)?;
        Ok(self.end_by(Signal::SIGUSR1))
    }

    fn end_by(&mut self, signal: Signal) -> bool {
        // One that is gone already is seen to be.
        let _ = kill(self.pid, signal);
        let is_gone = ended_within(self.pid, patient(END_LIMIT));
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
        is_gone
    }

    /// Tells it to quit, and looks what is left.
    pub(super) fn quit(self, stage: &Stage) -> End {
        let status = stage.ask("quit\n").ok().and_then(|finished| finished.code);
        let _ = ended_within(self.pid, COMMAND_LIMIT);
        // Processes first: one that is still ending still has its files.
        let processes_left = stage.processes_left();
        End { status, files_left: stage.files(), processes_left }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn last_lines(stage: &Stage) -> String {
    let log = fs::read_to_string(stage.log_dir().join("control.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().rev().take(LAST_LINES).collect();
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    if lines.is_empty() { "it says nothing".to_owned() } else { lines.join("\n") }
}
