//! `-d`: going into the background as the vendor's daemon does.
//!
//! Two forks and a new session, so that the daemon has no terminal and can never get one; standard input, output and
//! error on `/dev/null`; umask 022; the working directory, the arguments and the environment as they were, because users
//! read them in `/proc`. The process that the user started stays until the daemon says that it is ready, and ends with
//! the message and status that the daemon gives.
//!
//! It must come before any thread, runtime, lock or socket: locks do not pass a fork, and a runtime's descriptors would
//! be shared.
//!
//! ```text
//!  started by the user ── fork ── session leader ── fork ── daemon
//!        │ waits for a report          │ ends at once           │ writes one report
//!        └─ prints it, ends with its status ◄─────── pipe ──────┘
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};

use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use crate::sys::fork::{Side, single_threaded};

const UMASK: u32 = 0o022;
/// Between what is for standard output and what is for standard error; no message has one.
const END_OF_STDOUT: u8 = 0;
/// Longest message that is passed on.
const MAX_MESSAGE: u64 = 64 * 1024;
/// The status when the daemon ended without a word.
const STATUS_UNKNOWN: u8 = 1;

/// What the process that the user started has to say and to end with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The exit status; 0 when the daemon is ready.
    pub status: u8,
    /// For standard output, where the vendor prints that an instance is already running.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
}

/// Which process this is after [`daemonize`].
#[derive(Debug)]
pub enum Process {
    /// The one the user started: print the report and exit with its status.
    Started(Report),
    /// The daemon.
    Daemon(Readiness),
}

/// The daemon's duty to say how its start went. Dropped without a word, the user is told that the start failed.
#[derive(Debug)]
pub struct Readiness {
    pipe: File,
}

impl Readiness {
    /// Says how the start went: the user's command prints this and ends with its status, 0 when the daemon accepts
    /// connections.
    pub fn tell(mut self, report: &Report) {
        let texts = [report.stdout.as_bytes(), &[END_OF_STDOUT], report.stderr.as_bytes()];
        let bytes = [&[report.status], texts.concat().as_slice()].concat();
        // Nobody reads when the user has killed the waiting command; the daemon goes on all the same.
        let _ = self.pipe.write_all(&bytes);
    }
}

/// Goes into the background. Returns in two processes: see [`Process`].
///
/// # Errors
/// When the process has several threads already, or a fork, the pipe, or `/dev/null` fails. The error of a step after
/// the first fork arrives as a [`Report`].
pub fn daemonize() -> io::Result<Process> {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    match single_threaded()? {
        Side::Parent(session_leader) => {
            drop(write);
            // It ends at once; waiting for it leaves no zombie under a parent that waits long.
            let _ = waitid(Id::Pid(session_leader), WaitPidFlag::WEXITED);
            Ok(Process::Started(receive(File::from(read))))
        }
        Side::Child => {
            drop(read);
            let readiness = Readiness { pipe: File::from(write) };
            match enter_session() {
                Ok(Side::Child) => Ok(Process::Daemon(readiness)),
                Ok(Side::Parent(_)) => std::process::exit(0),
                Err(error) => {
                    let stderr = format!("cannot go into the background: {error}");
                    readiness.tell(&Report { status: STATUS_UNKNOWN, stdout: String::new(), stderr });
                    std::process::exit(0)
                }
            }
        }
    }
}

fn enter_session() -> io::Result<Side> {
    nix::unistd::setsid()?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let side = single_threaded()?;
    if side == Side::Child {
        nix::unistd::dup2_stdin(&null)?;
        nix::unistd::dup2_stdout(&null)?;
        nix::unistd::dup2_stderr(&null)?;
        umask(Mode::from_bits_truncate(UMASK));
    }
    Ok(side)
}

fn receive(pipe: File) -> Report {
    let mut bytes = Vec::new();
    // A read error leaves the report incomplete, which is handled as the daemon's silence.
    let _ = pipe.take(MAX_MESSAGE).read_to_end(&mut bytes);
    let [status, texts @ ..] = bytes.as_slice() else {
        let stderr = "the daemon ended before it was ready".to_owned();
        return Report { status: STATUS_UNKNOWN, stdout: String::new(), stderr };
    };
    let mut texts =
        texts.splitn(2, |byte| *byte == END_OF_STDOUT).map(|text| String::from_utf8_lossy(text).into_owned());
    let mut text = || texts.next().unwrap_or_default();
    Report { status: *status, stdout: text(), stderr: text() }
}
