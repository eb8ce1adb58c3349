//! Times as JSON has them: milliseconds to the microsecond.

use core::time::Duration;
use serde::Serializer;

pub(super) fn in_milliseconds(time: Duration) -> f64 {
    const MICROSECONDS: f64 = 1e3;
    (time.as_secs_f64() * 1e6).round() / MICROSECONDS
}

pub(super) fn milliseconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(in_milliseconds(*time))
}

pub(super) fn maybe_milliseconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => milliseconds(time, serializer),
        None => serializer.serialize_none(),
    }
}
