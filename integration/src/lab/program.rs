//! A client program beside the test: told what to do by lines, answering with lines, each with a deadline.

use super::LIMIT;
use super::stage::{CLIENT, Stage, VAULT_CLIENT};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A running client program.
#[derive(Debug)]
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    // reader thread --lines--> test
    lines_rx: Receiver<String>,
}

impl Program {
    /// Starts a client of this user; it begins to attach at once.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn start(stage: &Stage, uid: u32) -> Self {
        Self::of(stage, uid, CLIENT)
    }

    /// Starts a program of this user that has memory to keep.
    #[must_use]
    pub fn with_memory(stage: &Stage, uid: u32) -> Self {
        let program = Self::of(stage, uid, VAULT_CLIENT);
        program.expect("attached");
        program
    }

    fn of(stage: &Stage, uid: u32, program: &str) -> Self {
        Self::started_as(stage.command_as(uid, program, &[]))
    }

    /// Starts a program of this kind by a command of the test's own.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn started_as(mut command: std::process::Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = child.stdout.take().expect("standard output is piped");
        // reader thread --lines--> test
        let (lines_tx, lines_rx) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if lines_tx.send(line).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Self { child, input, lines_rx }
    }

    /// Starts a client and waits until it is served.
    #[must_use]
    pub fn attached(stage: &Stage, uid: u32) -> Self {
        let program = Self::start(stage, uid);
        program.expect("attached");
        program
    }

    /// Whether it comes to be served; `false` when it ends instead.
    ///
    /// # Panics
    /// When it does neither.
    #[must_use]
    pub fn is_served(&self) -> bool {
        match self.lines_rx.recv_timeout(LIMIT) {
            Ok(line) => line == "attached",
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => panic!("client {} is neither served nor sent away", self.pid()),
        }
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// The next line if it comes within `limit`.
    ///
    /// # Panics
    /// When the program has ended.
    #[must_use]
    pub fn line_within(&self, limit: Duration) -> Option<String> {
        match self.lines_rx.recv_timeout(limit) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("client {} has ended", self.pid()),
        }
    }

    /// Waits for this line.
    ///
    /// # Panics
    /// When another one comes, or none.
    pub fn expect(&self, line: &str) {
        assert_eq!(self.line_within(LIMIT).as_deref(), Some(line), "client {}", self.pid());
    }

    /// Tells it something and waits for the answer.
    ///
    /// # Panics
    /// When the answer is another one, or none.
    pub fn does(&mut self, line: &str, answer: &str) {
        let input = self.input.as_mut().expect("it was not told to leave");
        writeln!(input, "{line}").expect("it reads its input");
        self.expect(answer);
    }

    /// Tells it something and does not wait.
    ///
    /// # Panics
    /// When it has ended.
    pub fn begins(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it was not told to leave");
        writeln!(input, "{line}").expect("it reads its input");
    }

    /// `kill -9`; returns when it is gone.
    ///
    /// # Panics
    /// When it lives on.
    pub fn kill_9(mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// Uses all its connections.
    ///
    /// # Panics
    /// When one does not work.
    pub fn ping(&mut self) {
        self.does("ping", "pong");
    }

    /// One that comes, is served and ends by itself: dropped instead it would be killed, and its server replaced.
    ///
    /// # Panics
    /// When one of these fails.
    pub fn visits(stage: &Stage, uid: u32) {
        let mut visitor = Self::attached(stage, uid);
        visitor.ping();
        visitor.leave();
    }

    /// Lets it end by itself.
    ///
    /// # Panics
    /// When it fails.
    pub fn leave(mut self) {
        drop(self.input.take());
        assert!(super::process::ended_within(self.pid(), LIMIT), "client {} lives on", self.pid());
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "client {}: {status}, {:?}", self.pid(), self.lines_rx.try_recv());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
