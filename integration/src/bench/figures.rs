//! What was measured: many values of one thing, and what is said of them.

use serde_json::{Value, json};
use std::time::Duration;

/// So many values and more have a 99th percentile.
const HUNDRED: usize = 100;

/// One thing that was measured, in parts.
#[derive(Debug)]
pub(super) struct Figure {
    /// Its name.
    pub(super) name: &'static str,
    /// What was done.
    pub(super) about: String,
    /// Its parts, each with its unit.
    pub(super) results: Vec<(String, Outcome)>,
}

/// What is known of a part.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Its values.
    Measured(Samples),
    /// Why there are none.
    Skipped(String),
}

impl Figure {
    /// One without parts.
    pub(super) fn new(name: &'static str, about: impl Into<String>) -> Self {
        Self { name, about: about.into(), results: Vec::new() }
    }

    /// The same with one part more.
    pub(super) fn with(mut self, part: impl Into<String>, samples: Samples) -> Self {
        self.results.push((part.into(), Outcome::Measured(samples)));
        self
    }

    /// The same with a part that could not be measured.
    pub(super) fn without(mut self, part: impl Into<String>, reason: impl Into<String>) -> Self {
        self.results.push((part.into(), Outcome::Skipped(reason.into())));
        self
    }
}

/// Values of one thing; at least one.
#[derive(Debug)]
pub(super) struct Samples(Vec<f64>);

impl Samples {
    /// Those that there are.
    ///
    /// # Panics
    /// When there are none.
    pub(super) fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        assert!(!values.is_empty(), "something was measured");
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// Times in milliseconds.
    pub(super) fn milliseconds(times: impl IntoIterator<Item = Duration>) -> Self {
        Self::new(times.into_iter().map(|time| time.as_secs_f64() * 1e3))
    }

    /// How many.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Smallest, median and largest.
    pub(super) fn range(&self) -> [f64; 3] {
        [self.0[0], self.0[self.0.len() / 2], self.0[self.0.len() - 1]]
    }

    /// The value that 99 of 100 do not exceed, where there are so many.
    pub(super) fn p99(&self) -> Option<f64> {
        (self.0.len() >= HUNDRED).then(|| self.0[(self.0.len() * 99).div_ceil(100) - 1])
    }

    /// For the report in JSON.
    pub(super) fn json(&self) -> Value {
        let [min, median, max] = self.range();
        json!({ "n": self.count(), "min": min, "median": median, "p99": self.p99(), "max": max })
    }
}

#[cfg(test)]
mod tests {
    use super::Samples;

    #[test]
    fn a_percentile_is_told_of_a_hundred_values_and_more() {
        let few = Samples::new([3.0, 1.0, 2.0]);
        assert_eq!((few.count(), few.range(), few.p99()), (3, [1.0, 2.0, 3.0], None));
        let many = Samples::new((1..=200).map(f64::from));
        assert_eq!((many.range(), many.p99()), ([1.0, 101.0, 200.0], Some(198.0)));
    }
}
