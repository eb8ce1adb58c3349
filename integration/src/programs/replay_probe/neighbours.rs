//! A fault of a neighbour, from before it until the program is right again.

use super::last::{self, Recovery};
use super::{Probe, count, failed, observed};
use crate::programs::gpu::GpuError;
use crate::programs::replay_probe::slabs::Slabs;
use serde_json::json;
use std::time::{Duration, Instant};

/// Between two signs of life of a program that waits for a fault.
const BETWEEN_BEATS: Duration = Duration::from_secs(1);

impl Probe<'_> {
    /// Does rounds until it was recovered once more; the error that it was told of, if it was told.
    pub(super) fn wait_for_a_recovery(&mut self, deadline: Instant) -> Result<Option<u32>, GpuError> {
        let before = count();
        self.observe(&format!("{before}-before"));
        let (mut told, mut good_at) = (None, 0);
        if self.options.has_tail {
            self.workload.leave_a_tail()?;
            self.report.say("tail", json!({}));
        }
        let mut beat = Instant::now() + BETWEEN_BEATS;
        while count() == before {
            if Instant::now() > deadline {
                return Err(failed("--recoveries", "no fault has come in time"));
            }
            if Instant::now() > beat {
                beat += BETWEEN_BEATS;
                self.report.say("beat", json!({ "recoveries": before, "rounds": self.workload.rounds() }));
            }
            if let Err(error) = self.step() {
                if count() == before {
                    // What it has lost it must not keep.
                    return Err(error);
                }
                self.check_told(&error);
                told = Some(error.code);
                good_at = self.good_kernel()?;
                self.workload.begin_anew()?;
            }
        }
        // A recovery that no call of this thread's has begun is heard of by the next one, if work was lost.
        if told.is_none() {
            let heard = if self.options.has_tail {
                self.workload.is_tail_done()
            } else {
                self.workload.synchronize().map(|()| true)
            };
            if let Ok(false) = heard {
                self.is_intact = false;
                self.report.say("wrong", json!({ "what": ["the tail"] }));
            }
            if let Err(error) = &heard {
                self.check_told(error);
            }
            told = heard.as_ref().err().map(|error| error.code);
            good_at = self.good_kernel()?;
            if heard.is_err() || self.options.has_tail {
                self.workload.begin_anew()?;
            }
        }
        let recovery: Option<Recovery> = last::get();
        let is_told_right = recovery.as_ref().is_none_or(|last| last.is_lossy() == told.is_some());
        for worker in &self.workers {
            // A thread that was there hears of what was lost once.
            if worker.round().is_err() {
                worker.round()?;
            }
        }
        if self.options.is_busy {
            self.workload.begin_anew()?;
        }
        self.whole_round()?;
        self.check_slabs()?;
        self.observe(&format!("{before}-after"));
        self.report.say(
            "recovered",
            json!({
                "told": told, "good_at_us": good_at, "is_told_right": is_told_right, "is_intact": self.is_intact,
                "bytes": self.workload.bytes() + self.slabs.as_ref().map_or(0, Slabs::bytes), "resources": self.options.is_counting.then(observed::resources),
                "recovery": recovery.map(|last| self.seen(last).describe()),
            }),
        );
        Ok(told)
    }
}
