//! Findings as text and as JSON.

use super::{Finding, Severity};
use crate::report::text::WIDEST;
use remps_proto::admin::Form;
use serde_json::json;
use std::fmt::Write as _;

/// Room for the longest severity.
const SEVERITY_WIDTH: usize = 8;

impl Severity {
    /// Its word.
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "PROBLEM",
        }
    }
}

fn count(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.severity == severity).count()
}

/// A table, with what to do under what needs doing, and a line that sums up.
///
/// Where the text of a finding begins is decided by the longest name; in a table it ends with a terminal's line.
pub(super) fn table(findings: &[Finding], form: Form) -> String {
    let width = if form == Form::Wide { usize::MAX } else { WIDEST };
    let name_width = findings.iter().map(|finding| finding.id.len()).max().unwrap_or(0) + 2;
    let indent = SEVERITY_WIDTH + name_width;
    let mut text = String::new();
    for Finding { id, severity, what, costs, advice } in findings {
        let head = format!("{:<SEVERITY_WIDTH$}{id:<name_width$}", severity.word());
        text.push_str(&wrapped(&head, indent, what, width));
        for (word, rest) in [("costs: ", costs), ("do:    ", advice)].into_iter().filter(|(_, rest)| !rest.is_empty()) {
            text.push_str(&wrapped(&format!("{:indent$}{word}", ""), indent + word.len(), rest, width));
        }
    }
    let [problems, warnings, notes, sound] =
        [Severity::Problem, Severity::Warning, Severity::Note, Severity::Ok].map(|severity| count(findings, severity));
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let (problems, warnings, notes) = (plural(problems, "problem"), plural(warnings, "warning"), plural(notes, "note"));
    writeln!(text, "\n{problems}, {warnings}, {notes}, {sound} ok").expect("a String takes every text");
    text
}

/// The words of `text` behind `head`, in lines that begin at `indent`. A control character in them is shown as `?`, so
/// that a file's name cannot write on the terminal.
fn wrapped(head: &str, indent: usize, text: &str, width: usize) -> String {
    let mut lines = head.to_owned();
    let mut column = indent;
    // A word that is longer than a line, as a path may be, goes on in the next one.
    let room = width.saturating_sub(indent).max(1);
    let words = text.split_whitespace().flat_map(|word| {
        let word: Vec<char> = word.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        word.chunks(room).map(String::from_iter).collect::<Vec<String>>()
    });
    for (index, word) in words.enumerate() {
        let length = word.chars().count();
        if index > 0 && column + 1 + length > width {
            write!(lines, "\n{:indent$}", "").expect("a String takes every text");
            column = indent;
        } else if index > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(&word);
        column += length;
    }
    lines.push('\n');
    lines
}

/// `{"problems": 1, "warnings": 0, "notes": 2, "findings": […]}`.
pub(super) fn json(findings: &[Finding]) -> String {
    let report = json!({
        "problems": count(findings, Severity::Problem),
        "warnings": count(findings, Severity::Warning),
        "notes": count(findings, Severity::Note),
        "findings": findings,
    });
    let mut text = serde_json::to_string_pretty(&report).expect("plain data");
    text.push('\n');
    text
}
