//! Events of the `tracing` crate as lines of the log, with the daemon's own lines in one order.
//!
//! An event becomes `message key=value key=value`; with the JSON format its fields stay apart. Debug events tell of
//! packets and connections, which anybody can cause, so they share the bucket of the daemon's lines about connections.

use std::fmt::{Debug, Write as _};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::ParseLevelFilterError;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};

use super::log::LogSink;
use super::rate::Bucket;

/// The level when `MPS_LOG_LEVEL` is not set.
pub(crate) const DEFAULT_LEVEL: LevelFilter = LevelFilter::INFO;

/// The level that `MPS_LOG_LEVEL` asks for: `off`, `error`, `warn`, `info`, `debug`, `trace`, or a number from 0 to 5.
///
/// # Errors
/// When the text is none of these.
pub(crate) fn level(text: Option<&str>) -> Result<LevelFilter, ParseLevelFilterError> {
    text.map(str::trim).filter(|text| !text.is_empty()).map_or(Ok(DEFAULT_LEVEL), str::parse)
}

/// What to install as the process's subscriber.
pub(crate) fn subscriber(sink: LogSink, level: LevelFilter) -> impl Subscriber + Send + Sync {
    Registry::default().with(SinkLayer { sink }.with_filter(level))
}

/// Writes events into a [`LogSink`].
#[derive(Debug)]
pub(crate) struct SinkLayer {
    sink: LogSink,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SinkLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut line = EventLine::default();
        event.record(&mut line);
        let level = *event.metadata().level();
        let bucket = if level > Level::INFO { Bucket::Chatter } else { Bucket::Control };
        let text = format!("{}{}", line.message, line.pairs);
        line.fields.insert("level".to_owned(), level.as_str().to_ascii_lowercase().into());
        line.fields.insert("text".to_owned(), line.message.into());
        self.sink.event(bucket, &text, line.fields);
    }
}

#[derive(Default)]
struct EventLine {
    message: String,
    pairs: String,
    fields: Map<String, Value>,
}

impl EventLine {
    fn field(&mut self, field: &Field, value: Value, shown: &dyn std::fmt::Display) {
        // Writing into a string does not fail.
        let _ = write!(self.pairs, " {}={shown}", field.name());
        self.fields.insert(field.name().to_owned(), value);
    }
}

impl Visit for EventLine {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let shown = format!("{value:?}");
        if field.name() == "message" {
            self.message = shown;
        } else {
            self.field(field, shown.clone().into(), &shown);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.field(field, value.into(), &value);
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.field(field, value.into(), &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.field(field, value.into(), &value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.field(field, value.into(), &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.field(field, value.into(), &value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut shown = value.to_string();
        let mut cause = value.source();
        while let Some(error) = cause {
            let _ = write!(shown, ": {error}");
            cause = error.source();
        }
        self.field(field, shown.clone().into(), &shown);
    }
}

#[cfg(test)]
mod tests;
