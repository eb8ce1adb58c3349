//! One client process: started, listened to, told to stop, and gone when it is dropped.
//!
//! The programs say what they do in lines of JSON; each line gets the demonstration's own time when it arrives, so that
//! lines of different processes can be told in order.

use crate::lab::process::{die_with_parent, ended_within};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use serde::Deserialize;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Most bytes of one program's output; they print far less.
const MOST_OUTPUT: u64 = 1 << 20;
/// How long a killed process may take to go.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// What a client program prints; the lines have more than is needed here.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum Said {
    /// It has a context and memory, and a bystander has done a step.
    Ready {
        /// Its pid, which under `run` is not the one that was started.
        pid: i32,
    },
    /// The newcomer has its first allocation.
    Allocated {
        /// Its pid.
        pid: i32,
    },
    /// The bystander goes on.
    Progress {
        /// Steps so far.
        steps: u64,
        /// The longest since the last line, in milliseconds.
        longest_ms: f64,
    },
    /// The kernel is on its way.
    Launched {
        /// The time of day just before, in microseconds.
        at_us: u64,
    },
    /// It has asked for its memory to be kept.
    Committed {
        /// 0 when it is.
        code: i32,
    },
    /// It has asked for what a predecessor left.
    Adopted {
        /// 0 when it has it.
        code: i32,
        /// Whether every byte is the same.
        is_intact: Option<bool>,
        /// How many were compared.
        bytes: Option<u64>,
    },
    /// It was recovered in place.
    Recovered {
        /// Whether every byte is the same.
        is_intact: bool,
        /// How many were compared.
        bytes: u64,
        /// What the library says of it.
        recovery: Option<Recovery>,
    },
    /// It ends by itself.
    End {
        /// Whether its memory was what it should be to the end.
        is_intact: Option<bool>,
    },
    /// A driver call failed, and it ends.
    Error {
        /// The driver's function.
        call: String,
        /// `CUresult`.
        code: u32,
        /// Its name.
        name: String,
    },
    /// It does not understand its arguments.
    Usage {
        /// What it would.
        text: String,
    },
    /// Something that is not needed here.
    #[serde(other)]
    Other,
}

/// What the library says of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(super) struct Recovery {
    /// How long it took, in microseconds.
    pub(super) total_us: u64,
}

/// Something that a process did.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum News {
    /// It printed this.
    Said(Said),
    /// It printed something else.
    Unknown(String),
    /// It is gone: its exit status, or the signal that ended it.
    Gone {
        /// Exit status.
        code: Option<i32>,
        /// Signal.
        signal: Option<i32>,
    },
}

/// News with its time and the number of its process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    /// When it arrived.
    pub(super) at: Instant,
    /// Whose.
    pub(super) actor: usize,
    /// What.
    pub(super) news: News,
}

/// A running client.
#[derive(Debug)]
pub(super) struct Actor {
    /// Its process.
    pub(super) pid: Pid,
    stdin: Option<ChildStdin>,
}

impl Actor {
    /// Starts a program and sends what it does as events of `number`. It ends when the demonstration does, however.
    ///
    /// # Errors
    /// When it can't be started.
    pub(super) fn start(command: &mut Command, number: usize, events_tx: Sender<Event>) -> io::Result<Self> {
        command.current_dir(Path::new("/")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        die_with_parent(command);
        let mut child = command.spawn()?;
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid is a positive i32"));
        let stdin = child.stdin.take();
        std::thread::spawn(move || listen(child, pid, number, &events_tx));
        Ok(Self { pid, stdin })
    }

    /// Tells it a line. One that has ended does not hear it, which its own end tells of.
    pub(super) fn tell(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = writeln!(stdin, "{line}");
        }
    }

    /// Closes its standard input, on which it ends by itself.
    pub(super) fn stop(&mut self) {
        self.stdin = None;
    }

    /// Kills it, if it has not ended.
    pub(super) fn kill(&mut self) {
        if !ended_within(self.pid, Duration::ZERO) {
            // It may have gone in between.
            let _ = kill(self.pid, Signal::SIGKILL);
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.stop();
        self.kill();
        let _ = ended_within(self.pid, KILL_LIMIT);
    }
}

/// Sends every line and, last, the end. The receiver may have gone; then nobody wants to know.
fn listen(mut child: Child, pid: Pid, actor: usize, events_tx: &Sender<Event>) {
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout.take(MOST_OUTPUT)).lines().map_while(Result::ok) {
            let at = Instant::now();
            let news = serde_json::from_str(&line).map_or(News::Unknown(line), News::Said);
            let _ = events_tx.send(Event { at, actor, news });
        }
    }
    // Peeked at first: until it is waited for below the pid cannot become somebody else's.
    let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
    let at = Instant::now();
    let (code, signal) = child.wait().map_or((None, None), |status| (status.code(), status.signal()));
    let _ = events_tx.send(Event { at, actor, news: News::Gone { code, signal } });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> Said {
        serde_json::from_str(line).expect("a line of a program")
    }

    #[test]
    fn lines_of_the_programs_are_understood() {
        assert_eq!(said(r#"{"event":"ready","pid":7,"t_ms":3.1,"first_step_ms":0.4}"#), Said::Ready { pid: 7 });
        assert_eq!(
            said(r#"{"event":"error","pid":7,"t_ms":9.0,"call":"cuInit","code":807,"name":"X","kind":"oob"}"#),
            Said::Error { call: "cuInit".into(), code: 807, name: "X".into() }
        );
        assert_eq!(
            said(r#"{"event":"end","pid":7,"t_ms":9.0,"steps":5,"longest_ms":0.3,"is_intact":true}"#),
            Said::End { is_intact: Some(true) }
        );
        assert_eq!(
            said(r#"{"event":"recovered","is_intact":true,"bytes":9,"recovery":{"total_us":12,"count":1}}"#),
            Said::Recovered { is_intact: true, bytes: 9, recovery: Some(Recovery { total_us: 12 }) }
        );
        assert_eq!(said(r#"{"event":"lost","code":700}"#), Said::Other);
    }
}
