//! `mps-checker`: does the preloaded library ever give a program a wrong byte?
//!
//! ```text
//! mps-checker [--operations N] [--seconds N] [--seed N] [--jobs N] [--most-found N] [--shrinkings N] [--save FOLDER] [--each N]
//! mps-checker --cases [--times N]
//! mps-checker --case NAME [--times N]
//! mps-checker --program FILE [--times N]
//! mps-checker --waits
//! each with [--devices N] [--faults own|neighbours|both] [--aggressor PROGRAM] [--at-step NAME|any] [--faults-elsewhere N]
//! ```
//! It makes random programs, or takes those that are kept, or one that is given as JSON. With `--waits` it asks the driver when a
//! copy reads its source ([`waits`]), which the plan of a program builds on.
//!
//! A CUDA program is made at random ([`generate`]), as a list of operations of several threads ([`program`]). It is run
//! twice under the library with `MPS_SHIM_REPLAY=in-place` ([`run`]): undisturbed, and with a fault of its own work or of a
//! neighbour's where the list has one. All values that calls have returned as good are compared; [`judge`] has the rule.
//! Since only programs without races have right values, [`plan`] leaves out of any list what would race. A counterexample
//! is made as short as may be ([`shrink`]), printed, and kept: [`cases`] has those of past mistakes, which every run of
//! the tests begins with.
//!
//! The same program runs on the simulated driver, where a neighbour's fault is a word to a kernel of the simulation, and
//! on a GPU, where it is the end of `--aggressor mps-aggressor` under the same daemon. Programs follow each other in a
//! process, so that recoveries do too; each batch is a process of its own.
//!
//! Lines: `batch` for each process, `crash` for one that ends by a signal, with where that was, `counterexample` with the
//! program, `case` for each that is kept, `end` with counts: programs, operations (of disturbed runs), values that were
//! compared, recoveries and how many of them lost nothing or went on with a spare copy,
//! errors that were told, and how often a fault came at which step of a spare copy's making ([`steps`]). Exit status 1 if anything was found, 3 if a program stands still.

mod api;
mod base;
pub(super) use base::KERNELS;
mod cases;
mod elsewhere;
mod fate;
mod generate;
mod graphs;
mod judge;
mod machine;
mod options;
mod plan;
mod program;
mod random;
mod run;
mod search;
mod shrink;
mod steps;
mod waits;
mod worker;
mod wrong;

use super::report::Report;
use options::{Options, USAGE};
use program::Program;
use search::{all_cases, search};
use serde_json::json;
use std::process::ExitCode;
use worker::{asked, batch, one};

const FOUND: u8 = 1;
const STUCK: u8 = 3;

/// The program.
#[must_use]
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = Report::begin();
    let Some(options) = Options::parse(arguments) else {
        report.say("usage", json!({ "text": USAGE }));
        return ExitCode::from(2);
    };
    if let Some(count) = options.batch {
        return batch(report, &options, count);
    }
    if let Some(path) = &options.program {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let Ok(program) = serde_json::from_str::<Program>(&text) else {
            report.say("usage", json!({ "text": format!("{} is no program", path.display()) }));
            return ExitCode::from(2);
        };
        return one(report, &options, &program);
    }
    if let Some(name) = &options.case {
        let Some(case) = cases::all().into_iter().find(|case| case.name == name) else {
            report.say("usage", json!({ "text": format!("no case is called {name:?}") }));
            return ExitCode::from(2);
        };
        return one(report, &options, &case.program);
    }
    if options.has_waits {
        return asked(report, &options);
    }
    if options.has_cases {
        return all_cases(report, &options);
    }
    search(report, &options)
}
