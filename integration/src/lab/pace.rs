//! A steady pace without sleeping through a fact: a timer descriptor that is waited for.

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::time::Duration;

/// A timer that expires again and again.
#[derive(Debug)]
pub struct Pace(TimerFd);

impl Pace {
    /// One that expires this often, for the first time after one period.
    ///
    /// # Panics
    /// When the process is out of descriptors.
    #[must_use]
    pub fn every(period: Duration) -> Self {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC).expect("a descriptor");
        let expiration = Expiration::Interval(TimeSpec::from_duration(period));
        timer.set(expiration, TimerSetTimeFlags::empty()).expect("a sound period");
        Self(timer)
    }

    /// Waits for the next expiration; at once when it has passed already.
    ///
    /// # Panics
    /// Never: a timer can always be read.
    pub fn wait(&mut self) {
        self.0.wait().expect("a timer can be read");
    }
}
