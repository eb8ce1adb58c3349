//! The benchmark: `cargo run --release -p integration --bin bench [-- --report DIR]`.
//!
//! What is a rate or a latency is measured here and promised nowhere: a test that judged it would fail because a machine
//! is slow. It needs no GPU, runs our daemon with the simulated server, and takes about a minute.
//!
//! ```text
//! programs (beside this one) ─▶ daemon, clients, holder, library ─▶ figures ─▶ report: Markdown, and JSON with --report
//! ```
//!
//! The exit status is 0 however slow everything was, 1 when something does not work, 2 for a wrong option.

mod clients;
mod daemon;
mod figures;
mod holder;
mod library;
mod programs;
mod report;

use figures::Figure;
use programs::Programs;
use remps_controld::parts::holder::{ARGUMENT, process};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: bench [--report DIR]

  --report DIR  write DATE-host.json and DATE-host.md there too
";

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// A program is not there.
    #[error("{0} is missing: build it with `{1}`")]
    Missing(PathBuf, &'static str),
    /// Something that must work on any machine does not.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A part of ours has answered wrongly.
    #[error("{0}")]
    Wrong(String),
}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> BenchError {
    let what = what.into();
    |source| BenchError::System { what, source }
}

/// The program.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().skip(1).collect();
    let report_dir = match arguments.as_slice() {
        // As in the product, whoever attaches to a holder that is not there starts its own program as one.
        [option, dir] if option == ARGUMENT => return process::run(Path::new(dir)),
        [] => None,
        [option, dir] if option == "--report" => Some(PathBuf::from(dir)),
        _ => {
            let _ = io::stderr().write_all(USAGE.as_bytes());
            return ExitCode::from(2);
        }
    };
    // The bench's helpers panic where a part does not work.
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tell(info);
        std::process::exit(1);
    }));
    match measure().and_then(|figures| report::write(&figures, report_dir.as_deref())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures one part.
type Part = fn(&Programs) -> Result<Vec<Figure>, BenchError>;

fn measure() -> Result<Vec<Figure>, BenchError> {
    let programs = Programs::find()?;
    let parts: [(&str, Part); 4] = [
        ("daemon", daemon::measure),
        ("clients", clients::measure),
        ("holder", holder::measure),
        ("library", library::measure),
    ];
    let mut figures = Vec::new();
    for (name, part) in parts {
        let _ = writeln!(io::stderr(), "bench: {name}");
        figures.extend(part(&programs)?);
    }
    Ok(figures)
}
