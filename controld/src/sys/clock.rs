//! Local time for log lines, and time that outlives a process.
#![expect(unsafe_code, reason = "the C library's time zone rules have no safe wrapper in the crates used here")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

use remps_proto::mps::log::LocalTime;

const YEAR_ZERO_OF_TM: i32 = 1900;

/// Time since boot, suspended time included: the same for every daemon on the machine until it starts again.
pub(crate) fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

/// A time in whole milliseconds, as notes have it.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The local time of a moment, by the `TZ` variable and `/etc/localtime` as the C library reads them.
///
/// A moment that the C library cannot express gives zeros.
pub(crate) fn local_time(moment: SystemTime) -> LocalTime {
    let since_epoch = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let Ok(seconds) = libc::time_t::try_from(since_epoch.as_secs()) else { return LocalTime::default() };
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call, and all-zero bytes are a valid `tm` for it to overwrite.
    let filled = unsafe { libc::localtime_r(&raw const seconds, parts.as_mut_ptr()) };
    if filled.is_null() {
        return LocalTime::default();
    }
    // SAFETY: zeroed bytes are a valid `tm`, and the call above filled them.
    let parts = unsafe { parts.assume_init() };
    let number = |value: libc::c_int| u32::try_from(value).unwrap_or(0);
    LocalTime {
        year: number(parts.tm_year.saturating_add(YEAR_ZERO_OF_TM)),
        month: number(parts.tm_mon + 1),
        day: number(parts.tm_mday),
        weekday: number(parts.tm_wday),
        hour: number(parts.tm_hour),
        minute: number(parts.tm_min),
        second: number(parts.tm_sec),
        millisecond: since_epoch.subsec_millis(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_time_is_the_one_that_date_prints() {
        let moment = UNIX_EPOCH + Duration::from_millis(1_795_173_631_488);
        let LocalTime { year, month, day, weekday, hour, minute, second, millisecond } = local_time(moment);
        let output = Command::new("date").args(["-d", "@1795173631", "+%Y-%m-%d %w %H:%M:%S"]).output().unwrap();
        let ours = format!("{year:04}-{month:02}-{day:02} {weekday} {hour:02}:{minute:02}:{second:02}\n");
        assert_eq!(ours, String::from_utf8(output.stdout).unwrap());
        assert_eq!(millisecond, 488);
    }
}
