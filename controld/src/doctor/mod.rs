//! Looks for what is wrong with MPS on this machine: the command `doctor`.
//!
//! It needs no daemon and loads no CUDA. What a feature of ours needs and does not find costs that feature and nothing
//! else, silently as far as programs can tell; here is where an operator learns of it.
//!
//! | part | does |
//! |---|---|
//! | `machine` | the facts a check may use: folders that stand for `/proc`, `/sys` and `/dev`, and what was found out before |
//! | `gather` | finds them out on the real machine, with a deadline on everything that could block |
//! | `checks` | one function a question; each gives one finding, also when all is well |
//! | `report` | a table for people, JSON for programs |
//!
//! A check that cannot know says so in a note; it never guesses. When a daemon runs, its own privileges, limits and
//! namespaces are judged, otherwise those of the call, which a daemon started from there would have.

mod checks;
mod gather;
mod machine;
mod report;
#[cfg(test)]
mod tests;

use checks::CHECKS;

use machine::Machine;
use remps_proto::admin::Form;
use serde::Serialize;
use std::ffi::OsString;

/// Exit status without a problem.
const SOUND: u8 = 0;
/// Exit status with one.
const HAS_PROBLEMS: u8 = 1;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing, or not known.
    Note,
    /// A feature is missing or will be.
    Warning,
    /// MPS does not work, or does harm.
    Problem,
}

/// What a check has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The check's name, which stays the same from release to release.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What is so.
    pub what: String,
    /// What that costs; empty when all is well.
    pub costs: String,
    /// What to do about it; empty when there is nothing to do.
    pub advice: String,
}

/// A finding without the check's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    severity: Severity,
    what: String,
    costs: String,
    advice: String,
}

impl Outcome {
    fn ok(what: impl Into<String>) -> Self {
        Self { severity: Severity::Ok, what: what.into(), costs: String::new(), advice: String::new() }
    }

    fn note(what: impl Into<String>, costs: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { severity: Severity::Note, what: what.into(), costs: costs.into(), advice: advice.into() }
    }

    fn warning(what: impl Into<String>, costs: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::note(what, costs, advice) }
    }

    fn problem(what: impl Into<String>, costs: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { severity: Severity::Problem, ..Self::note(what, costs, advice) }
    }

    fn unknown(why: impl std::fmt::Display) -> Self {
        Self::note(format!("not known: {why}"), "", "")
    }
}

/// Examines this machine; what to print, and the exit status.
#[must_use]
pub(crate) fn run(form: Form, environment: impl Fn(&str) -> Option<OsString> + Copy) -> (String, u8) {
    let findings = examine(&gather::machine(environment));
    let text = match form {
        Form::Json => report::json(&findings),
        Form::Table | Form::Wide => report::table(&findings, form),
    };
    let has_problems = findings.iter().any(|finding| finding.severity == Severity::Problem);
    (text, if has_problems { HAS_PROBLEMS } else { SOUND })
}

/// Every check's finding, in the order of [`CHECKS`].
fn examine(machine: &Machine) -> Vec<Finding> {
    let finding = |(id, examine): &checks::Check| {
        let Outcome { severity, what, costs, advice } = examine(machine);
        Finding { id, severity, what, costs, advice }
    };
    CHECKS.iter().map(finding).collect()
}
