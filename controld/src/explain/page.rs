//! The page as text: a head, and a section for each question that a reader has after a fault.

use super::Explanation;
use super::people::Person;
use super::timeline::Moment;
use crate::report::table::aligned;
use crate::report::text::{harmless, moment, or_nothing, wrapped};
use crate::ui::local_time;
use remps_proto::admin::{Form, Output};

/// Rows of a section in a table, which is to be one page; all of them are in the other forms.
const MOST_ROWS: usize = 16;
/// Blanks before what a section has.
const INDENT: usize = 2;

/// The page, with a line end behind each line.
pub(super) fn text(explanation: &Explanation, output: Output) -> String {
    let mut page = Page { lines: Vec::new(), form: output.form };
    let time = &explanation.time;
    let local = if output.utc { None } else { local_time::shown(time) };
    let time = local.unwrap_or_else(|| moment(time, output.utc));
    page.lines.push(format!("Fault {}, {time}", explanation.fault));
    page.section("What happened");
    page.paragraph(&explanation.summary);
    page.section("How sure that is");
    page.paragraph(&explanation.confidence);
    page.section("Timeline, from the first sign");
    page.timeline(&explanation.timeline);
    page.evidence(explanation);
    page.people(&explanation.processes);
    page.advice(explanation);
    if !explanation.unknown.is_empty() {
        page.section("Not known");
        explanation.unknown.iter().for_each(|what| page.item(what));
    }
    page.lines.iter().map(|line| format!("{line}\n")).collect()
}

struct Page {
    lines: Vec<String>,
    form: Form,
}

impl Page {
    fn section(&mut self, title: &str) {
        self.lines.extend([String::new(), title.to_owned()]);
    }

    fn paragraph(&mut self, text: &str) {
        self.lines.extend(wrapped(&format!("{:INDENT$}{}", "", harmless(text)), INDENT, self.form));
    }

    fn item(&mut self, text: &str) {
        self.lines.extend(wrapped(&format!("{:INDENT$}- {}", "", harmless(text)), 2 * INDENT, self.form));
    }

    /// As many as fit a page, and how many more there are.
    fn rows<T>(&mut self, rows: &[T], mut row: impl FnMut(&mut Self, &T)) {
        let most = if self.form == Form::Table { MOST_ROWS } else { usize::MAX };
        rows.iter().take(most).for_each(|one| row(self, one));
        if let Some(more) = rows.len().checked_sub(most).filter(|more| *more > 0) {
            self.paragraph(&format!("… and {more} more, which -o wide has"));
        }
    }

    fn timeline(&mut self, moments: &[Moment]) {
        if moments.is_empty() {
            self.paragraph("unknown");
        }
        let times: Vec<String> = moments.iter().map(|moment| after(moment.after_ms)).collect();
        let width = times.iter().map(|time| time.chars().count()).max().unwrap_or_default();
        self.rows(moments, |page, moment| {
            let line = format!("{:INDENT$}{:>width$}  {}", "", after(moment.after_ms), harmless(&moment.what));
            page.lines.extend(wrapped(&line, 2 * INDENT + width, page.form));
        });
    }

    fn evidence(&mut self, explanation: &Explanation) {
        self.section("Who says so");
        if explanation.evidence.is_empty() {
            self.paragraph("unknown");
        }
        self.rows(&explanation.evidence, |page, said| {
            let names = said.names.map_or_else(|| "names nobody".to_owned(), |pid| format!("names {pid}"));
            let when = said.after_ms.map(|ms| format!(", {}", after(ms))).unwrap_or_default();
            let text = if said.text.is_empty() { String::new() } else { format!(": {}", harmless(&said.text)) };
            page.item(&format!("{} ({}) {names}{when}{text}", said.witness, said.worth));
        });
    }

    fn people(&mut self, people: &[Person]) {
        self.section("Who was hit, and what became of them");
        if people.is_empty() {
            self.paragraph("nobody is known");
            return;
        }
        let row = |person: &Person| {
            vec![
                person.part.word().to_owned(),
                person.seen_as.map_or(person.pid.to_string(), |seen_as| format!("{}~{seen_as}", person.pid)),
                or_nothing(person.uid),
                person.now.clone(),
                person.command.as_deref().map_or_else(|| "-".to_owned(), harmless),
            ]
        };
        let most = if self.form == Form::Table { MOST_ROWS } else { usize::MAX };
        let rows: Vec<Vec<String>> = people.iter().take(most).map(row).collect();
        // Not indented, since it takes all columns that there are.
        self.lines.extend(aligned(&["PART", "PID", "UID", "NOW", "COMMAND"], &rows, self.form));
        if let Some(more) = people.len().checked_sub(most).filter(|more| *more > 0) {
            self.paragraph(&format!("… and {more} more, which -o wide has"));
        }
    }

    fn advice(&mut self, explanation: &Explanation) {
        let advice = &explanation.advice;
        let whose = [
            ("What to do: whose program it was", &advice.culprit),
            ("What to do: whose programs were lost with it", &advice.victims),
            ("What to do: the operator", &advice.operator),
        ];
        for (title, sentences) in whose.into_iter().filter(|(_, sentences)| !sentences.is_empty()) {
            self.section(title);
            sentences.iter().for_each(|sentence| self.item(sentence));
        }
    }
}

/// A time since the first sign, in a unit that shows its size.
pub(super) fn after(ms: f64) -> String {
    const SECOND: f64 = 1e3;
    const MINUTE: f64 = 60.0 * SECOND;
    let sign = if ms < 0.0 { '-' } else { '+' };
    match ms.abs() {
        size if size < SECOND => format!("{sign}{size:.1} ms"),
        size if size < MINUTE => format!("{sign}{:.2} s", size / SECOND),
        size => format!("{sign}{:.1} min", size / MINUTE),
    }
}
