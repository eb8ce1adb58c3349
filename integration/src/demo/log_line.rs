//! Lines of `control.log` and `server.log`, `[2026-11-20 11:20:31.488 Server   519] text`, and the times in them.
//!
//! All processes of the demonstration run with `TZ=UTC0`, so that a line's time can be set beside the demonstration's
//! own clock without knowing time zones.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_MS: f64 = 24.0 * 60.0 * 60.0 * 1000.0;
/// Milliseconds from `start` to a time of day, `11:20:31.488` with any number of digits behind the point. The two are
/// less than half a day apart, and midnight may lie between them. `None` when it is no time.
pub(super) fn since(time_of_day: &str, start: SystemTime) -> Option<f64> {
    let mut parts = time_of_day.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let (hours, minutes, seconds): (f64, f64, f64) =
        (hours.parse().ok()?, minutes.parse().ok()?, seconds.parse().ok()?);
    let start_ms = start.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3;
    let time = ((hours * 60.0 + minutes) * 60.0 + seconds) * 1e3 - start_ms.rem_euclid(DAY_MS);
    Some((time + DAY_MS / 2.0).rem_euclid(DAY_MS) - DAY_MS / 2.0)
}

/// A line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LogLine {
    /// Milliseconds since the run began.
    pub(super) ms: f64,
    /// Whose.
    pub(super) pid: i32,
    /// What.
    pub(super) text: String,
}

impl LogLine {
    /// Reads a line; `None` when it has another form.
    pub(super) fn parse(line: &str, start: SystemTime) -> Option<Self> {
        let (head, text) = line.strip_prefix('[')?.split_once("] ")?;
        let mut words = head.split_whitespace();
        let (_date, time) = (words.next()?, words.next()?);
        let pid = words.next_back()?.parse().ok()?;
        Some(Self { ms: since(time, start)?, pid, text: text.to_owned() })
    }

    /// The server that the daemon starts.
    pub(super) fn started_server(&self) -> Option<i32> {
        self.text.strip_prefix("Starting new server ")?.split(' ').next()?.parse().ok()
    }

    /// The server that is ready.
    pub(super) fn ready_server(&self) -> Option<i32> {
        self.text.strip_prefix("NEW SERVER ")?.strip_suffix(": Ready")?.parse().ok()
    }

    /// The pid that the server's log calls the culprit.
    pub(super) fn named_culprit(&self) -> Option<i32> {
        self.text.strip_suffix("encountered a fatal GPU error.").and_then(client_pid)
    }

    /// The client process that the server has taken.
    pub(super) fn taken_client(&self) -> Option<i32> {
        self.text.strip_suffix(", Context ID: 0} connected").and_then(client_pid)
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
    use std::time::Duration;

    fn at(ms: f64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs_f64((DAY_MS * 20_000.0 + ms) / 1e3)
    }

    fn line(text: &str) -> LogLine {
        LogLine::parse(&format!("[2026-11-20 00:00:00.200 Legacy Server   519] {text}"), at(100.0)).expect("a line")
    }

    #[test]
    fn a_line_gives_time_process_and_text() {
        let parsed = line("Failed to start : invalid argument");
        assert!((parsed.ms - 100.0).abs() < 0.01, "{parsed:?}");
        assert_eq!((parsed.pid, parsed.text.as_str()), (519, "Failed to start : invalid argument"));
        assert_eq!(LogLine::parse("CUDA MPS Control", at(0.0)), None);
        assert_eq!(LogLine::parse("[2026-11-20 11:20 Control x] y", at(0.0)), None);
    }

    #[test]
    fn midnight_may_pass_between_the_start_and_a_time() {
        let between = |time, start| since(time, start).expect("a time");
        assert!((between("00:00:00.200", at(-100.0)) - 300.0).abs() < 0.01);
        assert!((between("23:59:59.900000", at(100.0)) + 200.0).abs() < 0.01);
        assert_eq!(since("noon", at(0.0)), None);
    }

    #[test]
    fn lines_tell_of_servers_their_clients_and_whom_they_accuse() {
        let accused = line("Client {PID: 649, Context: 1} encountered a fatal GPU error.");
        assert_eq!((accused.named_culprit(), accused.taken_client()), (Some(649), None));
        assert_eq!(line("Client {PID: 542, Context ID: 0} connected").taken_client(), Some(542));
        assert_eq!(line("Client {PID: 542, Context ID: 1} connected").taken_client(), None, "a context, no process");
        assert_eq!(line("Starting new server 77 for user 0").started_server(), Some(77));
        assert_eq!(line("NEW SERVER 77: Ready").ready_server(), Some(77));
    }
}
