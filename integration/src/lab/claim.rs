//! A claim of Kubernetes' dynamic resources whose daemon has joined the one of the bench (`--join`).

use super::process::Finished;
use super::program::Program;
use super::stage::{CLIENT, Stage};
use super::watch::wait_for;
use super::{LIMIT, lock_holder};
use nix::unistd::{Pid, geteuid};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A claim: the folders of its thin daemon.
pub struct Claim {
    /// Its `CUDA_MPS_PIPE_DIRECTORY`.
    pub pipe: PathBuf,
    /// Its `CUDA_MPS_LOG_DIRECTORY`.
    pub log: PathBuf,
}

impl Claim {
    /// A claim whose folders are there, and no daemon.
    ///
    /// # Panics
    /// When its folders can't be made.
    #[must_use]
    pub fn new(stage: &Stage, name: &str) -> Self {
        let dir = stage.lab().dir().join(name);
        let claim = Self { pipe: dir.join("pipe"), log: dir.join("log") };
        fs::create_dir_all(&claim.pipe)
            .and_then(|()| fs::create_dir_all(&claim.log))
            .expect("the bench's folder is ours");
        claim
    }

    /// A command in its place.
    #[must_use]
    pub fn placed(&self, mut command: Command) -> Command {
        command.env("CUDA_MPS_PIPE_DIRECTORY", &self.pipe).env("CUDA_MPS_LOG_DIRECTORY", &self.log);
        command
    }

    /// The program with these arguments there.
    pub fn run(&self, stage: &Stage, arguments: &[&str], stdin: &str) -> Finished {
        stage.lab().finish(&mut self.placed(stage.lab().command(arguments)), stdin.as_bytes())
    }

    /// Its daemon is started, and joins or does not.
    ///
    /// # Panics
    /// When the path of the bench is no text.
    pub fn try_to_join(&self, stage: &Stage, more: &[&str]) -> Finished {
        let node = stage.pipe_dir().to_str().expect("a path of ours").to_owned();
        self.run(stage, &[&["--join", &node, "-d"], more].concat(), "")
    }

    /// Its daemon joins, and says nothing.
    ///
    /// # Panics
    /// When it does not join.
    pub fn join(&self, stage: &Stage) {
        let done = self.try_to_join(stage, &[]);
        assert_eq!((done.code, done.stdout_text(), done.stderr_text()), (Some(0), String::new(), String::new()));
    }

    /// What a command line in its place is told.
    ///
    /// # Panics
    /// When the command fails.
    pub fn ask(&self, stage: &Stage, line: &str) -> String {
        let done = self.run(stage, &[], line);
        assert_eq!((done.code, done.stderr_text().as_str()), (Some(0), ""), "{line}");
        done.stdout_text()
    }

    /// Why a command fails.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn fails(&self, stage: &Stage, line: &str) -> String {
        let done = self.run(stage, &[], line);
        assert_eq!((done.code, done.stdout_text().as_str()), (Some(1), ""), "{line}");
        done.stderr_text()
    }

    /// A client that is served.
    #[must_use]
    pub fn client(&self, stage: &Stage) -> Program {
        let program = Program::started_as(self.placed(stage.command_as(geteuid().as_raw(), CLIENT, &[])));
        program.expect("attached");
        program
    }

    /// Its thin daemon.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn pid(&self) -> Pid {
        lock_holder(&self.pipe).expect("the thin daemon holds its lock")
    }

    /// Its thin daemon's log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.log.join("control.log")).unwrap_or_default()
    }

    /// Waits for something that has to do with it.
    ///
    /// # Panics
    /// When it takes too long.
    pub fn waits(&self, stage: &Stage, what: &str, fact: impl Fn() -> bool) {
        wait_for(stage.lab().dir(), &self.log, LIMIT, what, fact);
    }

    /// Waits for its thin daemon's end.
    ///
    /// # Panics
    /// When it takes too long.
    pub fn wait_gone(&self, stage: &Stage) {
        self.waits(stage, "the thin daemon's end", || lock_holder(&self.pipe).is_none());
    }

    /// The process ids of its servers.
    #[must_use]
    pub fn servers(&self, stage: &Stage) -> Vec<String> {
        self.ask(stage, "get_server_list").lines().map(str::to_owned).collect()
    }
}
