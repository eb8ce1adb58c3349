//! `mps-checker`: does the preloaded library ever give a program a wrong byte?
//!
//! ```text
//! mps-checker [--operations N] [--seconds N] [--seed N] [--jobs N] [--most-found N] [--shrinkings N] [--save FOLDER] [--each N]
//! mps-checker --cases
//! mps-checker --program FILE
//! each with [--devices N] [--faults own|neighbours|both] [--aggressor PROGRAM] [--at-step NAME|any]
//! ```
//! It makes random programs, or takes those that are kept, or one that is given as JSON.
//!
//! A CUDA program is made at random ([`generate`]), as a list of operations of several threads ([`program`]). It is run
//! twice under the library with `MPS_SHIM_REPLAY=in-place` ([`run`]): undisturbed, and with a fault of its own work or of a
//! neighbour's where the list has one. All values that calls have returned as good are compared; [`judge`] has the rule.
//! Since only programs without races have right values, [`plan`] leaves out of any list what would race. A counterexample
//! is made as short as may be ([`shrink`]), printed, and kept: [`cases`] has those of past mistakes, which every run of
//! the tests begins with.
//!
//! The same program runs on the simulated driver, where a neighbour's fault is a word to a kernel of the simulation, and
//! on a GPU, where it is the end of `--aggressor mps-aggressor` under the same daemon. Programs follow each other in a
//! process, so that recoveries do too; each batch is a process of its own.
//!
//! Lines: `batch` for each process, `crash` for one that ends by a signal, with where that was, `counterexample` with the
//! program, `case` for each that is kept, `end` with counts: programs, operations (of disturbed runs), values that were
//! compared, recoveries and how many of them lost nothing or went on with a spare copy,
//! errors that were told, and how often a fault came at which step of a spare copy's making ([`steps`]). Exit status 1 if anything was found, 3 if a program stands still.

mod api;
mod base;
pub(super) use base::KERNELS;
mod cases;
mod crash;
mod generate;
mod graphs;
mod judge;
mod machine;
mod plan;
mod program;
mod run;
mod shrink;
mod steps;

use super::report::Report;
use base::{Base, Neighbours};
use generate::Faults;
use program::Program;
use run::{Found, HEARTBEAT, Outcome};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Programs of a process: the driver's copies are counted, and what they leave behind slows later ones down.
const BATCH: u64 = 40;
/// How long an operation may take before the process stands still.
const PATIENCE: Duration = Duration::from_secs(60);
/// Candidates that are tried for a shorter counterexample.
const SHRINKINGS: usize = 400;
const FOUND: u8 = 1;
const STUCK: u8 = 3;
const USAGE: &str = "mps-checker [--operations N] [--seconds N] [--seed N] [--jobs N] [--most-found N] [--shrinkings N] \
                     [--save FOLDER] [--each N] | --cases | --program FILE; each with [--devices N] [--faults own|neighbours|both] [--aggressor PROGRAM] \
                     [--at-step NAME|any]";

#[derive(Debug, Clone)]
struct Options {
    operations: u64,
    time: Duration,
    seed: u64,
    jobs: usize,
    most_found: u64,
    shrinkings: usize,
    save: Option<PathBuf>,
    batch: Option<u64>,
    /// Programs of a process.
    each: u64,
    program: Option<PathBuf>,
    has_cases: bool,
    devices: u8,
    faults: Faults,
    aggressor: Option<String>,
    at_step: Option<String>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self {
            operations: 100_000,
            time: Duration::MAX,
            seed: 1,
            jobs: 1,
            most_found: 1,
            shrinkings: SHRINKINGS,
            save: None,
            batch: None,
            each: BATCH,
            program: None,
            has_cases: false,
            devices: 2,
            faults: Faults { own: true, neighbours: true },
            aggressor: None,
            at_step: None,
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--operations" => options.operations = arguments.next()?.parse().ok()?,
                "--seconds" => options.time = Duration::from_secs(arguments.next()?.parse().ok()?),
                "--seed" => options.seed = arguments.next()?.parse().ok()?,
                "--jobs" => options.jobs = arguments.next()?.parse().ok()?,
                "--most-found" => options.most_found = arguments.next()?.parse().ok()?,
                "--shrinkings" => options.shrinkings = arguments.next()?.parse().ok()?,
                "--save" => options.save = Some(arguments.next()?.into()),
                "--each" => options.each = arguments.next()?.parse().ok().filter(|count| *count > 0)?,
                "--batch" => options.batch = Some(arguments.next()?.parse().ok()?),
                "--program" => options.program = Some(arguments.next()?.into()),
                "--cases" => options.has_cases = true,
                "--devices" => options.devices = arguments.next()?.parse().ok()?,
                "--faults" => {
                    options.faults = match arguments.next()?.as_str() {
                        "own" => Faults { own: true, neighbours: false },
                        "neighbours" => Faults { own: false, neighbours: true },
                        "both" => Faults { own: true, neighbours: true },
                        _ => return None,
                    }
                }
                "--aggressor" => options.aggressor = Some(arguments.next()?),
                "--at-step" => options.at_step = Some(arguments.next().filter(|name| steps::named(name, 0).is_some())?),
                _ => return None,
            }
        }
        Some(options)
    }

    fn neighbours(&self) -> Neighbours {
        self.aggressor.clone().map_or(Neighbours::Simulated, Neighbours::Program)
    }

    /// Arguments of a process that has the same surroundings.
    fn passed_on(&self) -> Vec<String> {
        let faults = match self.faults {
            Faults { own: true, neighbours: false } => "own",
            Faults { own: false, .. } => "neighbours",
            Faults { .. } => "both",
        };
        let mut arguments: Vec<String> =
            ["--devices", &self.devices.to_string(), "--faults", faults].map(str::to_owned).to_vec();
        if let Some(aggressor) = &self.aggressor {
            arguments.extend(["--aggressor".to_owned(), aggressor.clone()]);
        }
        arguments
    }
}

/// The program.
#[must_use]
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = Report::begin();
    let Some(options) = Options::parse(arguments) else {
        report.say("usage", json!({ "text": USAGE }));
        return ExitCode::from(2);
    };
    if let Some(count) = options.batch {
        return batch(report, &options, count);
    }
    if let Some(path) = &options.program {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let Ok(program) = serde_json::from_str::<Program>(&text) else {
            report.say("usage", json!({ "text": format!("{} is no program", path.display()) }));
            return ExitCode::from(2);
        };
        return one(report, &options, &program);
    }
    if options.has_cases {
        return all_cases(report, &options);
    }
    search(report, &options)
}

/// Says so and ends the process when nothing happens any more.
fn watch(report: Report, seed: &'static AtomicU64) {
    std::thread::spawn(move || {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            std::thread::park_timeout(Duration::from_secs(1));
            let now = HEARTBEAT.load(Ordering::Relaxed);
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() > PATIENCE {
                report.say("stuck", json!({ "seed": seed.load(Ordering::Relaxed) }));
                std::process::exit(STUCK.into());
            }
        }
    });
}

static SEED: AtomicU64 = AtomicU64::new(0);

fn base(report: Report, options: &Options) -> Result<Base, ExitCode> {
    watch(report, &SEED);
    crash::watch();
    Base::new(i32::from(options.devices)).map_err(|failed| {
        report.say("error", json!({ "call": failed.call, "code": failed.code }));
        ExitCode::from(2)
    })
}

fn describe(found: &Found, program: &Program) -> Value {
    let op = program.ops.get(found.at).map(|op| format!("thread {} {:?}", op.thread, op.what));
    json!({ "kind": found.wrong.kind(), "why": found.wrong.to_string(), "at": found.at, "operation": op })
}

fn counted(outcome: &Outcome) -> Value {
    json!({
        "operations": outcome.operations, "values": outcome.values, "recoveries": outcome.recoveries,
        "clean": outcome.clean, "by_spare": outcome.by_spare, "errors": outcome.errors,
    })
}

/// One program.
fn one(report: Report, options: &Options, program: &Program) -> ExitCode {
    let base = match base(report, options) {
        Ok(base) => base,
        Err(status) => return status,
    };
    match run::check(&base, program, &options.neighbours()) {
        Ok(outcome) => {
            report.say("end", counted(&outcome));
            ExitCode::SUCCESS
        }
        Err(found) => {
            report.say("found", describe(&found, program));
            ExitCode::from(FOUND)
        }
    }
}

/// Programs of seeds that follow each other.
fn batch(report: Report, options: &Options, count: u64) -> ExitCode {
    let base = match base(report, options) {
        Ok(base) => base,
        Err(status) => return status,
    };
    let mut sum = Outcome::default();
    for seed in options.seed..options.seed + count {
        SEED.store(seed, Ordering::Relaxed);
        crash::seed(seed);
        let program = generate::program(seed, base.devices(), options.faults);
        match run::check(&base, &program, &options.neighbours()) {
            Ok(outcome) => {
                sum.operations += outcome.operations;
                sum.values += outcome.values;
                sum.recoveries += outcome.recoveries;
                sum.clean += outcome.clean;
                sum.by_spare += outcome.by_spare;
                sum.errors += outcome.errors;
            }
            Err(found) => {
                let mut line = describe(&found, &program);
                line["seed"] = json!(seed);
                line["program"] = json!(program);
                report.say("found", line);
                return ExitCode::from(FOUND);
            }
        }
    }
    steps::go_on();
    let mut line = counted(&sum);
    line["is_met"] = json!(steps::is_met());
    report.say("batch", line);
    ExitCode::SUCCESS
}

/// A process of this program with these arguments: its status, and the last line of each event.
fn child(options: &Options, arguments: &[String], step: Option<&str>) -> Option<(ExitStatus, Vec<Value>)> {
    let program = std::env::current_exe().ok()?;
    let mut command = Command::new(program);
    let folder = tempfile::tempdir().ok()?;
    step.iter().for_each(|step| steps::keep_at(&mut command, step, folder.path()));
    command.args(arguments).args(options.passed_on()).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    Some((output.status, lines))
}

/// What a program shows in a process of its own: the line of what was found, if something was.
fn shows(options: &Options, program: &Program) -> Option<Value> {
    let mut file = tempfile::NamedTempFile::new().ok()?;
    file.write_all(serde_json::to_string(program).ok()?.as_bytes()).ok()?;
    let step = options.at_step.as_deref().and_then(|name| steps::named(name, options.seed));
    let (status, lines) = child(options, &["--program".to_owned(), file.path().to_string_lossy().into_owned()], step)?;
    let found = lines.iter().find(|line| line["event"] == "found" || line["event"] == "stuck");
    match found {
        Some(found) => Some(found.clone()),
        // A process that has died has shown something, too.
        None if status.success() => None,
        None => Some(died(status, &lines)),
    }
}

/// What is known of a process that has ended without a word of its own: how, at which call if it could not begin, and
/// where if it was by a signal.
fn died(status: ExitStatus, lines: &[Value]) -> Value {
    let of = |event: &str| lines.iter().find(|line| line["event"] == event);
    let crash = of("crash").cloned();
    let failed = of("error").map(|line| format!(", {} answers {}", line["call"], line["code"]));
    let why = format!("the process has ended: {status}{}", failed.unwrap_or_default());
    let mut line = json!({ "kind": "died", "why": why });
    if let Some(crash) = crash {
        line["seed"] = crash["seed"].clone();
        line["crash"] = crash;
    }
    line
}

/// A counterexample, as short as may be.
fn shortened(options: &Options, program: &Program, kind: &Value) -> Program {
    let plan = plan::Plan::new(program, options.devices);
    let done = program.ops.iter().zip(&plan.steps).filter(|(_, step)| step.is_some());
    let dense = Program { ops: done.map(|(op, _)| op.clone()).collect() };
    let still = |candidate: &Program| shows(options, candidate).is_some_and(|found| found["kind"] == *kind);
    if options.shrinkings == 0 || !still(&dense) {
        return program.clone();
    }
    shrink::shrink(&dense, options.shrinkings, still)
}

/// All that are kept.
fn all_cases(report: Report, options: &Options) -> ExitCode {
    let mut is_as_expected = true;
    for case in cases::all() {
        let found = shows(options, &case.program);
        let is_found = found.is_some();
        is_as_expected &= !is_found;
        report.say("case", json!({ "name": case.name, "found": found }));
    }
    if is_as_expected { ExitCode::SUCCESS } else { ExitCode::from(FOUND) }
}

/// Random programs, in processes side by side, until there were as many operations as asked for.
fn search(report: Report, options: &Options) -> ExitCode {
    let (next, found, is_over) = (AtomicU64::new(options.seed), AtomicU64::new(0), AtomicBool::new(false));
    let sum = Mutex::new((0_u64, Outcome::default()));
    let met = Mutex::new(BTreeMap::<&str, u64>::new());
    let begin = Instant::now();
    let work = || {
        while !is_over.load(Ordering::SeqCst) {
            let seed = next.fetch_add(options.each, Ordering::SeqCst);
            one_batch(report, options, seed, &found, &sum, &met);
            let done = sum.lock().map_or(u64::MAX, |sum| sum.1.operations as u64);
            let is_late = begin.elapsed() > options.time;
            if is_late || done >= options.operations || found.load(Ordering::SeqCst) >= options.most_found {
                is_over.store(true, Ordering::SeqCst);
            }
        }
    };
    std::thread::scope(|scope| (0..options.jobs.max(1)).for_each(|_| drop(scope.spawn(work))));
    let (programs, outcome) = sum.into_inner().unwrap_or_default();
    let mut line = counted(&outcome);
    line["programs"] = json!(programs);
    line["found"] = json!(found.load(Ordering::SeqCst));
    line["seconds"] = json!(begin.elapsed().as_secs());
    line["at_steps"] = json!(met.into_inner().unwrap_or_default());
    report.say("end", line);
    if found.into_inner() == 0 { ExitCode::SUCCESS } else { ExitCode::from(FOUND) }
}

fn one_batch(
    report: Report,
    options: &Options,
    mut seed: u64,
    found: &AtomicU64,
    sum: &Mutex<(u64, Outcome)>,
    met: &Mutex<BTreeMap<&'static str, u64>>,
) {
    let (begin, end) = (seed, seed + options.each);
    let step = options.at_step.as_deref().and_then(|name| steps::named(name, seed));
    while seed < end && found.load(Ordering::SeqCst) < options.most_found {
        let arguments = ["--batch", &(end - seed).to_string(), "--seed", &seed.to_string()].map(str::to_owned);
        let Some((status, lines)) = child(options, &arguments, step) else { return };
        if let Some(batch) = lines.iter().find(|line| line["event"] == "batch")
            && let Ok(mut sum) = sum.lock()
        {
            let number = |name: &str| batch[name].as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0);
            sum.0 += end - seed;
            sum.1.operations += number("operations");
            sum.1.values += number("values");
            sum.1.recoveries += number("recoveries");
            sum.1.clean += number("clean");
            sum.1.by_spare += number("by_spare");
            sum.1.errors += u32::try_from(number("errors")).unwrap_or(u32::MAX);
            if let (Some(step), Ok(mut met)) = (step.filter(|_| batch["is_met"] == true), met.lock()) {
                *met.entry(step).or_default() += 1;
            }
            return;
        }
        found.fetch_add(1, Ordering::SeqCst);
        let line = lines.iter().find(|line| line["event"] == "found" || line["event"] == "stuck").cloned();
        let line = line.unwrap_or_else(|| died(status, &lines));
        let at = line["seed"].as_u64().unwrap_or(seed);
        let program = generate::program(at, options.devices, options.faults);
        // Whoever is asked for "any" again is asked for the same.
        let options = &Options { seed: if step.is_some() { begin } else { options.seed }, ..options.clone() };
        let small = shortened(options, &program, &line["kind"]);
        let mut shown = shows(options, &small).unwrap_or_else(|| line.clone());
        shown["event"] = json!("counterexample");
        shown["seed"] = json!(at);
        shown["program"] = json!(small);
        if let Some(folder) = &options.save {
            let text = serde_json::to_string_pretty(&small).unwrap_or_default();
            if let Err(error) = std::fs::create_dir_all(folder)
                .and_then(|()| std::fs::write(folder.join(format!("seed-{at}.json")), text))
            {
                report.say("error", json!({ "call": "--save", "why": error.to_string() }));
            }
        }
        report.say("counterexample", shown);
        let mut text = std::io::stderr().lock();
        // Whoever has closed standard error has the line.
        let _ = writeln!(text, "seed {at}: {}\n{small}", line["why"]);
        seed = at + 1;
    }
}
