//! Programs in processes of their own: those that are kept, and random ones until enough was done. What one shows is made
//! as short as may be there, too, and shown once more.

use super::options::Options;
use super::program::Program;
use super::run::Outcome;
use super::worker::counted;
use super::{FOUND, Report, cases, generate, plan, shrink, steps};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

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
    let arguments = ["--program", &file.path().to_string_lossy(), "--times", &options.times.to_string()];
    let (status, lines) = child(options, &arguments.map(str::to_owned), step)?;
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
pub(super) fn all_cases(report: Report, options: &Options) -> ExitCode {
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
pub(super) fn search(report: Report, options: &Options) -> ExitCode {
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
        // One that dies at its end has done all of it and shows something, too.
        if let Some(batch) = lines.iter().find(|line| line["event"] == "batch")
            && status.success()
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
        // What it shows alone may be something else.
        let mut shown = line.clone();
        shown["alone"] = json!(shows(options, &small));
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
