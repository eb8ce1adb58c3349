//! Counters and histograms with labels, bounded in number.
//!
//! A label's value may be a domain, of which there can be as many as there are cgroups or processes over time. A family
//! that has [`MOST_SERIES`] label sets puts everything new into the series with `(other)` in place of the domain, and of
//! a pod's names.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::borrow::Cow;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The labels of one series.
pub(super) type Labels = Vec<(&'static str, Cow<'static, str>)>;

/// Label sets of one counter.
const MOST_SERIES: usize = 512;
/// Label sets of one histogram, each of which is two dozen series.
const MOST_HISTOGRAMS: usize = 64;
/// The label with so many values.
pub(super) const DOMAIN: &str = "domain";
/// Labels of pods, of which there are as many.
const OF_PODS: [&str; 3] = ["namespace", "pod", "container"];
/// Its value for the domains beyond the bound.
pub(super) const OTHER: &str = "(other)";

/// Upper bounds in seconds: from the fastest verdict, a tenth of a millisecond, to the longest start of a server.
const BUCKETS: [f64; 18] = [
    0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

fn beyond_the_bound(mut labels: Labels) -> Labels {
    for (_, value) in labels.iter_mut().filter(|(name, _)| *name == DOMAIN || OF_PODS.contains(name)) {
        *value = OTHER.into();
    }
    labels
}

/// A counter for each label set.
#[derive(Debug)]
pub(super) struct Counters {
    family: Family<Labels, Counter>,
    known: usize,
}

impl Counters {
    /// `name` is without its prefix and without `_total`.
    pub(super) fn register(registry: &mut Registry, name: &str, help: &str) -> Self {
        let family = Family::default();
        registry.register(name, help, family.clone());
        Self { family, known: 0 }
    }

    pub(super) fn add(&mut self, labels: Labels, count: u64) {
        let mut labels = labels;
        if self.family.get(&labels).is_none() {
            if self.known >= MOST_SERIES {
                labels = beyond_the_bound(labels);
            } else {
                self.known += 1;
            }
        }
        self.family.get_or_create(&labels).inc_by(count);
    }
}

/// A sum of times for each label set, of labels that have few values.
#[derive(Debug)]
pub(super) struct Seconds(Family<Labels, Counter<f64, AtomicU64>>);

impl Seconds {
    /// `name` is without its prefix, its unit and `_total`.
    pub(super) fn register(registry: &mut Registry, name: &str, help: &str) -> Self {
        let family = Family::default();
        registry.register_with_unit(name, help, Unit::Seconds, family.clone());
        Self(family)
    }

    pub(super) fn add(&self, labels: Labels, time: Duration) {
        self.0.get_or_create(&labels).inc_by(time.as_secs_f64());
    }
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

/// A histogram of times for each label set.
#[derive(Debug)]
pub(super) struct Histograms {
    family: Family<Labels, Histogram, fn() -> Histogram>,
    known: usize,
}

impl Histograms {
    /// `name` is without its prefix.
    pub(super) fn register(registry: &mut Registry, name: &str, help: &str) -> Self {
        let family = Family::<Labels, Histogram, fn() -> Histogram>::new_with_constructor(histogram);
        registry.register(name, help, family.clone());
        Self { family, known: 0 }
    }

    pub(super) fn observe(&mut self, labels: Labels, time: Duration) {
        let mut labels = labels;
        if self.family.get(&labels).is_none() {
            if self.known >= MOST_HISTOGRAMS {
                labels = beyond_the_bound(labels);
            } else {
                self.known += 1;
            }
        }
        self.family.get_or_create(&labels).observe(time.as_secs_f64());
    }
}
