//! Writes records into the daemon's log FIFO.
#![expect(unsafe_code, reason = "localtime_r has no safe wrapper in the libraries at hand")]

use remps_proto::mps::log::{LocalTime, Record, Source};
use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The FIFO, if it could be opened.
#[derive(Debug)]
pub(super) struct Log {
    fifo: Option<File>,
    source: Cell<Source>,
}

impl Log {
    /// Opens `log` in the pipe directory. A server without a log serves all the same.
    pub(super) fn open(directory: &Path) -> Self {
        let fifo = OpenOptions::new().write(true).open(directory.join("log")).ok();
        Self { fifo, source: Cell::new(Source::OTHER) }
    }

    /// From now on records come from an initialised server.
    pub(super) fn is_server(&self) {
        self.source.set(Source::SERVER);
    }

    /// Writes one record; like the real server it waits for a reader that is behind.
    pub(super) fn say(&self, text: impl AsRef<str>) {
        let Some(mut fifo) = self.fifo.as_ref() else { return };
        let record = Record {
            source: self.source.get(),
            pid: std::process::id(),
            time: local_time(SystemTime::now()),
            text: text.as_ref().as_bytes().to_vec(),
        };
        // Without a reader there is nobody to tell.
        let _ = fifo.write_all(&record.encode());
    }
}

/// A time as the header of a record carries it.
pub(crate) fn local_time(time: SystemTime) -> LocalTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = libc::time_t::try_from(since.as_secs()).unwrap_or(libc::time_t::MAX);
    // SAFETY: all fields of `tm` are numbers and a pointer, for which zero is valid.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live objects of the right type.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut tm) };
    let number = |field: libc::c_int| u32::try_from(field).unwrap_or_default();
    LocalTime {
        year: number(tm.tm_year + 1900),
        month: number(tm.tm_mon + 1),
        day: number(tm.tm_mday),
        weekday: number(tm.tm_wday),
        hour: number(tm.tm_hour),
        minute: number(tm.tm_min),
        second: number(tm.tm_sec),
        millisecond: since.subsec_millis(),
    }
}
