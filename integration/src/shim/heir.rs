//! `mps-heir` beside a test: told lines, answering with events.

use crate::lab::LIMIT;
use crate::sim::Sim;
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A running heir.
#[derive(Debug)]
pub struct Heir {
    child: Child,
    input: Option<ChildStdin>,
    // reader thread --lines--> test
    lines_rx: Receiver<Value>,
}

impl Heir {
    /// Starts one of this name on the simulated driver; it is not waited for. `more` are further variables.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn begin(sim: &Sim, name: &str, more: &[(&str, &str)]) -> Self {
        let mut command = super::keeping(sim.command("mps-heir", &[]));
        command.env("MPS_SHIM_NAME", name).envs(more.iter().copied());
        Self::of(command)
    }

    /// Starts one, and waits for its context.
    #[must_use]
    pub fn start(sim: &Sim, name: &str) -> Self {
        let heir = Self::begin(sim, name, &[]);
        let _ready = heir.event("ready");
        heir
    }

    /// Speaks to a program that this command starts.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn of(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = child.stdout.take().expect("standard output is piped");
        // reader thread --lines--> test
        let (lines_tx, lines_rx) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let told = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if lines_tx.send(told).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Self { child, input, lines_rx }
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Waits for its next line; `None` when it has ended, or says nothing.
    #[must_use]
    pub fn line(&self) -> Option<Value> {
        self.lines_rx.recv_timeout(LIMIT).ok()
    }

    /// Waits for its next line, which must be this event.
    ///
    /// # Panics
    /// When it is another one, or none comes.
    #[must_use]
    pub fn event(&self, event: &str) -> Value {
        let line = self.lines_rx.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("no {event}: {error}"));
        assert_eq!(line["event"], event, "{line}");
        line
    }

    /// Tells it something and does not wait.
    ///
    /// # Panics
    /// When it has ended.
    pub fn tell(&mut self, line: &str) {
        assert!(self.hears(line), "it reads its input");
    }

    /// The same for one that may have ended; whether it has not.
    ///
    /// # Panics
    /// When it was told to end.
    pub fn hears(&mut self, line: &str) -> bool {
        writeln!(self.input.as_mut().expect("it was not told to end"), "{line}").is_ok()
    }

    /// Tells it something, and waits for this event.
    #[must_use]
    pub fn does(&mut self, line: &str, event: &str) -> Value {
        self.tell(line);
        self.event(event)
    }

    /// The same where the answer is a code, which must be 0.
    ///
    /// # Panics
    /// When it is not.
    pub fn succeeds(&mut self, line: &str, event: &str) {
        let answer = self.does(line, event);
        assert_eq!(answer["code"], 0, "{line}: {answer}");
    }

    /// `kill -9`; returns when it is gone.
    ///
    /// # Panics
    /// When it lives on.
    pub fn kill_9(mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// Lets it end, and tells how it did.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn ended(mut self) -> ExitStatus {
        drop(self.input.take());
        assert!(crate::lab::process::ended_within(self.pid(), LIMIT), "{} lives on", self.pid());
        self.child.wait().expect("it is our child")
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
