//! Whether the GPU is seen to come forward with the program's work.
//!
//! Behind an illegal access the GPU stands still for some 0.1 s for all of its processes, and a call of the driver's that
//! begins then ends after it, up to milliseconds later than the program's own error. Nothing announces that; but no work of
//! the program's is seen to be done meanwhile.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::super::places::{self, Place};

/// Between two looks.
const MOMENT: Duration = Duration::from_micros(500);

/// What was known of the program's work at the last look.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    given: u64,
}

impl Pulse {
    /// Whether work comes to its end within this time. A program that has given none since the last look and has none on
    /// its way is not waited for: of that nothing is seen.
    pub(crate) fn is_felt(&mut self, within: Duration) -> bool {
        let given = places::given();
        let is_idle = std::mem::replace(&mut self.given, given) == given;
        let used: Vec<&Place> = places::used().map(|(_, place)| place).collect();
        if is_idle && !used.iter().any(|place| place.counts().is_busy()) {
            return false;
        }
        comes_forward(&used, within)
    }
}

/// Whether more work is known to be done within this time.
fn comes_forward(places: &[&Place], within: Duration) -> bool {
    let done = || places.iter().fold(0_u64, |sum, place| sum.wrapping_add(place.counts().known()));
    let (before, deadline) = (done(), Instant::now() + within);
    while Instant::now() < deadline {
        thread::park_timeout(MOMENT);
        if done() != before {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::{Place, comes_forward};

    #[test]
    fn work_that_is_done_is_felt_and_work_that_is_given_is_not() {
        static PLACE: Place = Place::free();
        let counts = PLACE.counts();
        let one = || counts.came_back(counts.give(0), true);
        one();
        assert!(!comes_forward(&[&PLACE], Duration::from_millis(1)));
        thread::scope(|scope| {
            let watched = scope.spawn(|| comes_forward(&[&PLACE], Duration::from_secs(60)));
            while !watched.is_finished() {
                one();
                counts.complete(&counts.settled());
            }
            assert!(watched.join().unwrap());
        });
    }
}
