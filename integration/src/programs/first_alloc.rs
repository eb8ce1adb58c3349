//! `mps-first-alloc`: how long a new client takes from `main` to its first allocation.
//!
//! One line `allocated` with the milliseconds of each step and their sum, then `end`, or `error`. With
//! `--until-stdin-closes` it keeps its context until then; `--mib N` is the size of the allocation, 1 else; `--device N`
//! is the GPU, the first else; `--pause-ms N` is a pause before the driver is initialised and before the context, none
//! else.

use super::gpu::{Gpu, GpuError, initialise};
use super::report::{Report, milliseconds};
use serde_json::{Value, json};
use std::io::Read;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Bytes of a mebibyte.
const MEBIBYTE: usize = 1 << 20;

/// What is asked for.
struct Options {
    /// Bytes of the allocation.
    size: usize,
    /// The GPU.
    device: i32,
    /// Before each of the two steps to a context.
    pause: Duration,
    is_staying: bool,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options { size: MEBIBYTE, device: 0, pause: Duration::ZERO, is_staying: false };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--until-stdin-closes" => options.is_staying = true,
            "--mib" => options.size = arguments.next()?.parse::<usize>().ok()?.saturating_mul(MEBIBYTE),
            "--device" => options.device = arguments.next()?.parse().ok()?,
            "--pause-ms" => options.pause = Duration::from_millis(arguments.next()?.parse().ok()?),
            _ => return None,
        }
    }
    Some(options)
}

/// The program.
#[must_use]
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = Report::begin();
    let Some(options) = parse(arguments) else {
        let text = "mps-first-alloc [--mib N] [--device N] [--pause-ms N] [--until-stdin-closes]";
        report.say("usage", json!({ "text": text }));
        return ExitCode::from(2);
    };
    let result = work(report, &options);
    if options.is_staying && result.is_ok() {
        // Whatever comes is thrown away; its end, or an error, is the sign.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    }
    report.end(result, json!({}))
}

fn work(report: Report, options: &Options) -> Result<Value, GpuError> {
    wait(options.pause);
    initialise()?;
    let initialised = report.start().elapsed();
    wait(options.pause);
    let gpu = Gpu::open(options.device)?;
    let opened = report.start().elapsed();
    gpu.allocate(options.size)?;
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

/// Nothing else is due: the pause is what is wanted.
fn wait(pause: Duration) {
    let begin = Instant::now();
    while let Some(left) = pause.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}
