//! Text for people: values from outside made harmless, times, and lines that fit a terminal.

use core::fmt::Write as _;
use core::time::Duration;
use remps_proto::admin::Form;

/// What stands for a value that nobody knows or that there is none of.
pub(crate) const NOTHING: &str = "-";

/// How many columns of a terminal a line of a [`Form::Table`] takes at most: what a terminal has that nobody has widened.
pub(crate) const WIDEST: usize = 80;

/// A value, or a dash.
pub(crate) fn or_nothing(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| value.to_string())
}

/// Text from outside on one line of a terminal: control characters, which could move the cursor or forge a line, and
/// those that change the direction of writing are shown by their number.
pub(crate) fn harmless(text: &str) -> String {
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

/// A text in at most so many columns: its beginning and its end, since paths and GPUs differ in their ends.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let end = width / 3;
    let beginning = width.saturating_sub(end + 1);
    text.chars().take(beginning).chain(['…']).chain(text.chars().skip(length - end)).collect()
}

/// A line, in a table as many as fit a terminal: it is broken at blanks, and goes on with `indent` blanks. A word longer
/// than a line is broken where the line ends, so nothing is lost.
pub(crate) fn wrapped(line: &str, indent: usize, form: Form) -> Vec<String> {
    if form != Form::Table || line.chars().count() <= WIDEST {
        return vec![line.to_owned()];
    }
    let mut lines = Vec::new();
    let mut rest: Vec<char> = line.chars().collect();
    while rest.len() > WIDEST {
        // A blank right behind the last column breaks there, too; one within the indent would make no progress.
        let at = (indent + 1..=WIDEST).rev().find(|at| rest[*at] == ' ').unwrap_or(WIDEST);
        let next: String = rest[at..].iter().collect();
        lines.push(rest[..at].iter().collect::<String>().trim_end().to_owned());
        rest = " ".repeat(indent).chars().chain(next.trim_start().chars()).collect();
    }
    lines.push(rest.into_iter().collect());
    lines
}

/// A time of RFC 3339 in UTC for a reader of text. In UTC it has a blank for its `T`; one with it is made local by the
/// program that prints it, which alone knows what that is.
pub(crate) fn moment(time: &str, utc: bool) -> String {
    let time = harmless(time);
    if utc { time.replacen('T', " ", 1) } else { time }
}

/// A time as people say it, in its two largest units.
pub(crate) fn span(time: Duration) -> String {
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
pub(crate) fn mebibytes(bytes: u64) -> String {
    const MEBIBYTE: u64 = 1 << 20;
    format!("{} MiB", bytes.div_ceil(MEBIBYTE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_line_goes_on_below_and_only_in_a_table() {
        let line = format!("GPU {} mode {}", "x".repeat(60), "y".repeat(90));
        let lines = wrapped(&line, 2, Form::Table);
        let whole = format!("GPU {} mode", "x".repeat(60));
        assert_eq!(lines, [whole, format!("  {}", "y".repeat(78)), format!("  {}", "y".repeat(12))]);
        assert_eq!(wrapped(&line, 2, Form::Wide), [line]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_word_is_lost_and_no_line_is_too_long(line in "[a-z ]{0,400}", indent in 0_usize..40) {
            let lines = wrapped(&line, indent, Form::Table);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= WIDEST), "{lines:?}");
            let letters = |text: &str| text.chars().filter(|letter| *letter != ' ').collect::<String>();
            prop_assert_eq!(letters(&lines.concat()), letters(&line));
        }
    }
}
