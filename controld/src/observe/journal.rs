//! The event journal: `events.jsonl` in the log directory, one JSON object a line, appended and never changed.
//!
//! ```text
//! {"seq":17,"time":"2026-11-20T16:23:03.123456Z","event":"client-admitted","process":{"pid":42,…},…}
//! ```
//! `seq` counts this directory's events and goes on when a daemon takes over or starts again, so that a reader who
//! sees a gap knows that something is missing; `time` is UTC. The rest of a line is a
//! [`JournalEvent`](crate::core::JournalEvent). A line has at most [`LINE_LIMIT`] bytes; one that would be longer has
//! its texts and lists cut and says `"cut":true`.
//!
//! The journal is size-capped (the `file` part), and nothing that happens to it stops or blocks the daemon: an event
//! that can't be written is counted, and `control.log` says once that it is so and once that it is over. Its number is
//! used up all the same.
//!
//! | part | is |
//! |---|---|
//! | this file | numbers and times, and what is said about trouble |
//! | `file` | the file, its cap and its recovery |
//! | [`recent`] | the newest events in memory, for `events` |
//! | [`followers`] | who gets events as they come |

mod file;
pub(crate) mod followers;
pub(crate) mod recent;
#[cfg(test)]
mod tests;

use super::log_file;
use crate::report::{LINE_LIMIT, fitted_within};
use file::JournalFile;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Name of the file.
pub(crate) const FILE_NAME: &str = "events.jsonl";

/// The journal of one log directory.
#[derive(Debug)]
pub struct Journal {
    /// `None` when no journal is wanted: events get their numbers and are written nowhere.
    path: Option<PathBuf>,
    cap: u64,
    /// `None` while the file can't be opened.
    file: Option<JournalFile>,
    next: u64,
    /// Events that could not be written since the last that could.
    missed: u64,
    lost: u64,
    /// Why the last event could not be written; `None` when it was.
    trouble: Option<String>,
}

/// An event with its number and time.
#[derive(Debug, Clone, PartialEq)]
pub struct Stamp {
    /// Its number.
    pub seq: u64,
    /// Its time, in RFC 3339 with microseconds.
    pub time: String,
}

impl Stamp {
    /// The journal's line of an event, without a line end.
    #[must_use]
    pub fn line(&self, event: &impl Serialize) -> String {
        let head = format!("{{\"seq\":{},\"time\":\"{}\",", self.seq, self.time);
        let object = fitted_within(event, LINE_LIMIT - head.len());
        // An event is an object with at least its name, so something follows its brace.
        head + object.strip_prefix('{').unwrap_or("}")
    }
}

/// A time as the journal has it: UTC, RFC 3339, with microseconds.
#[must_use]
pub fn timestamp(moment: SystemTime) -> String {
    // The formatter refuses years that no clock shows; such a one is written as the epoch.
    let shown = if moment < SystemTime::UNIX_EPOCH { SystemTime::UNIX_EPOCH } else { moment };
    humantime::format_rfc3339_micros(shown).to_string()
}

impl Journal {
    /// The journal in `directory`, which is made if only its last part is missing, with the newest whole lines that
    /// are there already, oldest first. A file grows to `cap` bytes.
    ///
    /// Always gives a journal; one that can't be written tries again with each event.
    #[must_use]
    pub fn open(directory: &Path, cap: u64) -> (Self, Vec<String>) {
        let path = directory.join(FILE_NAME);
        // The attempt to open the file says what is wrong with the directory.
        let _ = log_file::create_directory(directory);
        let earlier = file::newest_lines(&path);
        let next = earlier.iter().rev().find_map(|line| file::sequence(line)).map_or(1, |last| last.saturating_add(1));
        let file = JournalFile::open(&path, cap).ok();
        (Self { path: Some(path), cap, file, next, missed: 0, lost: 0, trouble: None }, earlier)
    }

    /// No journal: events are numbered, and written nowhere.
    #[must_use]
    pub fn off() -> Self {
        Self { path: None, cap: 0, file: None, next: 1, missed: 0, lost: 0, trouble: None }
    }

    /// Writes an event; gives its number and time, its line, and what `control.log` should say, if anything.
    pub fn append(&mut self, event: &impl Serialize, now: SystemTime) -> (Stamp, String, Option<String>) {
        let stamp = Stamp { seq: self.next, time: timestamp(now) };
        self.next = self.next.saturating_add(1);
        let line = stamp.line(event);
        let written = self.write(&line);
        self.trouble = written.as_ref().err().map(ToString::to_string);
        let remark = match written {
            Ok(()) if self.missed == 0 => None,
            Ok(()) => {
                let missed = std::mem::take(&mut self.missed);
                Some(format!("The event journal can be written again, {missed} events are missing in it"))
            }
            Err(error) => {
                self.lost += 1;
                self.missed += 1;
                (self.missed == 1).then(|| {
                    let path = self.path.as_deref().unwrap_or(Path::new(FILE_NAME)).display();
                    format!("The event journal {path} can't be written: {error}. Events are counted until it can.")
                })
            }
        };
        (stamp, line, remark)
    }

    fn write(&mut self, line: &str) -> std::io::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(JournalFile::open(path, self.cap)?),
        };
        let written = file.append(line.as_bytes());
        if written.is_err() {
            // Somebody may have removed the directory; next time the file is opened by its name again.
            self.file = None;
        }
        written
    }

    /// Opens the file anew by its name with the next event, after someone else has renamed it.
    pub fn reopen(&mut self) {
        self.file = None;
    }

    /// Why events are not kept now, with the file's name; `None` when they are, or when no journal is wanted.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let path = self.path.as_deref()?;
        let is_removed = self.file.as_ref().is_some_and(JournalFile::is_removed);
        let why = self.trouble.as_deref().or(is_removed.then_some(log_file::REMOVED))?;
        Some(format!("{}: {why}", path.display()))
    }

    /// Events that could not be written since the daemon's start.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}
