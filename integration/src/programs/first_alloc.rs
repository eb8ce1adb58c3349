//! `mps-first-alloc`: how long a new client takes from `main` to its first allocation.
//!
//! One line `allocated` with the milliseconds of each step and their sum, then `end`, or `error`. With
//! `--until-stdin-closes` it keeps its context until then; `--mib N` is the size of the allocation, 1 else; `--device N`
//! is the GPU, the first else.

use super::gpu::{Gpu, GpuError, initialise};
use super::report::{Report, milliseconds};
use serde_json::{Value, json};
use std::io::Read;
use std::process::ExitCode;

/// Bytes of a mebibyte.
const MEBIBYTE: usize = 1 << 20;

/// Size in mebibytes, the GPU, and whether to stay.
fn parse(mut arguments: impl Iterator<Item = String>) -> Option<(usize, i32, bool)> {
    let (mut size, mut device, mut is_staying) = (1, 0, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--until-stdin-closes" => is_staying = true,
            "--mib" => size = arguments.next()?.parse().ok()?,
            "--device" => device = arguments.next()?.parse().ok()?,
            _ => return None,
        }
    }
    Some((size, device, is_staying))
}

/// The program.
#[must_use]
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = Report::begin();
    let Some((size, device, is_staying)) = parse(arguments) else {
        report.say("usage", json!({ "text": "mps-first-alloc [--mib N] [--device N] [--until-stdin-closes]" }));
        return ExitCode::from(2);
    };
    let result = work(report, device, size.saturating_mul(MEBIBYTE));
    if is_staying && result.is_ok() {
        // Whatever comes is thrown away; its end, or an error, is the sign.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    }
    report.end(result, json!({}))
}

fn work(report: Report, device: i32, size: usize) -> Result<Value, GpuError> {
    initialise()?;
    let initialised = report.start().elapsed();
    let gpu = Gpu::open(device)?;
    let opened = report.start().elapsed();
    gpu.allocate(size)?;
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
