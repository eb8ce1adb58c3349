//! How many lines each writer may log: a token bucket for each source, and what went over it counted.
//!
//! Pure: the moment is an argument. Anything a peer can trigger is limited here, because a writer of the log FIFO is any
//! local user; the number of buckets is bounded, and writers over that number share one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Whose lines are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Bucket {
    /// The daemon's own reports of changes.
    Control,
    /// The daemon's lines about single connections, which anybody can cause (`Accepting connection...`).
    Chatter,
    /// A writer of the FIFO, by the pid in its records.
    Writer(u32),
    /// Writers for which there is no bucket of their own.
    OtherWriters,
}

impl std::fmt::Display for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Control => f.write_str("the daemon"),
            Self::Chatter => f.write_str("connections"),
            Self::Writer(pid) => write!(f, "process {pid}"),
            Self::OtherWriters => f.write_str("other processes"),
        }
    }
}

/// Rate and burst of every bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Lines a second in the long run.
    pub per_second: u32,
    /// Lines at once after a quiet time.
    pub burst: u32,
}

impl Default for Rate {
    /// 1,000 lines a second, 5,000 at once: far above what 48 clients cause, far below what fills a disk in a minute.
    fn default() -> Self {
        Self { per_second: 1_000, burst: 5_000 }
    }
}

/// What becomes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is written. So many lines of the bucket were suppressed before it and are to be reported first.
    Write {
        /// Lines suppressed since the last one written.
        suppressed: u64,
    },
    /// It is suppressed and counted.
    Suppress,
}

/// Buckets of the log FIFO's writers that are kept apart.
const MOST_WRITERS: usize = 256;

#[derive(Debug)]
struct State {
    /// Time's worth of lines still allowed, as the moment up to which the bucket is used up; in the past when idle.
    used_until: Instant,
    suppressed: u64,
}

/// All buckets.
#[derive(Debug)]
pub(crate) struct Limiter {
    /// Time that one line uses.
    line: Duration,
    /// Time that the bucket holds.
    capacity: Duration,
    buckets: HashMap<Bucket, State>,
}

impl Limiter {
    /// Buckets of this rate; a rate or burst of zero counts as one.
    pub(crate) fn new(rate: Rate) -> Self {
        let line = Duration::from_secs(1) / rate.per_second.max(1);
        Self { line, capacity: line * rate.burst.max(1), buckets: HashMap::new() }
    }

    /// Decides about one line.
    pub(crate) fn line(&mut self, bucket: Bucket, now: Instant) -> Verdict {
        let bucket = self.bucket_of(bucket, now);
        let state = self.buckets.entry(bucket).or_insert(State { used_until: now, suppressed: 0 });
        let until = state.used_until.max(now) + self.line;
        if until - now > self.capacity {
            state.suppressed += 1;
            return Verdict::Suppress;
        }
        state.used_until = until;
        Verdict::Write { suppressed: std::mem::take(&mut state.suppressed) }
    }

    /// Takes the counts not yet reported, of all buckets.
    pub(crate) fn take_suppressed(&mut self) -> Vec<(Bucket, u64)> {
        let counts = self.buckets.iter_mut().filter(|(_, state)| state.suppressed > 0);
        counts.map(|(bucket, state)| (*bucket, std::mem::take(&mut state.suppressed))).collect()
    }

    /// Whether there are counts not yet reported.
    pub(crate) fn has_suppressed(&self) -> bool {
        self.buckets.values().any(|state| state.suppressed > 0)
    }

    fn bucket_of(&mut self, bucket: Bucket, now: Instant) -> Bucket {
        if !matches!(bucket, Bucket::Writer(_)) || self.buckets.contains_key(&bucket) {
            return bucket;
        }
        if self.buckets.len() >= MOST_WRITERS {
            // A bucket that is full again and owes no report is as good as none.
            self.buckets.retain(|_, state| state.used_until > now || state.suppressed > 0);
        }
        if self.buckets.len() >= MOST_WRITERS { Bucket::OtherWriters } else { bucket }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limiter() -> Limiter {
        Limiter::new(Rate { per_second: 10, burst: 3 })
    }

    const WRITE: Verdict = Verdict::Write { suppressed: 0 };

    #[test]
    fn a_burst_passes_and_the_rest_is_reported_with_the_next_line() {
        let (mut limiter, now) = (limiter(), Instant::now());
        let verdicts: Vec<_> = (0..5).map(|_| limiter.line(Bucket::Control, now)).collect();
        assert_eq!(verdicts, [WRITE, WRITE, WRITE, Verdict::Suppress, Verdict::Suppress]);
        let later = now + Duration::from_millis(100);
        assert_eq!(limiter.line(Bucket::Control, later), Verdict::Write { suppressed: 2 });
        assert_eq!(limiter.line(Bucket::Control, later), Verdict::Suppress);
        assert_eq!(limiter.take_suppressed(), [(Bucket::Control, 1)]);
        assert!(!limiter.has_suppressed());
    }

    #[test]
    fn one_writer_does_not_use_up_anothers_lines() {
        let (mut limiter, now) = (limiter(), Instant::now());
        while limiter.line(Bucket::Writer(1), now) == WRITE {}
        assert_eq!(limiter.line(Bucket::Writer(2), now), WRITE);
        assert_eq!(limiter.line(Bucket::Chatter, now), WRITE);
    }

    #[test]
    fn writers_beyond_the_bound_share_a_bucket_until_others_are_idle() {
        let (mut limiter, now) = (limiter(), Instant::now());
        let count = u32::try_from(MOST_WRITERS).unwrap();
        for pid in 0..count * 2 {
            limiter.line(Bucket::Writer(pid), now);
        }
        assert_eq!(limiter.buckets.len(), MOST_WRITERS + 1);
        assert_eq!(limiter.line(Bucket::Writer(count * 3), now), Verdict::Suppress);
        let later = now + Duration::from_secs(1);
        assert_eq!(limiter.line(Bucket::Writer(count * 3), later), WRITE);
        assert!(limiter.buckets.len() <= 2, "idle buckets are gone");
    }

    proptest! {
        #[test]
        fn never_more_than_burst_and_rate_pass_and_every_other_line_is_counted(
            gaps in prop::collection::vec(0u64..300, 1..200),
        ) {
            let mut limiter = limiter();
            let start = Instant::now();
            let (mut now, mut written, mut reported) = (start, 0, 0);
            for gap in &gaps {
                now += Duration::from_millis(*gap);
                if let Verdict::Write { suppressed } = limiter.line(Bucket::Chatter, now) {
                    written += 1;
                    reported += suppressed;
                }
            }
            reported += limiter.take_suppressed().iter().map(|(_, count)| count).sum::<u64>();
            prop_assert!(u128::from(written) <= 3 + (now - start).as_millis() / 100);
            prop_assert_eq!(written + reported, gaps.len() as u64);
        }
    }
}
