//! The clocks of a recovery: its steps, and the parts of going on with a spare copy.

use super::{Recovery, Step, Switch};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Measures steps.
#[derive(Debug)]
pub(in crate::recovery) struct Clock {
    begin: Instant,
    last: Instant,
}

pub(in crate::recovery) fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Clock {
    pub(in crate::recovery) fn begin(recovery: &mut Recovery) -> Self {
        let begin = Instant::now();
        recovery.at = microseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        Self { begin, last: begin }
    }

    /// The gate opens.
    pub(in crate::recovery) fn stopped(&self, recovery: &mut Recovery) {
        recovery.total = microseconds(self.begin.elapsed());
    }

    /// When it began.
    pub(in crate::recovery) fn begun(&self) -> Instant {
        self.begin
    }

    /// A step has ended.
    pub(in crate::recovery) fn ended(&mut self, step: Step, recovery: &mut Recovery) {
        let now = Instant::now();
        recovery.steps[step as usize] += microseconds(now - self.last);
        recovery.total = microseconds(now - self.begin);
        self.last = now;
    }
}

/// Measures what is done within a step.
#[derive(Debug)]
pub(in crate::recovery) struct Lap(Instant);

impl Lap {
    pub(in crate::recovery) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Another part of it has ended.
    pub(in crate::recovery) fn ended(&mut self, part: Switch, recovery: &mut Recovery) {
        let now = Instant::now();
        recovery.switch[part as usize] += microseconds(now - self.0);
        self.0 = now;
    }
}
