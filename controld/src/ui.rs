//! The user interface: sends commands to a running daemon and prints its answers.
//!
//! It is the vendor's role 4 and talks to the vendor's daemons as well as to ours, at either end of a container's
//! mount. Nothing is written to standard error on success, because there are users that take any text there for a
//! failure. There is no prompt, not even on a terminal, as with the vendor. What the vendor's program does not say, why no
//! daemon was found and what an unknown command was perhaps meant to be, is said where the vendor's is never called so: to
//! a terminal, and of a command that is the program's argument.
//!
//! | where | what |
//! |---|---|
//! | [`mod@connect`] | finds the daemon and greets it |
//! | [`lines`] | cuts standard input into commands |
//! | [`local_time`] | makes the times of answers local |
//! | [`session`] | sends commands and prints answers until the daemon ends the session |

mod connect;
mod lines;
pub(crate) mod local_time;
mod session;
#[cfg(test)]
mod tests;

use crate::cli::text;
use remps_proto::admin::Personality;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Where the commands come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Commands {
    /// Lines of standard input, up to its end.
    Stdin,
    /// One command, for example the program's arguments.
    One(Vec<u8>),
}

/// Whether a daemon of any user answers in a pipe directory, by its greeting; one that does not within 3 s, or within a
/// minute while it holds its lock, does not.
pub(crate) fn finds_a_daemon(pipe_dir: &Path) -> bool {
    connect::connect(pipe_dir, None).is_ok()
}

/// Why a session did not come to its end.
#[derive(Debug, thiserror::Error)]
enum Broken {
    /// Nothing answers as a daemon.
    #[error("no daemon answers: {0}")]
    NotFound(&'static str),
    /// The daemon went away in the middle.
    #[error("the daemon closed the session: {0}")]
    Lost(&'static str),
}

impl Broken {
    /// The vendor's words for it.
    const fn message(&self) -> &'static str {
        match self {
            Self::NotFound(_) => text::CANNOT_FIND,
            Self::Lost(_) => text::CANNOT_SEND,
        }
    }

    /// Where, why, and what to do.
    fn explained(&self, pipe_dir: &Path) -> String {
        let advice = match self {
            Self::NotFound(_) => {
                "; start one with \"nvidia-cuda-mps-control -d\", or set CUDA_MPS_PIPE_DIRECTORY to the folder of the \
                 one that runs"
            }
            Self::Lost(_) => "",
        };
        format!("In {}: {self}{advice}", pipe_dir.display())
    }
}

/// The daemon's words to one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Its lines, each with its line end.
    pub text: String,
    /// The pid, as this process sees it, of the daemon that has answered; 0 when it is in another pid namespace that
    /// can't be seen from here. In the directory of a thin daemon that is the daemon of the node, whose pids answers have.
    pub speaker: u32,
}

/// Why there is no [`Answer`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unanswered {
    /// Nothing answers as a daemon.
    #[error("no daemon answers: {0}")]
    NoDaemon(&'static str),
    /// It did not answer to the end, or not in time.
    #[error("the daemon did not answer: {0}")]
    Broken(&'static str),
}

/// Asks the daemon of `pipe_dir` one thing, for at most `limit`.
///
/// # Errors
/// When nobody answers in time. A command that is refused has an answer: the reason.
pub(crate) fn ask(pipe_dir: &Path, command: &str, limit: Duration) -> Result<Answer, Unanswered> {
    let deadline = Instant::now() + limit;
    let socket = connect::connect(pipe_dir, Some(deadline))?;
    let (mut text, mut reason) = (Vec::new(), Vec::new());
    let mut streams = session::Streams { out: &mut text, err: &mut reason };
    let session = session::Session::new(socket.as_fd(), lines::Lines::one(command.as_bytes()));
    let speaker = session.until(deadline).run_with(&mut streams)?;
    text.append(&mut reason);
    Ok(Answer { text: String::from_utf8_lossy(&text).into_owned(), speaker })
}

impl From<Broken> for Unanswered {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::NotFound(why) => Self::NoDaemon(why),
            Broken::Lost(why) => Self::Broken(why),
        }
    }
}

/// Runs a session with the daemon of `pipe_dir`; returns the program's exit status, which the daemon chooses.
///
/// A `quit` may take as long as the clients take to leave: there is no deadline on an answer, only the daemon's end.
#[must_use]
pub(crate) fn run(pipe_dir: &Path, commands: &Commands, personality: Personality) -> u8 {
    let stdin = io::stdin();
    let explains = matches!(commands, Commands::One(_)) || io::stderr().is_terminal();
    let (mut out, mut err) = (io::stdout().lock(), io::stderr());
    let mut streams = session::Streams { out: &mut out, err: &mut err };
    match session(pipe_dir, commands, stdin.as_fd(), personality, explains, &mut streams) {
        Ok(status) => status,
        Err(broken) => {
            // Nobody is left to tell when standard error is closed too.
            let _ = writeln!(err, "{}", broken.message());
            if explains {
                let _ = writeln!(err, "{}", broken.explained(pipe_dir));
            }
            text::FAILURE
        }
    }
}

fn session(
    pipe_dir: &Path,
    commands: &Commands,
    stdin: std::os::fd::BorrowedFd<'_>,
    personality: Personality,
    helps: bool,
    streams: &mut session::Streams<'_>,
) -> Result<u8, Broken> {
    let socket = connect::connect(pipe_dir, None)?;
    let lines = match commands {
        Commands::Stdin => lines::Lines::reading(stdin, lines::longest(personality)),
        Commands::One(command) => lines::Lines::one(command),
    };
    session::Session::new(socket.as_fd(), lines).helping(helps).localising().run(streams)
}
