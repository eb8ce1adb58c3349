//! Text for people: aligned tables, and values from outside made harmless.

use super::Form;
use core::fmt::Write as _;
use core::time::Duration;

/// What stands for a value that nobody knows or that there is none of.
pub(super) const NOTHING: &str = "-";

/// How wide a table may be, in columns of a terminal, unless all of it is asked for.
const WIDEST: usize = 100;
/// Blanks between two columns of a table.
const GAP: usize = 2;
/// The headings of columns that may be cut: texts, and names that are told apart by their ends. Numbers stay whole.
const MAY_BE_CUT: [&str; 7] = ["DOMAIN", "STATE", "COMMAND", "CGROUP", "GPU", "NAME", "KIND"];
/// How wide a column is at least that is cut.
const LEAST: usize = 12;

/// Rows under a heading, in columns as wide as their widest cell, two blanks apart. Where not all is wanted, the widest
/// of the columns that may be cut become narrower until a row has [`WIDEST`] columns.
pub(super) fn aligned(heading: &[&str], rows: &[Vec<String>], form: Form) -> Vec<String> {
    let heading: Vec<String> = heading.iter().map(|&word| word.to_owned()).collect();
    let rows: Vec<&Vec<String>> = std::iter::once(&heading).chain(rows).collect();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let mut widths: Vec<usize> = (0..heading.len()).map(|column| width(column).unwrap_or_default()).collect();
    if form == Form::Narrow {
        narrow(&heading, &mut widths);
    }
    let line = |row: &&Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{:<width$}", shortened(cell, *width)));
        cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Takes what a table has too much from the widest of the columns that may be cut.
fn narrow(heading: &[String], widths: &mut [usize]) {
    let gaps = GAP * widths.len().saturating_sub(1);
    let excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(WIDEST);
    for _ in 0..excess {
        let columns = heading.iter().zip(widths.iter_mut());
        let may_be_cut = columns.filter(|(name, width)| MAY_BE_CUT.contains(&name.as_str()) && **width > LEAST);
        let Some((_, widest)) = may_be_cut.max_by_key(|(_, width)| **width) else {
            return;
        };
        *widest -= 1;
    }
}

/// A text in at most so many columns: its beginning and its end, since paths and GPUs differ in their ends.
fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let end = width / 3;
    let beginning = width.saturating_sub(end + 1);
    text.chars().take(beginning).chain(['…']).chain(text.chars().skip(length - end)).collect()
}

/// A value, or a dash.
pub(super) fn or_nothing(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| value.to_string())
}

/// Text from outside on one line of a terminal: control characters, which could move the cursor or forge a line, and
/// those that change the direction of writing are shown by their number.
pub(super) fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if character.is_control() || turns {
            // Writing into a string does not fail.
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    if shown.is_empty() { NOTHING.to_owned() } else { shown }
}

/// A time as people say it, in its two largest units.
pub(super) fn span(time: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    match time.as_secs() {
        0 => format!("{}ms", time.as_millis()),
        seconds if seconds < MINUTE => format!("{:.1}s", time.as_secs_f64()),
        seconds if seconds < HOUR => format!("{}m{:02}s", seconds / MINUTE, seconds % MINUTE),
        seconds if seconds < DAY => format!("{}h{:02}m", seconds / HOUR, seconds % HOUR / MINUTE),
        seconds => format!("{}d{:02}h", seconds / DAY, seconds % DAY / HOUR),
    }
}

/// Bytes as MiB.
pub(super) fn mebibytes(bytes: u64) -> String {
    const MEBIBYTE: u64 = 1 << 20;
    format!("{} MiB", bytes.div_ceil(MEBIBYTE))
}
