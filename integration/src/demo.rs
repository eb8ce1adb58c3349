//! The demonstration: `cargo run --release -p integration --bin demo [--json] [--simulated|--real] [--svg PATH]`.
//!
//! A short play of what the software does for programs that share a GPU, once with our daemon and once with NVIDIA's or
//! what stands in for it. NVIDIA's driver and servers are used where the machine has them and nobody else needs them, the
//! simulated ones of this repository else. Whatever is printed and drawn is taken from the events of the two runs.
//!
//! ```text
//! options ─▶ folder (programs) ─▶ machine (real or simulated) ─▶ acts, twice ─▶ two stories ─▶ table, promises, JSON
//!                                                                 │                       └─▶ timeline (demo.svg)
//!                     stage: environment; daemon; cast: actors; watch: what daemon and servers write
//! ```
//!
//! The exit status is 0 when every promise that could be tried was kept, 1 when one was broken, 2 when the demonstration
//! could not be run, and 128 and the signal's number when one ended it.

mod actor;
mod acts;
mod cast;
mod daemon;
mod folder;
mod interrupt;
mod log_line;
mod machine;
mod marks;
mod output;
mod part;
mod promises;
mod questions;
#[cfg(test)]
mod sample;
mod stage;
mod story;
mod table;
mod text;
mod timeline;
mod watch;

use machine::Machine;
use promises::Promise;
use serde::Serialize;
use stage::Stage;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use story::{Side, Story};
use table::Row;
use text::{Look, Teller};

const BROKEN: u8 = 1;
const NOT_RUN: u8 = 2;
/// A program that a signal has ended says so by this and the signal's number.
const BY_SIGNAL: u8 = 128;
const USAGE: &str = "\
usage: demo [--json] [--simulated|--real] [--svg PATH]

  --json       print one JSON object on standard output and nothing else
  --simulated  use the simulated driver and servers even where there is a GPU
  --real       use the GPU even where other programs use it, which a fault slows down
  --svg PATH   where the picture goes; else demo.svg in the current folder
";

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    /// Something of the demonstration is not there.
    #[error("{0}")]
    Missing(String),
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
    /// The daemon did not make room for the next one, or that did not come up.
    #[error("a promise is broken: the daemon was not replaced: {0}")]
    Successor(String),
    /// The program that was to fault did nothing.
    #[error("the fault was not injected: the program that was to fault did not launch its kernel in time")]
    NoFault,
    /// A signal has ended the demonstration.
    #[error("ended by signal {0}; everything was cleaned up")]
    Interrupted(i32),
}

impl DemoError {
    fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }

    fn status(&self) -> u8 {
        match self {
            Self::Successor(_) => BROKEN,
            Self::Interrupted(signal) => BY_SIGNAL.saturating_add(u8::try_from(*signal).unwrap_or(0)),
            Self::Missing(_) | Self::System { .. } | Self::Daemon(_) | Self::NoFault => NOT_RUN,
        }
    }
}

/// What the command line asks for.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Options {
    json: bool,
    simulated: bool,
    real: bool,
    help: bool,
    svg: Option<PathBuf>,
}

impl Options {
    /// What is wrong with the arguments, else.
    fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next() {
            match argument.to_str() {
                Some("--json") => options.json = true,
                Some("--simulated") => options.simulated = true,
                Some("--real") => options.real = true,
                Some("--help" | "-h") => options.help = true,
                Some("--svg") => options.svg = Some(arguments.next().ok_or("--svg needs a path")?.into()),
                _ => return Err(format!("unknown option {}", argument.to_string_lossy())),
            }
        }
        if options.simulated && options.real { Err("--simulated or --real".to_owned()) } else { Ok(options) }
    }
}

/// All that there is to say.
#[derive(Debug, Serialize)]
struct Report {
    /// Whether no promise was broken.
    passed: bool,
    table: Vec<Row>,
    promises: Vec<Promise>,
    remps: Story,
    nvidia: Story,
    /// Where the picture is.
    svg: Option<PathBuf>,
}

/// Plays the program that this executable is called, or the demonstration; the module says what the status means.
#[must_use]
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    if let Some(status) = part::play() {
        return status;
    }
    let options = match Options::parse(arguments) {
        Ok(options) if options.help => return show(&mut std::io::stdout(), USAGE, 0),
        Ok(options) => options,
        Err(what) => return show(&mut std::io::stderr(), &format!("demo: {what}\n{USAGE}"), NOT_RUN),
    };
    interrupt::listen();
    let look = output::look();
    match perform(&options, look) {
        Ok(report) => {
            let status = if report.passed { 0 } else { BROKEN };
            let text = if options.json { json(&report) } else { closing(&report, look) };
            show(&mut std::io::stdout(), &text, status)
        }
        Err(error) => show(&mut std::io::stderr(), &format!("demo: {error}\n"), error.status()),
    }
}

fn perform(options: &Options, look: Look) -> Result<Report, DemoError> {
    let folder = folder::Folder::fill()?;
    let mut machine = Machine::find(&folder, options.simulated, options.real)?;
    let say = |text: &str| {
        if !options.json {
            show(&mut std::io::stdout(), text, 0);
        }
    };
    let play = |machine: &Machine, side: Side, name: &str| {
        let setting = machine.setting(side);
        say(&text::heading(side, &setting.words, look));
        let stage = Stage::set(&folder, name, setting)?;
        let mut teller = Teller::new(look);
        let story = acts::play(&stage, side, &mut |event| {
            if let Some(line) = teller.line(event) {
                say(&line);
            }
        });
        say("\n");
        story
    };
    let remps = play(&machine, Side::Remps, "remps")?;
    let mut nvidia = play(&machine, Side::Nvidia, "nvidia");
    if let Err(error) = &nvidia
        && !matches!(error, DemoError::Interrupted(_))
        && machine.has_theirs()
    {
        // What there is to show of ours is not lost with it.
        machine = machine.without_theirs(&error.to_string());
        nvidia = play(&machine, Side::Nvidia, "simulated");
    }
    let nvidia = nvidia?;
    // Whatever is still left of the programs is gone before anything is said.
    drop(folder);
    let promises = promises::promises(&remps, machine.no_proof());
    let passed = promises.iter().all(|promise| promise.kept != Some(false));
    let title = |story: &Story| format!("With {}: {}", story.side.name(), story.setting);
    let picture = timeline::draw(&[(&title(&remps), &remps), (&title(&nvidia), &nvidia)]);
    let svg = output::save(&picture, options.svg.as_deref());
    if let Err(error) = &svg {
        show(&mut std::io::stderr(), &format!("demo: the picture can't be written: {error}\n"), 0);
    }
    Ok(Report { passed, table: table::rows(&nvidia, &remps), promises, remps, nvidia, svg: svg.ok() })
}

fn json(report: &Report) -> String {
    serde_json::to_string(report).expect("plain data") + "\n"
}

/// What comes after the lines of the runs.
fn closing(report: &Report, look: Look) -> String {
    let settings = [report.nvidia.setting.as_str(), report.remps.setting.as_str()];
    let mut text = text::summary(&report.table, &report.promises, settings, look);
    if let Some(path) = &report.svg {
        text += &format!("\nPicture: {}\n", path.display());
    }
    text + if report.passed {
        "Result: every promise that could be tried was kept\n"
    } else {
        "Result: a promise was BROKEN\n"
    }
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
    fn options_are_known_or_refused_by_name() {
        let parse = |words: &[&str]| Options::parse(words.iter().map(OsString::from));
        assert_eq!(parse(&[]), Ok(Options::default()));
        let both = Options { json: true, simulated: true, svg: Some("/tmp/x.svg".into()), ..Options::default() };
        assert_eq!(parse(&["--simulated", "--json", "--svg", "/tmp/x.svg"]), Ok(both));
        assert_eq!(parse(&["--jsn"]), Err("unknown option --jsn".to_owned()));
        assert_eq!(parse(&["--svg"]), Err("--svg needs a path".to_owned()));
        assert!(parse(&["--real", "--simulated"]).is_err());
    }
}
