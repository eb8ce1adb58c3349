//! What one process does: one program, or programs of seeds that follow each other.

use super::base::Base;
use super::options::Options;
use super::program::Program;
use super::run::{self, Found, HEARTBEAT, Outcome};
use super::{FOUND, Report, STUCK, generate, judge, steps, waits};
use crate::programs::crash;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long an operation may take before the process stands still.
const PATIENCE: Duration = Duration::from_secs(60);

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
    crash::watch(libc::STDOUT_FILENO);
    Base::new(i32::from(options.devices)).map_err(|failed| {
        report.say("error", json!({ "call": failed.call, "code": failed.code }));
        ExitCode::from(2)
    })
}

fn describe(found: &Found, program: &Program) -> Value {
    let op = program.ops.get(found.at).map(|op| format!("thread {} {:?}", op.thread, op.what));
    let (kind, why) = (found.wrong.kind(), found.wrong.to_string());
    json!({ "kind": kind, "why": why, "at": found.at, "operation": op, "differing": found.differing })
}

pub(super) fn counted(outcome: &Outcome) -> Value {
    json!({
        "operations": outcome.operations, "values": outcome.values, "recoveries": outcome.recoveries,
        "clean": outcome.clean, "by_spare": outcome.by_spare, "errors": outcome.errors,
    })
}

/// One program.
pub(super) fn one(report: Report, options: &Options, program: &Program) -> ExitCode {
    let base = match base(report, options) {
        Ok(base) => base,
        Err(status) => return status,
    };
    let mut sum = Outcome::default();
    judge::strike(options.elsewhere);
    for _ in 0..options.times {
        match run::check(&base, program, (&options.neighbours(), options.is_shared())) {
            Ok(outcome) => sum.add(&outcome),
            Err(found) => {
                report.say("found", describe(&found, program));
                return ExitCode::from(FOUND);
            }
        }
    }
    report.say("end", counted(&sum));
    crash::part(crash::Part::End);
    ExitCode::SUCCESS
}

/// When copies read their sources.
pub(super) fn asked(report: Report, options: &Options) -> ExitCode {
    let base = match base(report, options) {
        Ok(base) => base,
        Err(status) => return status,
    };
    match waits::play(report, &base) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FOUND),
        Err(failed) => {
            report.say("error", json!({ "call": failed.call, "code": failed.code }));
            ExitCode::from(2)
        }
    }
}

/// Programs of seeds that follow each other.
pub(super) fn batch(report: Report, options: &Options, count: u64) -> ExitCode {
    let base = match base(report, options) {
        Ok(base) => base,
        Err(status) => return status,
    };
    let mut sum = Outcome::default();
    for seed in options.seed..options.seed + count {
        SEED.store(seed, Ordering::Relaxed);
        crash::seed(seed);
        let program = generate::program(seed, base.devices(), options.faults);
        match run::check(&base, &program, (&options.neighbours(), options.is_shared())) {
            Ok(outcome) => sum.add(&outcome),
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
    crash::part(crash::Part::End);
    ExitCode::SUCCESS
}
