//! `mps-first-alloc`: how long a new client takes from `main` to its first allocation.
//!
//! One line `allocated` with the milliseconds of each step and their sum, then `end`, or `error`. With
//! `--until-stdin-closes` it keeps its context until then.

use super::gpu::{Gpu, GpuError, initialise};
use super::report::{Report, milliseconds};
use serde_json::{Value, json};
use std::io::Read;
use std::process::ExitCode;

/// Bytes of the first allocation.
const SIZE: usize = 1 << 20;

/// The program.
#[must_use]
pub fn run(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = Report::begin();
    let is_staying = match arguments.next().as_deref() {
        None => false,
        Some("--until-stdin-closes") => true,
        Some(_) => {
            report.say("usage", json!({ "text": "mps-first-alloc [--until-stdin-closes]" }));
            return ExitCode::from(2);
        }
    };
    let result = work(report);
    if is_staying && result.is_ok() {
        // Whatever comes is thrown away; its end, or an error, is the sign.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    }
    report.end(result, json!({}))
}

fn work(report: Report) -> Result<Value, GpuError> {
    initialise()?;
    let initialised = report.start().elapsed();
    let gpu = Gpu::open()?;
    let opened = report.start().elapsed();
    gpu.allocate(SIZE)?;
    let allocated = report.start().elapsed();
    report.say(
        "allocated",
        json!({
            "init_ms": milliseconds(initialised),
            "context_ms": milliseconds(opened - initialised),
            "allocation_ms": milliseconds(allocated - opened),
            "total_ms": milliseconds(allocated),
        }),
    );
    Ok(json!({}))
}
