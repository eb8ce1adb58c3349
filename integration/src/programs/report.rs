//! Lines of JSON on standard output, each with the pid and the time since the program began.

use super::gpu::GpuError;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The report of one program.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    start: Instant,
}

impl Report {
    /// A report that begins now.
    #[must_use]
    pub fn begin() -> Self {
        Self { start: Instant::now() }
    }

    /// When it began.
    #[must_use]
    pub const fn start(self) -> Instant {
        self.start
    }

    /// Writes a line: the event, the pid, `t_ms` and these fields, an object.
    pub fn say(self, event: &str, fields: Value) {
        let mut line = Map::new();
        line.insert("event".into(), json!(event));
        line.insert("pid".into(), json!(std::process::id()));
        line.insert("t_ms".into(), json!(milliseconds(self.start.elapsed())));
        if let Value::Object(fields) = fields {
            line.extend(fields);
        }
        let mut out = std::io::stdout().lock();
        // A reader that has gone has lost interest in this program, not in what it does to the others.
        let _ = writeln!(out, "{}", Value::Object(line));
        let _ = out.flush();
    }

    /// Reports how it went, and gives the exit status.
    pub fn end(self, result: Result<Value, GpuError>, counted: Value) -> ExitCode {
        match result {
            Ok(fields) => {
                self.say("end", fields);
                ExitCode::SUCCESS
            }
            Err(error) => {
                let mut fields = json!({
                    "call": error.call, "code": error.code, "name": error.name, "at_us": time_of_day_us(),
                });
                if let (Value::Object(fields), Value::Object(counted)) = (&mut fields, counted) {
                    fields.extend(counted);
                }
                self.say("error", fields);
                ExitCode::from(error.exit_status())
            }
        }
    }
}

/// Microseconds since 1970, by which lines of several programs are compared.
#[must_use]
pub fn time_of_day_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// Milliseconds with the microseconds behind the point.
#[must_use]
pub fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
