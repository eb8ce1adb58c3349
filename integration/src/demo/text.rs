//! What a reader sees: a line an event while it runs, then the table, then what was promised.

use super::promises::Promise;
use super::story::{Event, Lane, Side, What};
use super::table::{Row, mib, ms};
use std::collections::BTreeMap;

/// Columns of who does something.
const WHO: usize = 16;
/// Below this many columns the table's cells stand below each other.
const NARROW: usize = 66;
/// A table is no wider than this.
const WIDE: usize = 110;
/// Between two columns.
const GAP: usize = 2;

/// How much room there is, and whether colours are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    /// Columns of the terminal; `None` where the output is none.
    pub(super) columns: Option<usize>,
    /// Whether it shows colours.
    pub(super) has_colours: bool,
}

impl Look {
    /// Text in a colour (`31` is red), where there are colours.
    fn paint(self, colour: &str, text: &str) -> String {
        if self.has_colours { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn width(self) -> usize {
        self.columns.unwrap_or(80).clamp(20, WIDE)
    }
}

const RED: &str = "31";
const GREEN: &str = "32";
const BOLD: &str = "1";
const DIM: &str = "2";

/// The heading of a run.
pub(super) fn heading(side: Side, setting: &str, look: Look) -> String {
    wrapped(&format!("With {}: {setting}", side.name()), look.width())
        .iter()
        .map(|line| look.paint(BOLD, line) + "\n")
        .collect()
}

/// Tells of the events of a run as they come.
#[derive(Debug)]
pub(super) struct Teller {
    look: Look,
    /// With what somebody fails again and again, which is told once.
    failed: BTreeMap<Lane, u32>,
}

impl Teller {
    /// Nothing has been told yet.
    pub(super) const fn new(look: Look) -> Self {
        Self { look, failed: BTreeMap::new() }
    }

    /// A line for an event; `None` for one that is told of by the others.
    pub(super) fn line(&mut self, event: &Event) -> Option<String> {
        if let Some(code) = event.what.failed()
            && self.failed.insert(event.lane, code) == Some(code)
        {
            return None;
        }
        if event.what.served().is_some() {
            self.failed.remove(&event.lane);
        }
        line(event, self.look)
    }
}

fn line(event: &Event, look: Look) -> Option<String> {
    if let What::Act { number } = event.what {
        return Some(look.paint(BOLD, &cut(&act(number), look)) + "\n");
    }
    let (colour, text) = words(event)?;
    let line = cut(&format!("{:9.1}  {:WHO$}  {text}", event.ms, event.lane.to_string()), look);
    Some(if colour.is_empty() { line } else { look.paint(colour, &line) } + "\n")
}

/// A line that is longer than the terminal is cut there.
fn cut(line: &str, look: Look) -> String {
    let columns = look.columns.unwrap_or(usize::MAX);
    if line.chars().count() <= columns { line.to_owned() } else { line.chars().take(columns).collect() }
}

fn act(number: u8) -> String {
    let text = match number {
        super::acts::SHARE => "Three programs share a GPU; a fourth asks for a fault domain of its own",
        super::acts::FAULT => "One of the three writes to an address where nothing is mapped",
        super::acts::DEATH => "A program is killed in the middle of a kernel",
        super::acts::KILL => "The daemon is killed",
        super::acts::UPGRADE => "The daemon is upgraded",
        _ => "Everybody ends",
    };
    format!("{number}. {text}")
}

fn words(event: &Event) -> Option<(&'static str, String)> {
    let is_program = !matches!(event.lane, Lane::Daemon | Lane::Server(_));
    Some(match &event.what {
        What::Act { .. } | What::Took { .. } | What::Worked { .. } => return None,
        What::Started { pid } if event.lane == Lane::Daemon => ("", format!("takes connections, pid {pid}")),
        What::Started { .. } if is_program => return None,
        What::Started { .. } => (DIM, "is started".to_owned()),
        What::Ready => ("", "is ready".to_owned()),
        What::Served { pid, after_ms } => ("", format!("pid {pid} has a context and memory after {}", ms(*after_ms))),
        What::Committed { is_kept: true } => ("", "has its memory kept by the daemon".to_owned()),
        What::Committed { is_kept: false } => ("", "finds nobody to keep its memory".to_owned()),
        What::Launched => ("", "has a kernel running".to_owned()),
        What::Faulted => (RED, "launches a kernel that writes to address 0x10".to_owned()),
        What::Verdict { pid, confidence, witness } => {
            let who = pid.map_or_else(|| "nobody".to_owned(), |pid| format!("pid {pid}"));
            (GREEN, format!("names {who}: {confidence}, by {witness}"))
        }
        What::Blamed { pid } => ("", format!("says in its log that pid {pid} did it")),
        What::Failed { call, code, name } => (RED, format!("fails: {call} gives {name} ({code})")),
        What::Recovered { took_ms, bytes, is_intact } => {
            let equal = if *is_intact { "all equal" } else { "NOT all equal" };
            (GREEN, format!("goes on in place after {}; {} compared, {equal}", ms(*took_ms), mib(*bytes)))
        }
        What::Found { bytes: 0, .. } => (RED, "is told that there is nothing of its memory".to_owned()),
        What::Found { bytes, is_intact } => {
            let equal = if *is_intact { "every byte equal" } else { "NOT every byte equal" };
            (GREEN, format!("started again, has its {} back, {equal}", mib(*bytes)))
        }
        What::Killed => (RED, "is killed (SIGKILL)".to_owned()),
        What::Upgraded => ("", "has a new program file, and is told to make room for it".to_owned()),
        What::Ended { is_intact: Some(true) } => ("", "ends well, its memory is intact".to_owned()),
        What::Ended { is_intact: Some(false) } => (RED, "ends, and its memory is not what it should be".to_owned()),
        What::Ended { is_intact: None } if matches!(event.lane, Lane::Newcomer(_)) => return None,
        What::Ended { is_intact: None } => ("", "ends well".to_owned()),
        What::Gone { .. } if is_program => return None,
        What::Gone { .. } => (DIM, "is gone".to_owned()),
    })
}

/// The table and the promises.
pub(super) fn summary(rows: &[Row], promises: &[Promise], settings: [&str; 2], look: Look) -> String {
    let mut text = "\n".to_owned() + &table_text(rows, look) + "\n";
    for (name, setting) in ["NVIDIA's daemon", "ReMPS"].iter().zip(settings) {
        for line in wrapped(&format!("{name}: {setting}."), look.width()) {
            text += &(look.paint(DIM, &line) + "\n");
        }
    }
    text.push('\n');
    for promise in promises {
        let (mark, colour) = match promise.kept {
            Some(true) => ("kept", GREEN),
            Some(false) => ("BROKEN", RED),
            None => ("not tried", DIM),
        };
        let room = look.width().saturating_sub(11).max(20);
        let said = if promise.kept == Some(true) {
            promise.text.to_owned()
        } else {
            format!("{}: {} ({})", promise.name, promise.text, promise.seen)
        };
        for (index, line) in wrapped(&said, room).iter().enumerate() {
            let mark = if index == 0 { mark } else { "" };
            text += &format!("{}  {line}\n", look.paint(colour, &format!("{mark:9}")));
        }
    }
    text
}

fn table_text(rows: &[Row], look: Look) -> String {
    let titles = ["what happened", "with NVIDIA's daemon", "with ReMPS"];
    let width = look.width();
    let mut text = String::new();
    if width < NARROW {
        for Row { what, nvidia, remps } in rows {
            text += &lines(&wrapped(what, width), |line| look.paint(BOLD, line));
            for (title, cell) in titles[1..].iter().zip([nvidia, remps]) {
                text += &lines(&wrapped(&format!("{title}: {cell}"), width - GAP), |line| format!("  {line}"));
            }
        }
        return text;
    }
    let first = (width - 2 * GAP) * 26 / 100;
    let second = (width - 2 * GAP - first) * 42 / 100;
    let widths = [first, second, width - 2 * GAP - first - second];
    let row = |cells: [&str; 3], paint: &dyn Fn(&str) -> String| {
        let cells: Vec<Vec<String>> = cells.iter().zip(widths).map(|(cell, width)| wrapped(cell, width)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or_default();
        let line = |index: usize| {
            let parts: Vec<String> = cells
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{:width$}", cell.get(index).map_or("", String::as_str)))
                .collect();
            paint(parts.join(&" ".repeat(GAP)).trim_end()) + "\n"
        };
        (0..height).map(line).collect::<String>()
    };
    text += &row(titles, &|line| look.paint(BOLD, line));
    text += &("-".repeat(width) + "\n");
    rows.iter().for_each(|Row { what, nvidia, remps }| text += &row([what, nvidia, remps], &str::to_owned));
    text
}

fn lines(lines: &[String], paint: impl Fn(&str) -> String) -> String {
    lines.iter().map(|line| paint(line) + "\n").collect()
}

/// A text in lines of at most so many columns, as far as its words allow.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let cell = |text: &str| text.to_owned();
        vec![Row {
            what: "one makes a memory fault",
            nvidia: cell("its log names another: wrong"),
            remps: cell("names it after 0.7 ms (certain, uvm-event), and the log is as ever"),
        }]
    }

    #[test]
    fn the_table_fits_its_terminal_whatever_the_width() {
        for columns in [20, 40, 65, 66, 80, 110, 200] {
            let look = Look { columns: Some(columns), has_colours: false };
            let text = table_text(&rows(), look);
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
            assert!(widest <= columns, "{columns}: {text}");
            assert!(text.contains("(certain,"), "{text}");
        }
    }

    #[test]
    fn who_fails_again_and_again_is_told_of_once() {
        let mut teller = Teller::new(Look { columns: None, has_colours: false });
        let failed = |code| What::Failed { call: "cuInit".to_owned(), code, name: "X".to_owned() };
        let mut is_told = |what| teller.line(&Event { ms: 1.0, lane: Lane::Newcomer(1), what }).is_some();
        assert_eq!([is_told(failed(807)), is_told(failed(807)), is_told(failed(805))], [true, false, true]);
        assert_eq!([is_told(What::Served { pid: 1, after_ms: 2.0 }), is_told(failed(805))], [true, true]);
    }

    #[test]
    fn colours_are_there_only_where_they_are_wanted() {
        let event = Event { ms: 12.0, lane: Lane::Culprit, what: What::Faulted };
        let plain = line(&event, Look { columns: None, has_colours: false }).expect("it is told");
        assert_eq!(plain, "     12.0  culprit           launches a kernel that writes to address 0x10\n");
        let painted = line(&event, Look { columns: Some(30), has_colours: true }).expect("it is told");
        assert!(painted.starts_with("\u{1b}[31m     12.0") && painted.ends_with("\u{1b}[0m\n"), "{painted:?}");
        assert_eq!(painted.trim_start_matches("\u{1b}[31m").trim_end_matches("\u{1b}[0m\n").chars().count(), 30);
    }
}
