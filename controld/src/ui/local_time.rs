//! Times of answers as the reader's clock shows them.
//!
//! The daemon answers in UTC: it knows neither the reader's `TZ` nor, across containers, his `/etc/localtime`. This
//! program does, so it makes the times local as it prints them. A line of `get_fault_list` has its time as second
//! word, one of `events` as first; no answer of the vendor's commands has one. With `--utc` the daemon writes times in
//! another way (`2026-11-20 12:00:00Z`), which is not touched here.

use crate::sys::clock::local_time;
use remps_proto::admin::{Form, Output, Report};
use remps_proto::mps::log::LocalTime;
use std::time::SystemTime;

/// Whether the answer to a command has times that are to be made local.
pub(super) fn has_times(report: &Report) -> bool {
    match report {
        Report::Faults { output, .. } | Report::FaultEvents { output, .. } | Report::Events { output, .. } => {
            matches!(output, Output { form: Form::Table | Form::Wide, utc: false })
        }
        Report::Client { .. }
        | Report::Channels { .. }
        | Report::Status { .. }
        | Report::Vault { .. }
        | Report::Metrics { .. }
        | Report::Module(_)
        | Report::AtRest(_)
        | Report::Misused { .. } => false,
    }
}

/// An answer with the time of each of its lines made local. What is no time stays as it is.
pub(super) fn localised(answer: Vec<u8>) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(&answer) else { return answer };
    let lines: Vec<String> =
        text.split('\n').map(|line| localised_line(line).unwrap_or_else(|| line.to_owned())).collect();
    lines.join("\n").into_bytes()
}

fn localised_line(line: &str) -> Option<String> {
    let words = line.split(' ').filter(|word| !word.is_empty());
    let word = words.take(2).find(|word| is_time(word))?;
    let local = shown(word)?;
    // The pieces of one line: a word is part of it.
    let at = word.as_ptr() as usize - line.as_ptr() as usize;
    let rest = &line[at + word.len()..];
    // In a table the next column stays where it is.
    let pad = if rest.starts_with("  ") { word.len().saturating_sub(local.len()) } else { 0 };
    Some(format!("{}{local}{}{rest}", &line[..at], " ".repeat(pad)))
}

/// Whether a word is a time as the journal has it, such as `2026-11-20T12:00:00.123456Z`.
fn is_time(word: &str) -> bool {
    let bytes = word.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_digit) && bytes.get(10) == Some(&b'T') && bytes.last() == Some(&b'Z')
}

/// A time of RFC 3339 in UTC as the local clock shows it, `2026-11-20 13:00:00.123456`, with as many digits behind the
/// second as it has; `None` when it is none.
pub(crate) fn shown(time: &str) -> Option<String> {
    let moment: SystemTime = humantime::parse_rfc3339(time).ok()?;
    let LocalTime { year, month, day, hour, minute, second, .. } = local_time(moment);
    let fraction = time.split_once('.').map(|(_, rest)| format!(".{}", rest.trim_end_matches('Z'))).unwrap_or_default();
    Some(format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{fraction}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// What `date` says of the same moment, in the zone of the test.
    fn by_date(time: &str) -> String {
        let output = Command::new("date").args(["-d", time, "+%Y-%m-%d %H:%M:%S"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn a_time_is_the_one_of_the_local_clock_and_columns_stay_where_they_are() {
        let local = by_date("2026-07-20T12:00:00Z");
        let table = "FAULT  TIME\n1      2026-07-20T12:00:00Z  42  x\n";
        assert_eq!(localised(table.into()), format!("FAULT  TIME\n1      {local}   42  x\n").into_bytes());
        let event = "2026-07-20T12:00:00.123456Z verdict text=\"2026-07-20T12:00:00Z\"";
        assert_eq!(
            localised(event.into()),
            format!("{local}.123456 verdict text=\"2026-07-20T12:00:00Z\"").into_bytes()
        );
    }

    #[test]
    fn what_is_no_time_stays_as_it_is() {
        for text in
            ["", "7 8 2026-07-20T12:00:00Z", "2026-07-20 12:00:00Z verdict", "9999999999T99:99:99Z x", "é \u{7f}"]
        {
            assert_eq!(localised(text.into()), text.as_bytes(), "{text}");
        }
        assert_eq!(localised(vec![0xff, b'\n']), [0xff, b'\n']);
    }
}
