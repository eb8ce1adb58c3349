//! `mps-cost`: what a call takes that programs make all the time, in nanoseconds and in instructions.
//!
//! Its calls go to the driver, or with `--runtime LIBRARY` to that library, cudart, in front of it. For each kind of call
//! a line `cost` has the least time of a call in one of `--batches N` batches of `--calls N` calls, and the instructions
//! of each of `--steps N` calls, least and median ([`steps`]); then `end`, or `error`. `--threads N` has so many others
//! that have called before and live on; with `--begin-when told` it says that it is ready, and measures when it has
//! read a line; with `--event made` it has made an event for other processes before, with `--event given` given them a
//! handle of it. With `--only NAME,…` these kinds alone are measured. What a preloaded library adds is the difference of two
//! runs; `--beside ROUNDS` has it from one run instead ([`beside`]): a line `beside` for each kind has what a call takes as
//! the driver itself has it, and what it takes more as the program finds it.

mod beside;
mod driver;
mod library;
mod runtime;
mod steps;

use super::gpu::GpuError;
use super::report::Report;
use serde_json::{Value, json};
use std::ffi::c_void;
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// What is asked for.
struct Options {
    /// The runtime library; the driver itself else.
    runtime: Option<String>,
    batches: usize,
    calls: usize,
    steps: usize,
    threads: usize,
    /// Not before a line was read.
    is_told_when: bool,
    /// An event for other processes, and whether they are given it.
    has_event: Option<bool>,
    /// Rounds beside the driver's own functions, if that is measured.
    beside: Option<usize>,
    /// What is measured; all else.
    only: Vec<String>,
}

impl Options {
    fn is_wanted(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == name)
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options {
        runtime: None,
        batches: 12,
        calls: 512,
        steps: 5,
        threads: 0,
        is_told_when: false,
        has_event: None,
        beside: None,
        only: Vec::new(),
    };
    while let Some(argument) = arguments.next() {
        let value = arguments.next()?;
        match argument.as_str() {
            "--runtime" => options.runtime = Some(value),
            "--batches" => options.batches = value.parse().ok().filter(|batches| *batches > 0)?,
            "--calls" => options.calls = value.parse().ok().filter(|calls| *calls > 0)?,
            "--steps" => options.steps = value.parse().ok().filter(|steps| *steps > 0)?,
            "--threads" => options.threads = value.parse().ok()?,
            "--event" => options.has_event = Some(["made", "given"].iter().position(|way| *way == value)? == 1),
            "--beside" => options.beside = Some(value.parse().ok().filter(|rounds| *rounds > 0)?),
            "--only" => options.only = value.split(',').map(str::to_owned).collect(),
            "--begin-when" => options.is_told_when = (value == "told").then_some(true)?,
            _ => return None,
        }
    }
    Some(options)
}

/// A call that is made again and again; its answer, of the driver or of the runtime.
type Call = Box<dyn Fn() -> u32>;

/// What is measured.
struct Calls {
    /// Kinds of calls by name.
    kinds: Vec<(&'static str, Call)>,
    /// The same that may begin threads, whose instructions are not counted: the trap flag would be theirs, too.
    making: Vec<(&'static str, Call)>,
    /// Waits until nothing is left to be done.
    settle: Call,
}

/// The program.
#[must_use]
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = Report::begin();
    let Some(options) = parse(arguments) else {
        let text = "mps-cost [--runtime LIBRARY] [--batches N] [--calls N] [--steps N] [--threads N] [--event made|given] [--beside ROUNDS] [--only NAME,…] [--begin-when told]";
        report.say("usage", json!({ "text": text }));
        return ExitCode::from(2);
    };
    if let Some(rounds) = options.beside {
        let result = driver::pairs().and_then(|pairs| beside::measure(report, &options, rounds, &pairs));
        return report.end(result, json!({}));
    }
    let opened = || match &options.runtime {
        Some(name) => runtime::open(name),
        None => driver::open(),
    };
    let (ready, over) = (Barrier::new(options.threads + 1), Barrier::new(options.threads + 1));
    let result = thread::scope(|scope| {
        // The first that opens it makes what others find; they come one after the other.
        let own = opened();
        for _ in 0..options.threads {
            scope.spawn(|| {
                // What fails here fails below too.
                let _called = opened().and_then(|calls| each_once(&calls));
                ready.wait();
                over.wait();
            });
        }
        ready.wait();
        let result = own.and_then(|calls| measure(report, &options, &calls));
        over.wait();
        result
    });
    report.end(result, json!({}))
}

/// The arguments of a kernel that is to take no time.
fn no_time() -> *mut *mut c_void {
    let nanoseconds: &'static mut u64 = Box::leak(Box::new(0));
    Box::leak(Box::new([std::ptr::from_mut(nanoseconds).cast()])).as_mut_ptr()
}

/// Those that make something come behind all others, which are to find the driver as it was.
fn each_once(calls: &Calls) -> Result<(), GpuError> {
    calls.kinds.iter().try_for_each(|(name, call)| once(name, call, calls))
}

fn once(name: &'static str, call: &Call, calls: &Calls) -> Result<(), GpuError> {
    checked(name, call())?;
    // Only then a question is answered with success.
    checked("settle", (calls.settle)())
}

fn checked(name: &'static str, code: u32) -> Result<(), GpuError> {
    if code == 0 { Ok(()) } else { Err(GpuError { call: name, code, name: "?".to_owned() }) }
}

fn measure(report: Report, options: &Options, calls: &Calls) -> Result<Value, GpuError> {
    each_once(calls)?;
    options.has_event.map_or(Ok(()), driver::event_for_others)?;
    if options.is_told_when {
        report.say("ready", json!({}));
        let mut line = String::new();
        // At its end, too, there is nothing more to wait for.
        let _told = std::io::stdin().read_line(&mut line);
    }
    for (place, (name, call)) in calls.kinds.iter().chain(&calls.making).enumerate() {
        if !options.is_wanted(name) {
            continue;
        }
        let is_counted = place < calls.kinds.len();
        if !is_counted {
            once(name, call, calls)?;
        }
        let mut least = f64::INFINITY;
        for _ in 0..options.batches {
            let begin = Instant::now();
            for _ in 0..options.calls {
                checked(name, call())?;
            }
            least = least.min(begin.elapsed().as_secs_f64() * 1e9 / options.calls as f64);
            checked("settle", (calls.settle)())?;
        }
        let mut counts = Vec::new();
        for _ in 0..if is_counted { options.steps } else { 0 } {
            let (answer, count) = steps::counted(call);
            checked(name, answer)?;
            checked("settle", (calls.settle)())?;
            counts.push(count);
        }
        let instructions = match counts.into_iter().collect::<Result<Vec<u64>, String>>() {
            Ok(_) if !is_counted => Value::Null,
            Ok(mut counts) => {
                counts.sort_unstable();
                json!({ "least": counts[0], "median": counts[counts.len() / 2] })
            }
            Err(reason) => json!({ "skipped": reason }),
        };
        report.say("cost", json!({ "call": name, "ns": least, "instructions": instructions }));
    }
    Ok(json!({}))
}
