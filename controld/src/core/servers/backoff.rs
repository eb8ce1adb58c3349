//! How long to wait before the next try.

use core::time::Duration;

/// Delays that double from a first one to a largest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    first: Duration,
    largest: Duration,
    tries: u32,
}

impl Backoff {
    /// Delays from `first` to `largest`; a `largest` below `first` counts as `first`.
    pub(crate) fn new(first: Duration, largest: Duration) -> Self {
        Self { first, largest: largest.max(first), tries: 0 }
    }

    /// The delay before the next try.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = 2u32.checked_pow(self.tries).and_then(|factor| self.first.checked_mul(factor));
        self.tries = self.tries.saturating_add(1);
        delay.map_or(self.largest, |delay| delay.min(self.largest))
    }

    /// How many delays were given since the last success.
    pub(crate) fn tries(&self) -> u32 {
        self.tries
    }

    /// Starts anew after a success.
    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_largest_and_start_anew() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
        let delays: Vec<u128> = (0..11).map(|_| backoff.next_delay().as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        (0..100).for_each(|_| assert_eq!(backoff.next_delay(), Duration::from_secs(30)));
        backoff.reset();
        assert_eq!(backoff.next_delay(), Duration::from_millis(100));
    }
}
