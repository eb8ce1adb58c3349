//! The demonstration: `cargo run --release -p integration --bin demo [--json] [--simulated]`.
//!
//! It starts our daemon in folders of its own, runs three clients, lets one of them fault, lets newcomers arrive at
//! that moment, and prints who was served when, who failed when with which CUDA error, and what everybody said about
//! it. NVIDIA's driver and servers are used where the machine has them, the simulated ones else or with `--simulated`.
//!
//! ```text
//! options ─▶ programs (built) ─▶ machine (real or simulated) ─▶ play ─▶ facts ─▶ verdict ─▶ text or JSON
//!                                                                │
//!                                            stage: folders, daemon; actor: one client process each
//! ```
//!
//! The exit status is 0 when every promise of this release was kept, 1 when one was broken, 2 when the demonstration
//! itself could not be run.

mod actor;
mod cast;
mod facts;
mod log_line;
mod machine;
mod play;
mod programs;
mod stage;
mod text;
mod verdict;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

const BROKEN: u8 = 1;
const NOT_RUN: u8 = 2;
const USAGE: &str = "\
usage: demo [--json] [--simulated]

  --json       print one JSON object on standard output and nothing else
  --simulated  use the simulated driver and server even where there is a GPU
";

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    /// The programs can't be had.
    #[error("the programs can't be built: {0}")]
    Build(String),
    /// Something that must work on any machine does not.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The daemon did not come up.
    #[error("the daemon does not take connections: {0}")]
    Daemon(String),
    /// The client that was to fault did nothing.
    #[error("the fault was not injected: the client that was to fault did not launch its kernel in time")]
    NoFault,
}

impl DemoError {
    fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}

/// What the command line asks for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Options {
    json: bool,
    simulated: bool,
}

impl Options {
    /// `None` when there is an argument that is not known.
    fn parse(arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut options = Self::default();
        for argument in arguments {
            match argument.to_str() {
                Some("--json") => options.json = true,
                Some("--simulated") => options.simulated = true,
                _ => return None,
            }
        }
        Some(options)
    }
}

/// Runs the demonstration and prints it; the module says what the status means.
#[must_use]
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(options) = Options::parse(arguments) else {
        return show(&mut std::io::stderr(), USAGE, NOT_RUN);
    };
    match perform(options) {
        Ok(facts) => {
            let status = if facts.all_kept() { 0 } else { BROKEN };
            let shown = if options.json { facts.to_json() } else { text::render(&facts) };
            show(&mut std::io::stdout(), &shown, status)
        }
        Err(error) => show(&mut std::io::stderr(), &format!("demo: {error}\n"), NOT_RUN),
    }
}

fn perform(options: Options) -> Result<facts::Facts, DemoError> {
    let programs = programs::Programs::ready()?;
    let machine = machine::Machine::find(&programs, options.simulated)?;
    play::perform(&machine, &programs)
}

/// Prints; a closed output leaves nobody to tell.
fn show(output: &mut dyn Write, text: &str, status: u8) -> ExitCode {
    let _ = output.write_all(text.as_bytes());
    let _ = output.flush();
    status.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_known_or_refused() {
        let parse = |words: &[&str]| Options::parse(words.iter().map(OsString::from));
        assert_eq!(parse(&[]), Some(Options::default()));
        assert_eq!(parse(&["--simulated", "--json"]), Some(Options { json: true, simulated: true }));
        assert_eq!(parse(&["--jsn"]), None);
    }
}
