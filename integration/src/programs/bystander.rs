//! `mps-bystander`: an honest client. It runs short kernels one after the other and says how long they took at most.
//!
//! ```text
//! mps-bystander [--seconds N] [--steps N] [--every-ms N] [--pause-ms N] [--kernel-us N] [--device N]
//!               [--also-device N] [--until-stdin-closes] [--reset] [--steps-after-reset N] [--go-on N]
//! ```
//! `ready` after the first step; `progress` every so often with the number of steps and the longest since the last
//! line; `end` with the check that no step was lost in device memory; `error` with call, code and number of steps.
//! With `--also-device` it has memory on that GPU too, before the other.
//! With `--reset` the first error is reported as `lost`, the context is reset in place, and `recovered` says how long
//! that took and in how many tries; steps and memory start anew then, and end after `--steps-after-reset`.
//! With `--pause-ms` it does nothing between two steps, and each good one is told as `step`.
//! With `--go-on N` a step that fails is reported as `lost`, and made again, up to so many times in a row; `again` is the
//! first good one, after which memory starts anew. A good step that took more than 5 ms is `slow`. These lines, and `step`, have the time of day
//! (`at_us`) at the step's end, and how long its launches (`launch_ms`) and its wait (`wait_ms`) took.

use super::gpu::{Argument, Gpu, GpuError, initialise};
use super::report::{Report, milliseconds, time_of_day_us};
use serde_json::{Value, json};
use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Words that each step counts up.
const WORDS: u32 = 1024;
const WORDS_BYTES: usize = 4096;

/// `CUDA_ERROR_MPS_CONNECTION_FAILED`: the daemon has sent the program to a server that is dead.
const UNREACHABLE: u32 = 805;
/// A reset that meets it is tried again so often.
const MAX_TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// A step that takes longer was kept from the GPU.
const SLOW: Duration = Duration::from_millis(5);

#[derive(Debug)]
struct Options {
    end: Option<Duration>,
    steps: u32,
    steps_after_reset: u32,
    every: Duration,
    pause: Duration,
    kernel: Duration,
    device: i32,
    also: Option<i32>,
    is_resetting: bool,
    goes_on: u32,
    is_stopped: Arc<AtomicBool>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self {
            end: None,
            steps: u32::MAX,
            steps_after_reset: u32::MAX,
            every: Duration::from_secs(1),
            pause: Duration::ZERO,
            kernel: Duration::from_micros(200),
            device: 0,
            also: None,
            is_resetting: false,
            goes_on: 0,
            is_stopped: Arc::default(),
        };
        while let Some(argument) = arguments.next() {
            if argument == "--reset" {
                options.is_resetting = true;
                continue;
            }
            if argument == "--until-stdin-closes" {
                let flag = Arc::clone(&options.is_stopped);
                std::thread::spawn(move || {
                    // Whatever comes is thrown away; its end, or an error, is the sign.
                    let _ = std::io::stdin().read_to_end(&mut Vec::new());
                    flag.store(true, Ordering::SeqCst);
                });
                continue;
            }
            let value = arguments.next()?;
            match argument.as_str() {
                "--seconds" => options.end = Some(Duration::try_from_secs_f64(value.parse().ok()?).ok()?),
                "--steps" => options.steps = value.parse().ok()?,
                "--steps-after-reset" => options.steps_after_reset = value.parse().ok()?,
                "--go-on" => options.goes_on = value.parse().ok()?,
                "--every-ms" => options.every = Duration::from_millis(value.parse().ok()?),
                "--pause-ms" => options.pause = Duration::from_millis(value.parse().ok()?),
                "--kernel-us" => options.kernel = Duration::from_micros(value.parse().ok()?),
                "--device" => options.device = value.parse().ok()?,
                "--also-device" => options.also = Some(value.parse().ok()?),
                _ => return None,
            }
        }
        Some(options)
    }
}

/// The program.
#[must_use]
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = Report::begin();
    let Some(mut options) = Options::parse(arguments) else {
        let text = "mps-bystander [--seconds N] [--steps N] [--every-ms N] [--pause-ms N] [--kernel-us N] \
                    [--device N] [--also-device N] [--until-stdin-closes] [--reset] [--steps-after-reset N] [--go-on N]";
        report.say("usage", json!({ "text": text }));
        return ExitCode::from(2);
    };
    let mut steps = 0;
    let mut result = initialise().and_then(|()| open(&options)).and_then(|gpu| work(report, &options, gpu, &mut steps));
    if options.is_resetting
        && let Err(error) = &result
    {
        report.say("lost", json!({ "call": error.call, "code": error.code, "steps": steps }));
        steps = 0;
        options.steps = options.steps.min(options.steps_after_reset);
        let begin = Instant::now();
        result = reset(options.device).and_then(|(gpu, tries)| {
            report.say("recovered", json!({ "reset_ms": milliseconds(begin.elapsed()), "tries": tries }));
            work(report, &options, gpu, &mut steps)
        });
    }
    report.end(result, json!({ "steps": steps }))
}

/// The fields of two objects in one.
fn with(mut fields: Value, own: Value) -> Value {
    if let (Value::Object(fields), Value::Object(own)) = (&mut fields, own) {
        fields.extend(own);
    }
    fields
}

/// The context that it works with, after that which it only has.
fn open(options: &Options) -> Result<Gpu, GpuError> {
    if let Some(also) = options.also {
        Gpu::open(also)?.allocate(WORDS_BYTES)?;
    }
    Gpu::open(options.device)
}

/// Resets in place, and again as long as no server can be reached; says how many tries it took.
fn reset(device: i32) -> Result<(Gpu, u32), GpuError> {
    let mut tries = 1;
    loop {
        match Gpu::reset(device) {
            Err(error) if error.code == UNREACHABLE && tries < MAX_TRIES => {
                tries += 1;
                std::thread::park_timeout(BETWEEN_TRIES);
            }
            result => return result.map(|gpu| (gpu, tries)),
        }
    }
}

fn work(report: Report, options: &Options, mut gpu: Gpu, steps: &mut u32) -> Result<Value, GpuError> {
    let memory = gpu.allocate(WORDS_BYTES)?;
    gpu.clear(memory, WORDS_BYTES)?;
    let (spin, increment) = (gpu.kernel("spin")?, gpu.kernel("increment")?);
    let nanoseconds = u64::try_from(options.kernel.as_nanos()).unwrap_or(u64::MAX);
    let mut longest = Duration::ZERO;
    let mut longest_ever = Duration::ZERO;
    let mut last_line = Instant::now();
    let is_over = |steps: u32| {
        steps >= options.steps
            || options.end.is_some_and(|end| report.start().elapsed() >= end)
            || options.is_stopped.load(Ordering::SeqCst)
    };
    // Steps that are in no memory any more, and how many have failed in a row.
    let (mut forgotten, mut failures) = (0, 0);
    while !is_over(*steps) {
        let begin = Instant::now();
        let mut launched = None;
        let done = (|| {
            gpu.launch(increment, WORDS, &[Argument::U64(memory), Argument::U32(WORDS)])?;
            gpu.launch(spin, 1, &[Argument::U64(nanoseconds)])?;
            launched = Some(begin.elapsed());
            gpu.synchronize()
        })();
        let (at_us, time) = (time_of_day_us(), begin.elapsed());
        let launching = launched.unwrap_or(time);
        let took = json!({
            "at_us": at_us,
            "launch_ms": milliseconds(launching),
            "wait_ms": milliseconds(time.saturating_sub(launching)),
        });
        if let Err(error) = done {
            failures += 1;
            if failures > options.goes_on {
                return Err(error);
            }
            if failures == 1 {
                report.say("lost", with(took, json!({ "call": error.call, "code": error.code })));
            }
            continue;
        }
        *steps += 1;
        if failures > 0 {
            report.say("again", with(took, json!({ "failures": failures })));
            gpu.clear(memory, WORDS_BYTES)?;
            (forgotten, failures) = (*steps, 0);
            continue;
        }
        if *steps == 1 {
            // The first step pays for loading the kernels and says nothing about the others.
            report.say("ready", json!({ "first_step_ms": milliseconds(time), "at_us": at_us }));
            continue;
        }
        if !options.pause.is_zero() {
            report.say("step", took);
            std::thread::park_timeout(options.pause);
        } else if options.goes_on > 0 && time > SLOW {
            report.say("slow", with(took, json!({ "took_ms": milliseconds(time) })));
        }
        longest = longest.max(time);
        longest_ever = longest_ever.max(time);
        if last_line.elapsed() >= options.every {
            report.say("progress", json!({ "steps": *steps, "longest_ms": milliseconds(longest) }));
            longest = Duration::ZERO;
            last_line = Instant::now();
        }
    }
    let words = gpu.read(memory, WORDS_BYTES / 4)?;
    let is_intact = words.iter().all(|word| *word == *steps - forgotten);
    Ok(json!({ "steps": *steps, "longest_ms": milliseconds(longest_ever), "is_intact": is_intact }))
}
