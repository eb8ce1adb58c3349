//! How a line of the log is written, and the lines that are the daemon's own.

use super::Format;
use crate::observe::rate::Bucket;
use crate::sys::clock;
use remps_proto::mps::log::{LocalTime, Record, Source};
use serde_json::{Map, Value};
use std::time::SystemTime;

/// One line before it is formatted.
pub(super) struct Line<'a> {
    pub(super) record: &'a Record,
    pub(super) fields: Map<String, Value>,
}

impl Format {
    pub(super) fn line(self, Line { record, mut fields }: Line<'_>) -> String {
        match self {
            Self::Vendor => record.line(),
            Self::Json => {
                let LocalTime { year, month, day, hour, minute, second, millisecond, .. } = record.time;
                let time = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}");
                fields.insert("time".to_owned(), time.into());
                fields.insert("source".to_owned(), record.source.label().into());
                fields.insert("pid".to_owned(), record.pid.into());
                fields.entry("text").or_insert_with(|| String::from_utf8_lossy(&record.text).into());
                Value::Object(fields).to_string()
            }
        }
    }

    pub(super) fn own(self, text: &str) -> String {
        self.line(Line { record: &own_record(std::process::id(), text), fields: Map::new() })
    }

    pub(super) fn suppressed(self, bucket: Bucket, count: u64) -> String {
        self.own(&format!("{count} lines suppressed ({bucket})"))
    }
}

pub(super) fn own_record(pid: u32, text: &str) -> Record {
    Record { source: Source::CONTROL, pid, time: now(), text: text.as_bytes().to_vec() }
}

pub(super) fn now() -> LocalTime {
    clock::local_time(SystemTime::now())
}
