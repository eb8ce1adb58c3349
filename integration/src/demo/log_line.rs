//! Lines of the daemon and its servers, `[2026-11-20 11:20:31.488 Server   519] text`, as they come out of `-f`.
//!
//! All processes of the demonstration run with `TZ=UTC0`, so that a line's time can be set beside the demonstration's
//! own clock without knowing time zones.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Lines of the daemon about each connection and each command, which say nothing that is not told elsewhere.
const NOISE: [&str; 5] =
    ["Accepting connection...", "User did not send valid credentials", "NEW UI", "Cmd:", "UI closed"];
/// Beginnings of the servers' lines that tell of a server's life.
const SERVER_LINES: [&str; 4] =
    ["Creating server context", "Destroy server context", "Server has started", "Server has been notified"];
/// Beginnings of the servers' lines that tell of a fault; of those that follow some are a device or a pid and no more.
const FAULT_LINES: [&str; 4] = [
    "Server is handling a fatal GPU error.",
    "All clients belonging to error",
    "The following",
    "Server teardown in progress.",
];
/// Parts of the servers' lines that tell of a fault.
const FAULT_PARTS: [&str; 2] = ["encountered a fatal GPU error", "to be torn down"];

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogLine {
    /// Milliseconds since midnight, UTC.
    time_of_day_ms: u64,
    /// `Control`, `Server`, `Other`, …
    pub(super) label: String,
    /// Whose.
    pub(super) pid: u32,
    /// What.
    pub(super) text: String,
}

impl LogLine {
    /// Reads a line; `None` when it has another form.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (head, text) = line.strip_prefix('[')?.split_once("] ")?;
        let mut words = head.split_whitespace();
        let (_date, time) = (words.next()?, words.next()?);
        let words: Vec<&str> = words.collect();
        let (pid, label) = words.split_last()?;
        let (clock, milliseconds) = time.split_once('.')?;
        let seconds = clock.split(':').try_fold(0, |sum: u64, part| Some(sum * 60 + part.parse::<u64>().ok()?))?;
        Some(Self {
            time_of_day_ms: seconds * 1000 + milliseconds.parse::<u64>().ok()?,
            label: label.join(" "),
            pid: pid.parse().ok()?,
            text: text.to_owned(),
        })
    }

    /// Whether the daemon itself says it.
    pub(super) fn is_daemons(&self) -> bool {
        self.label == "Control"
    }

    /// Whether it is worth showing.
    pub(super) fn is_shown(&self) -> bool {
        if self.is_daemons() {
            // Answers to commands are logged without anything before them; those that are numbers tell nothing.
            return !NOISE.iter().any(|noise| self.text.starts_with(noise))
                && self.text.bytes().any(|byte| byte == b' ');
        }
        SERVER_LINES.iter().any(|start| self.text.starts_with(start)) || self.is_about_the_fault()
    }

    /// Who says it, in the timeline.
    pub(super) fn speaker(&self) -> String {
        if self.is_daemons() { "daemon".to_owned() } else { format!("server {}", self.pid) }
    }

    /// Whether a server says it of a fault.
    pub(super) fn is_about_the_fault(&self) -> bool {
        !self.is_daemons()
            && (FAULT_PARTS.iter().any(|part| self.text.contains(part))
                || FAULT_LINES.iter().any(|start| self.text.starts_with(start))
                || self.text.bytes().all(|byte| byte.is_ascii_digit()))
    }

    /// Milliseconds from `start`, which is less than half a day away.
    pub(super) fn since(&self, start: SystemTime) -> f64 {
        let start = start.duration_since(UNIX_EPOCH).unwrap_or_default();
        let start_ms = start.as_secs_f64() * 1e3;
        let day = Duration::from_millis(DAY_MS).as_secs_f64() * 1e3;
        let time = self.time_of_day_ms as f64 - start_ms.rem_euclid(day);
        // Midnight may lie between the two.
        (time + day / 2.0).rem_euclid(day) - day / 2.0
    }

    /// The pid that the server's log calls the culprit.
    pub(super) fn named_culprit(&self) -> Option<i32> {
        self.text.strip_suffix("encountered a fatal GPU error.").and_then(client_pid)
    }

    /// The client process and the server that has taken it.
    pub(super) fn connected(&self) -> Option<(i32, u32)> {
        let client = self.text.strip_suffix(" connected").and_then(client_pid)?;
        (!self.is_daemons()).then_some((client, self.pid))
    }

    /// The pid of a client that the server refuses because it is in its fault state.
    pub(super) fn refused(&self) -> Option<i32> {
        self.text.strip_prefix("Server teardown in progress. Refusing to accept new client").and_then(client_pid)
    }
}

/// The number behind `{PID: `.
fn client_pid(text: &str) -> Option<i32> {
    let (_, rest) = text.split_once("{PID: ")?;
    rest.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> LogLine {
        LogLine::parse(text).expect("a line of the log")
    }

    #[test]
    fn a_line_gives_time_source_and_text() {
        let parsed = line("[2026-11-20 11:20:31.488 Legacy Server   519] Failed to start : invalid argument");
        assert_eq!((parsed.label.as_str(), parsed.pid), ("Legacy Server", 519));
        assert_eq!(parsed.text, "Failed to start : invalid argument");
        let start = UNIX_EPOCH + Duration::from_millis(1_795_173_631_000);
        assert!((parsed.since(start) - 488.0).abs() < 1.0, "{}", parsed.since(start));
        assert_eq!(LogLine::parse("CUDA MPS Control"), None);
        assert_eq!(LogLine::parse("[2026-11-20 11:20 Control x] y"), None);
    }

    #[test]
    fn midnight_may_pass_between_the_start_and_a_line() {
        let before_midnight = UNIX_EPOCH + Duration::from_millis(DAY_MS * 20_000 - 100);
        assert!((line("[2024-10-04 00:00:00.200 Control 1] a b").since(before_midnight) - 300.0).abs() < 1.0);
        let after_midnight = UNIX_EPOCH + Duration::from_millis(DAY_MS * 20_000 + 100);
        assert!((line("[2024-10-03 23:59:59.900 Control 1] a b").since(after_midnight) + 200.0).abs() < 1.0);
    }

    #[test]
    fn the_servers_accusation_and_refusal_name_a_pid() {
        let accused =
            line("[2026-11-20 11:20:31.488 Server   519] Client {PID: 649, Context: 1} encountered a fatal GPU error.");
        assert_eq!(accused.named_culprit(), Some(649));
        let refused = line(
            "[2026-11-20 11:20:31.488 Server   519] Server teardown in progress. Refusing to accept new client {PID: 607, Context ID: 0}",
        );
        assert_eq!((refused.refused(), refused.named_culprit()), (Some(607), None));
        let taken = line("[2026-11-20 11:20:31.488 Server   519] Client {PID: 542, Context ID: 0} connected");
        assert_eq!((taken.connected(), refused.connected()), (Some((542, 519)), None));
    }
}
