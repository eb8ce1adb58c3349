//! A call as the program finds it beside the driver's own, in turns in one process: what a preloaded library adds to it.
//!
//! Two runs differ by where things lie in memory, by hundreds of nanoseconds for a launch on a GPU, and by more than that
//! while the machine does something else; two batches of one process that follow each other do not.

use super::{Call, Options, checked, steps};
use crate::programs::gpu::GpuError;
use crate::programs::report::Report;
use serde_json::{Value, json};
use std::time::Instant;

/// The same call in two ways.
pub(super) struct Pair {
    /// What is called.
    pub(super) name: &'static str,
    /// As the program finds it.
    pub(super) shown: Call,
    /// As the driver itself has it.
    pub(super) own: Call,
}

/// Nanoseconds of a call in a batch of them.
fn batch(name: &'static str, call: &Call, settle: &Call, calls: usize) -> Result<f64, GpuError> {
    let begin = Instant::now();
    for _ in 0..calls {
        checked(name, call())?;
    }
    let taken = begin.elapsed().as_secs_f64() * 1e9 / calls as f64;
    checked("settle", settle())?;
    Ok(taken)
}

/// Least, quarters and most of some numbers.
fn spread(mut found: Vec<f64>) -> Value {
    found.sort_unstable_by(f64::total_cmp);
    let at = |quarter: usize| found[(found.len() - 1) * quarter / 4];
    json!({ "least": at(0), "lower": at(1), "median": at(2), "upper": at(3), "most": at(4) })
}

/// The least that either runs in so many calls, in instructions, the driver's own first; or why they cannot be counted.
fn instructions(pair: &Pair, settle: &Call, steps: usize) -> Result<Result<[u64; 2], String>, GpuError> {
    let mut least = [u64::MAX; 2];
    // In turns, since what is counted first finds the driver in another state.
    for _ in 0..steps {
        for (least, call) in least.iter_mut().zip([&pair.own, &pair.shown]) {
            let (answer, count) = steps::counted(call);
            checked(pair.name, answer)?;
            checked("settle", settle())?;
            match count {
                Ok(count) => *least = count.min(*least),
                Err(reason) => return Ok(Err(reason)),
            }
        }
    }
    Ok(Ok(least))
}

/// Measures each kind in so many rounds: a batch of the one, two of the other, one of the first, so that what gets slower or
/// faster meanwhile is in both.
pub(super) fn measure(
    report: Report,
    options: &Options,
    rounds: usize,
    (pairs, settle): &(Vec<Pair>, Call),
) -> Result<Value, GpuError> {
    for pair in pairs {
        if !options.is_wanted(pair.name) {
            continue;
        }
        // A question is answered with success where its event was recorded, which those before have done.
        for call in [&pair.shown, &pair.own] {
            checked(pair.name, call())?;
            checked("settle", settle())?;
        }
        let (mut own, mut more) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let order = if round % 2 == 0 { [true, false, false, true] } else { [false, true, true, false] };
            let mut taken = [0.0; 2];
            for is_shown in order {
                let call = if is_shown { &pair.shown } else { &pair.own };
                taken[usize::from(is_shown)] += batch(pair.name, call, settle, options.calls)? / 2.0;
            }
            own.push(taken[0]);
            more.push(taken[1] - taken[0]);
        }
        let instructions = match instructions(pair, settle, options.steps)? {
            Ok([own, shown]) => json!({ "own": own, "shown": shown }),
            Err(reason) => json!({ "skipped": reason }),
        };
        let facts = json!({
            "call": pair.name,
            "rounds": rounds,
            "own_ns": spread(own),
            "more_ns": spread(more),
            "instructions": instructions,
        });
        report.say("beside", facts);
    }
    Ok(json!({}))
}
