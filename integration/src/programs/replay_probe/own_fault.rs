//! A fault of the program's own, and what comes after it.

use super::{Probe, code_of, count, failed, last, observed};
use crate::programs::gpu::{Argument, GpuError};
use crate::programs::report::milliseconds;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// An address that nothing is ever mapped at.
const WILD: u64 = 0x10;
/// How long a fault of its own may take to be found out where the first wait has met none.
const TO_BE_FOUND_OUT: Duration = Duration::from_secs(2);

impl Probe<'_> {
    /// Does wrong, finds out, and goes on.
    pub(super) fn own_fault(&mut self, kind: &str) -> Result<(), GpuError> {
        let before = count();
        self.observe(&format!("{before}-before-{kind}"));
        let arguments = match kind {
            "oob" | "misaligned" => vec![Argument::U64(if kind == "oob" { WILD } else { self.workload.scratch() })],
            _ => Vec::new(),
        };
        let launched = self.workload.launch(kind, &arguments);
        let begin = Instant::now();
        let mut answer = launched.and_then(|()| self.workload.synchronize());
        // A kernel that stores where it must not align comes to its end, and the driver's word on it may come after that.
        let mut waits = 1;
        while answer.is_ok() && begin.elapsed() < TO_BE_FOUND_OUT {
            answer = self.workload.synchronize();
            waits += 1;
        }
        let found = begin.elapsed();
        let code = answer.as_ref().err().map_or(0, |error| error.code);
        let recovery = last::get();
        self.observe(&format!("{before}-after-{kind}"));
        let again = Instant::now();
        let next = self.workload.synchronize();
        let next_ms = milliseconds(again.elapsed());
        // Each thread that was there hears of it once.
        let heard: Vec<Value> = self
            .workers
            .iter()
            .map(|worker| {
                let first = worker.round();
                let second = worker.round();
                json!([code_of(&first), code_of(&second)])
            })
            .collect();
        // What fails from here on is in the line, too: nobody could say else what was heard before.
        let anew = if count() > before { self.workload.begin_variables_anew() } else { Ok(()) };
        let round = next.clone().and(anew).and_then(|()| self.whole_round()).and_then(|()| self.check_slabs());
        self.report.say(
            "fault",
            json!({
                "kind": kind, "answer": code, "waits": waits, "found_ms": milliseconds(found), "next": code_of(&next), "next_ms": next_ms,
                "round": code_of(&round), "round_error": round.as_ref().err().map(ToString::to_string), "threads": heard,
                "resources": self.options.is_counting.then(observed::resources), "is_recovered": count() > before, "is_intact": self.is_intact, "recovery": recovery.map(|last| self.seen(last).describe()),
            }),
        );
        if count() == before {
            return Err(answer.err().unwrap_or_else(|| failed("fault", "it was not found out")));
        }
        round
    }
}
