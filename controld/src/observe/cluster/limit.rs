//! How many Events a pod may have: a program that faults again and again must not fill the API server's database.
//!
//! The numbers are those of client-go, with which every other component records Events (`defaultSpamBurst` and
//! `defaultSpamQPS` of `tools/record/events_cache.go`): 25 at once of one object, then one in five minutes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const BURST: u32 = 25;
const PAUSE: Duration = Duration::from_secs(300);
/// Pods that are remembered; with more of them whoever has been quiet longest is forgotten.
const MOST_PODS: usize = 1024;

/// Until when each pod's Events are used up; in the past when it was quiet.
#[derive(Debug, Default)]
pub(super) struct Limit(BTreeMap<String, Instant>);

impl Limit {
    /// Whether a pod may have another Event.
    pub(super) fn allows(&mut self, pod: &str, now: Instant) -> bool {
        let until = self.0.get(pod).copied().unwrap_or(now).max(now) + PAUSE;
        if until > now + PAUSE * BURST {
            return false;
        }
        if self.0.len() >= MOST_PODS && !self.0.contains_key(pod) {
            let quietest = self.0.iter().min_by_key(|(_, until)| **until).map(|(pod, _)| pod.clone());
            quietest.and_then(|pod| self.0.remove(&pod));
        }
        self.0.insert(pod.to_owned(), until);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_a_burst_and_then_one_in_five_minutes_and_no_other_pod_pays_for_it() {
        let (mut limit, now) = (Limit::default(), Instant::now());
        assert_eq!((0..100).filter(|_| limit.allows("a", now)).count(), 25);
        assert!(limit.allows("b", now));
        assert!(!limit.allows("a", now + PAUSE - Duration::from_secs(1)));
        assert!(limit.allows("a", now + PAUSE));
        assert!(!limit.allows("a", now + PAUSE));
    }

    #[test]
    fn pods_without_end_take_a_bounded_room() {
        let (mut limit, now) = (Limit::default(), Instant::now());
        assert!((0..10_000).all(|pod| limit.allows(&pod.to_string(), now)));
        assert_eq!(limit.0.len(), MOST_PODS);
    }
}
