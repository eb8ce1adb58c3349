//! How times, sizes and counts stand in the configuration file, for `#[serde(with = …)]`.
//!
//! Times are numbers of seconds, fractions allowed, sizes are in GiB. A key always has a value, so where something can
//! be for ever or without limit, one value of it says so.

use core::time::Duration;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes in a GiB.
const GIB: u64 = 1 << 30;

fn duration<E: Error>(seconds: f64) -> Result<Duration, E> {
    Duration::try_from_secs_f64(seconds).map_err(|_| E::custom(format_args!("{seconds} is no number of seconds")))
}

/// A time.
pub(crate) mod seconds {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        time.as_secs_f64().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        duration(f64::deserialize(from)?)
    }
}

/// A time, of which 0 is for ever.
pub(crate) mod seconds_0_for_ever {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        time.unwrap_or_default().as_secs_f64().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Some(seconds::deserialize(from)?).filter(|time| !time.is_zero()))
    }
}

/// A time, of which `inf` is for ever.
pub(crate) mod seconds_inf_for_ever {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        time.map_or(f64::INFINITY, |time| time.as_secs_f64()).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        match f64::deserialize(from)? {
            f64::INFINITY => Ok(None),
            seconds => duration(seconds).map(Some),
        }
    }
}

/// A number of things, of which 0 is without limit.
pub(crate) mod count_0_unlimited {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(count: &Option<usize>, to: S) -> Result<S::Ok, S::Error> {
        count.unwrap_or_default().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
        Ok(Some(usize::deserialize(from)?).filter(|count| *count != 0))
    }
}

/// A number of bytes, of which 0 is without limit.
pub(crate) mod gib_0_unlimited {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(bytes: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        (bytes.unwrap_or_default() / GIB).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        Ok(Some(u64::deserialize(from)?.saturating_mul(GIB)).filter(|bytes| *bytes != 0))
    }
}
