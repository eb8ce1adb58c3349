//! The log: `control.log` and `server.log` in the vendor's line format, or both on standard output with `-f`.
//!
//! Users tail these files into pod logs, so they exist before the daemon says that it is ready, keep their names, and
//! are only ever truncated in place (see [`file`](super::log_file)). Nothing that happens to a log stops or blocks the
//! daemon: a line that cannot be written is counted, and when writing works again one line says how many were lost.
//! Every source has its rate (see [`rate`](super::rate)). A server that somebody has named has a `server.log` in a folder of
//! its own ([`named`]).

mod destination;
mod line;
mod named;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use remps_proto::mps::log::{Record, Source};
use serde_json::{Map, Value};

use super::log_file::LogFile;
use super::log_stream::LogStream;
use super::rate::{Bucket, Limiter, Rate, Verdict};
use destination::{Destination, Output};
use line::{Line, now, own_record};

/// Name of the file of the daemon's lines.
pub const CONTROL_LOG: &str = "control.log";
/// Name of the file of the servers' lines.
pub(crate) const SERVER_LOG: &str = "server.log";
/// Size of a log file at which it is truncated, if nothing else is configured: 64 MiB.
pub(crate) const DEFAULT_FILE_BYTES: u64 = 64 << 20;

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Size at which a file is truncated, in bytes.
    pub file_bytes: u64,
    /// Lines of each source.
    pub rate: Rate,
}

impl Default for Limits {
    fn default() -> Self {
        Self { file_bytes: DEFAULT_FILE_BYTES, rate: Rate::default() }
    }
}

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// `[2026-11-20 11:20:31.488 Server   519] text`, as the vendor has it.
    #[default]
    Vendor,
    /// One JSON object a line (`MPS_LOG_FORMAT=json`): `time` (local), `source`, `pid`, `text`, and the fields of an event.
    Json,
}

/// There will be no log files; the daemon runs on. The text is the vendor's; what a refusal of ours is about, which no
/// error of the kernel tells, stands on a line of its own.
#[derive(Debug, thiserror::Error)]
#[error("Warning: Failed writing log files to directory [{directory}]. No logs will be available.{}", refusal(source))]
pub struct NoLogFiles {
    directory: String,
    source: std::io::Error,
}

fn refusal(error: &std::io::Error) -> String {
    error.get_ref().map(|why| format!("\n{why}")).unwrap_or_default()
}

/// What happened to lines since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogCounters {
    /// Lines written.
    pub written: u64,
    /// Lines over the rate.
    pub suppressed: u64,
    /// Lines that could not be written.
    pub dropped: u64,
    /// Times that a file was truncated.
    pub truncations: u64,
}

#[derive(Debug)]
struct Inner {
    format: Format,
    limiter: Limiter,
    control: Destination,
    /// `None` when the servers' lines go where the daemon's go.
    server: Option<Destination>,
    /// Those of named servers.
    named: BTreeMap<String, Destination>,
    counters: LogCounters,
}

/// Where all lines go. Clones share one log.
#[derive(Debug, Clone)]
pub struct LogSink {
    inner: Arc<Mutex<Inner>>,
}

/// Whose file a line goes to.
#[derive(Debug, Clone, Copy)]
enum Whose<'a> {
    Daemon,
    /// All servers'.
    Servers,
    /// That of a server that somebody has named.
    Named(&'a str),
}

impl LogSink {
    /// Logs into the two files in `directory`, which is made (mode 0700) if only its last part is missing.
    ///
    /// Always gives a sink; when the files cannot be opened it takes lines and drops them, and the second value says
    /// what to print.
    #[must_use]
    pub fn files(directory: &Path, limits: Limits, format: Format) -> (Self, Option<NoLogFiles>) {
        let open = || {
            super::log_file::create_directory(directory)?;
            let control = LogFile::open(&directory.join(CONTROL_LOG), limits.file_bytes)?;
            let server = LogFile::open(&directory.join(SERVER_LOG), limits.file_bytes)?;
            Ok((Output::File(control), Output::File(server)))
        };
        match open() {
            Ok((control, server)) => (Self::new(format, limits.rate, control, Some(server)), None),
            Err(source) => {
                let sink = Self::new(format, limits.rate, Output::Nowhere, None);
                let directory = directory.display().to_string();
                sink.inner.lock().control.trouble = Some(format!("no log files in {directory}: {source}"));
                (sink, Some(NoLogFiles { directory, source }))
            }
        }
    }

    /// Logs everything to standard output (`-f`). A closed one drops all lines; one whose reader is stuck loses lines
    /// and never blocks the daemon.
    #[must_use]
    pub fn stdout(rate: Rate, format: Format) -> Self {
        Self::stream(std::io::stdout(), rate, format)
    }

    /// Logs everything to a descriptor, of which a duplicate is kept.
    #[must_use]
    pub fn stream(fd: impl AsFd, rate: Rate, format: Format) -> Self {
        let output = LogStream::new(fd).map_or(Output::Nowhere, Output::Stream);
        Self::new(format, rate, output, None)
    }

    fn new(format: Format, rate: Rate, control: Output, server: Option<Output>) -> Self {
        let destination = |output| Destination { output, lost: 0, trouble: None };
        let inner = Inner {
            format,
            limiter: Limiter::new(rate),
            control: destination(control),
            server: server.map(destination),
            named: BTreeMap::new(),
            counters: LogCounters::default(),
        };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// A line of the daemon about a change. `pid` stands in the bracket: the daemon's, or that of the server that the
    /// line is about (`Starting new server 519 for user 0`).
    pub fn control(&self, pid: u32, text: &str) {
        self.write(Bucket::Control, None, &own_record(pid, text), Map::new());
    }

    /// A line of the daemon about one connection or command, which anybody can cause.
    pub fn chatter(&self, pid: u32, text: &str) {
        self.write(Bucket::Chatter, None, &own_record(pid, text), Map::new());
    }

    /// A record of the FIFO: to `control.log` if it says that the daemon wrote it, else to `server.log`, that of the named
    /// server whose process has this pid.
    pub fn record(&self, record: &Record, named: Option<&str>) {
        self.write(Bucket::Writer(record.pid), named, record, Map::new());
    }

    /// A line of a server's standard error.
    pub fn server_stderr(&self, pid: u32, named: Option<&str>, text: &[u8]) {
        let record = Record { source: Source::OTHER, pid, time: now(), text: text.to_vec() };
        self.write(Bucket::Writer(pid), named, &record, Map::new());
    }

    /// An event of the daemon with its fields, which only the JSON format keeps apart; `text` has them too.
    pub(super) fn event(&self, bucket: Bucket, text: &str, fields: Map<String, Value>) {
        self.write(bucket, None, &own_record(std::process::id(), text), fields);
    }

    /// Reports lines that were suppressed and not yet reported, as an ending daemon does. Otherwise the report comes with
    /// the next line of the same source.
    pub fn report_suppressed(&self) {
        let mut inner = self.inner.lock();
        for (bucket, count) in inner.limiter.take_suppressed() {
            let whose =
                if matches!(bucket, Bucket::Writer(_) | Bucket::OtherWriters) { Whose::Servers } else { Whose::Daemon };
            let line = inner.format.suppressed(bucket, count);
            inner.append(whose, &line);
        }
    }

    /// Whether [`LogSink::report_suppressed`] has something to report.
    #[must_use]
    pub fn has_suppressed(&self) -> bool {
        self.inner.lock().limiter.has_suppressed()
    }

    /// Opens the files anew by their names, after someone else has renamed them.
    ///
    /// # Errors
    /// When a file cannot be opened; that one is then written on as before.
    pub fn reopen(&self) -> std::io::Result<()> {
        let mut inner = self.inner.lock();
        let Inner { control, server, named, .. } = &mut *inner;
        let mut result = Ok(());
        for destination in std::iter::once(control).chain(server).chain(named.values_mut()) {
            if let Output::File(file) = &mut destination.output {
                result = file.reopen().and(result);
            }
        }
        result
    }

    /// Why lines are not kept now, for each file of which that is so.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        let inner = self.inner.lock();
        inner.destinations().filter_map(Destination::trouble).collect()
    }

    /// What happened to lines.
    #[must_use]
    pub fn counters(&self) -> LogCounters {
        let inner = self.inner.lock();
        let truncations = inner.destinations().map(|destination| match &destination.output {
            Output::File(file) => file.truncations(),
            Output::Stream(_) | Output::Nowhere => 0,
        });
        LogCounters { truncations: truncations.sum(), ..inner.counters }
    }

    fn write(&self, bucket: Bucket, named: Option<&str>, record: &Record, fields: Map<String, Value>) {
        let mut inner = self.inner.lock();
        let whose = match named {
            _ if record.source == Source::CONTROL => Whose::Daemon,
            Some(server) if inner.named.contains_key(server) => Whose::Named(server),
            _ => Whose::Servers,
        };
        match inner.limiter.line(bucket, Instant::now()) {
            Verdict::Suppress => inner.counters.suppressed += 1,
            Verdict::Write { suppressed } => {
                if suppressed > 0 {
                    let report = inner.format.suppressed(bucket, suppressed);
                    inner.append(whose, &report);
                }
                let line = inner.format.line(Line { record, fields });
                inner.append(whose, &line);
            }
        }
    }
}

impl Inner {
    fn destinations(&self) -> impl Iterator<Item = &Destination> {
        std::iter::once(&self.control).chain(&self.server).chain(self.named.values())
    }

    fn append(&mut self, whose: Whose<'_>, line: &str) {
        let Self { format, control, server, named, counters, .. } = self;
        let destination = match whose {
            Whose::Daemon => control,
            Whose::Named(name) => named.get_mut(name).or(server.as_mut()).unwrap_or(control),
            Whose::Servers => server.as_mut().unwrap_or(control),
        };
        let mut bytes = Vec::with_capacity(line.len() + 1);
        if destination.lost > 0 {
            let text = format!("Log writing works again, {} lines were lost", destination.lost);
            bytes.extend_from_slice(format.own(&text).as_bytes());
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
        let result = match &mut destination.output {
            Output::File(file) => file.append(&bytes),
            Output::Stream(stream) => stream.append(&bytes),
            Output::Nowhere => Err(std::io::ErrorKind::NotFound.into()),
        };
        match result {
            Ok(()) => {
                destination.lost = 0;
                destination.trouble = None;
                counters.written += 1;
            }
            Err(error) => {
                destination.lost += 1;
                destination.trouble.get_or_insert_with(|| error.to_string());
                counters.dropped += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
