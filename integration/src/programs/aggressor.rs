//! `mps-aggressor`: a client that does one wrong or long thing.
//!
//! ```text
//! mps-aggressor oob|misaligned|assert|trap|endless|long [--after-ms N] [--for-ms N] [--device N]
//!               [--then-reset]
//! ```
//! `ready` with a context, `launched` once the kernel is on its way, with the time of day just before (`at_us`), then
//! `end` or `error`. `--after-ms` lets good kernels run for a while before, `--for-ms` (default 1500) is the length of
//! `long`. With `--then-reset` the error is reported as `lost`, and the context is reset in place: `recovered` or
//! `error` says whether the driver allows it.

use super::gpu::{Argument, Gpu, GpuError, initialise};
use super::report::{Report, time_of_day_us};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// An address that nothing is ever mapped at.
const WILD: u64 = 0x10;
/// Length of the good kernels before.
const GOOD_KERNEL: Duration = Duration::from_micros(200);

#[derive(Debug)]
struct Options {
    kind: String,
    after: Duration,
    length: Duration,
    device: i32,
    is_resetting: bool,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let kind = arguments.next()?;
        if !["oob", "misaligned", "assert", "trap", "endless", "long"].contains(&kind.as_str()) {
            return None;
        }
        let mut options =
            Self { kind, after: Duration::ZERO, length: Duration::from_millis(1500), device: 0, is_resetting: false };
        while let Some(argument) = arguments.next() {
            if argument == "--then-reset" {
                options.is_resetting = true;
                continue;
            }
            let number: u32 = arguments.next()?.parse().ok()?;
            let time = Duration::from_millis(number.into());
            match argument.as_str() {
                "--after-ms" => options.after = time,
                "--for-ms" => options.length = time,
                "--device" => options.device = i32::try_from(number).ok()?,
                _ => return None,
            }
        }
        Some(options)
    }
}

fn nanoseconds(time: Duration) -> Argument {
    Argument::U64(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// The program.
#[must_use]
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = Report::begin();
    let Some(options) = Options::parse(arguments) else {
        let text = "mps-aggressor oob|misaligned|assert|trap|endless|long [--after-ms N] [--for-ms N] [--device N] \
                    [--then-reset]";
        report.say("usage", json!({ "text": text }));
        return ExitCode::from(2);
    };
    let mut result = work(report, &options);
    if options.is_resetting
        && let Err(error) = &result
    {
        report.say("lost", json!({ "call": error.call, "code": error.code, "kind": options.kind }));
        result = Gpu::reset(options.device).map(|_| {
            report.say("recovered", json!({}));
            json!({ "kind": options.kind })
        });
    }
    report.end(result, json!({ "kind": options.kind }))
}

fn work(report: Report, options: &Options) -> Result<Value, GpuError> {
    initialise()?;
    let mut gpu = Gpu::open(options.device)?;
    let memory = gpu.allocate(4096)?;
    let spin = gpu.kernel("spin")?;
    let kernel = gpu.kernel(&options.kind)?;
    report.say("ready", json!({}));
    let begin = Instant::now();
    while begin.elapsed() < options.after {
        gpu.launch(spin, 1, &[nanoseconds(GOOD_KERNEL)])?;
        gpu.synchronize()?;
    }
    let arguments = match options.kind.as_str() {
        "oob" => vec![Argument::U64(WILD)],
        "misaligned" => vec![Argument::U64(memory)],
        "long" => vec![nanoseconds(options.length)],
        _ => Vec::new(),
    };
    let at = time_of_day_us();
    gpu.launch(kernel, 1, &arguments)?;
    report.say("launched", json!({ "kind": options.kind, "at_us": at }));
    gpu.synchronize()?;
    Ok(json!({ "kind": options.kind }))
}
