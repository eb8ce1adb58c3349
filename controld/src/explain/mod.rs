//! One page on one fault: the command `explain`.
//!
//! It asks the daemon for what it knows, in JSON, and judges nothing itself: who it was and how sure that is are the
//! verdict's words. What the daemon does not know is said to be unknown.
//!
//! | part | does |
//! |---|---|
//! | `gather` | asks for the verdict, its events, and what became of those whom it concerns |
//! | `timeline` | what happened when, from the first sign on |
//! | `people` | the culprit, the victims and the spared, and what became of each |
//! | `recoveries` | what clients say that going on took them |
//! | `words` | the fault in a sentence, how sure it is, what each witness is worth |
//! | `advice` | what to do next, for whom |
//! | `page`, `svg` | the text and the picture |

mod advice;
mod gather;
mod page;
mod people;
mod recoveries;
mod svg;
#[cfg(test)]
mod tests;
mod timeline;
mod words;

use crate::cli::{ExplainRequest, text};
use gather::Facts;
use remps_proto::admin::Form;
use serde::Serialize;
use serde_json::Value;
use std::io::Write;
use std::path::Path;

/// All that is said of a fault; its JSON is what programs read.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Explanation {
    /// Its number in the fault list.
    fault: u64,
    /// When the verdict was given, in RFC 3339.
    time: String,
    /// What happened, in one sentence.
    summary: String,
    /// How sure the culprit is, and why.
    confidence: String,
    /// What happened when.
    timeline: Vec<timeline::Moment>,
    /// Who says so.
    evidence: Vec<words::Evidence>,
    /// Who was hit, and what became of them.
    processes: Vec<people::Person>,
    /// What going on has taken those who have a library that says it.
    recoveries: Vec<recoveries::Recovery>,
    /// What to do next.
    advice: advice::Advice,
    /// What nobody knows.
    unknown: Vec<String>,
    /// The verdict, as the fault list has it.
    verdict: Value,
}

impl Explanation {
    fn of(facts: &Facts) -> Self {
        let verdict = &facts.verdict;
        Self {
            fault: verdict["number"].as_u64().unwrap_or_default(),
            time: verdict["time"].as_str().unwrap_or_default().to_owned(),
            summary: words::summary(verdict),
            confidence: words::confidence(verdict, facts.corrected_by),
            timeline: timeline::of(facts),
            evidence: words::evidence(verdict),
            processes: people::of(facts),
            recoveries: recoveries::of(facts),
            advice: advice::of(facts),
            unknown: words::unknown(facts),
            verdict: verdict.clone(),
        }
    }
}

/// Explains a fault with the daemon of `pipe_dir`; returns the exit status.
#[must_use]
pub(crate) fn run(pipe_dir: &Path, request: &ExplainRequest) -> u8 {
    // Nobody is left to tell when standard error is closed.
    let failed = |why: &str| {
        let _ = writeln!(std::io::stderr(), "explain: {why}");
        text::FAILURE
    };
    let facts = match Facts::ask(pipe_dir, request.fault) {
        Ok(facts) => facts,
        Err(error) => return failed(&error.to_string()),
    };
    let explanation = Explanation::of(&facts);
    if let Some(path) = &request.svg
        && let Err(error) = std::fs::write(path, svg::draw(&explanation))
    {
        return failed(&format!("{} can't be written: {error}", path.display()));
    }
    let shown = match request.output.form {
        // A line of JSON for people: it has no wire to pass.
        Form::Json => serde_json::to_string_pretty(&explanation).map(|json| json + "\n").unwrap_or_default(),
        Form::Table | Form::Wide => page::text(&explanation, request.output),
    };
    match std::io::stdout().write_all(shown.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            failed(&format!("the page can't be written: {error}"))
        }
        _ => text::SUCCESS,
    }
}
