//! `mps-survivor`: shows that memory kept by the preloaded library outlives a fault, the context and the process.
//!
//! ```text
//! mps-survivor own-trap|own-oob|killed|other [--library PATH]
//! ```
//! A child with the library preloaded allocates, maps and fills memory and says where it is (`kept`). Then it faults
//! (`own-…`), is killed in peace (`killed`), or works until somebody else's fault reaches it (`other`), which it tells
//! with `lost`. This process, which never uses CUDA, takes copies of the child's descriptors and ends the child. A
//! second child imports the memory at the same addresses and compares every byte: `adopted`, with the milliseconds of
//! each step. The same on a real GPU and on the simulated one, with and without MPS.

mod adopter;
mod victim;

use super::gpu::GpuError;
use super::report::{Report, milliseconds};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Bytes of what the child allocates.
pub(super) const ALLOCATED: [usize; 4] = [5_000, 1 << 20, 6 << 20, (33 << 20) + 4];
/// Bytes of what it maps itself: more than the driver takes from its pool, whose place is another one in each process.
pub(super) const MAPPED: usize = 32 << 20;
/// Length of the pattern that memory is filled with: a prime, which keeps pages apart.
const PERIOD: usize = 251;
/// A context may be refused, or lost, until the server that has failed is replaced.
const TRIES: u32 = 200;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// So many bytes of the pattern.
pub(super) fn pattern(size: usize, seed: u8) -> Vec<u8> {
    let period: Vec<u8> = (0..PERIOD).map(|at| at.to_le_bytes()[0].wrapping_add(seed)).collect();
    let mut bytes = period.repeat(size.div_ceil(PERIOD));
    bytes.truncate(size);
    bytes
}

/// The program.
#[must_use]
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = Report::begin();
    let arguments: Vec<String> = arguments.collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["victim", kind] => victim::run(report, kind),
        ["adopter"] => adopter::run(report),
        [kind @ ("own-trap" | "own-oob" | "killed" | "other")] => survive(report, kind, None),
        [kind @ ("own-trap" | "own-oob" | "killed" | "other"), "--library", library] => {
            survive(report, kind, Some(library.into()))
        }
        _ => {
            report.say("usage", json!({ "text": "mps-survivor own-trap|own-oob|killed|other [--library PATH]" }));
            ExitCode::from(2)
        }
    }
}

/// Something that is not the driver's fault.
fn failed(call: &'static str, error: impl std::fmt::Display) -> GpuError {
    GpuError { call, code: 0, name: error.to_string() }
}

fn survive(report: Report, kind: &str, library: Option<OsString>) -> ExitCode {
    let result = start(kind, library).and_then(|mut child| {
        let adopted = adopt(report, kind, &mut child);
        // It has ended already unless something went wrong.
        let _ended = child.kill().and_then(|()| child.wait().map(drop));
        adopted
    });
    report.end(result, json!({}))
}

fn start(kind: &str, library: Option<OsString>) -> Result<Child, GpuError> {
    let own = std::env::current_exe().map_err(|error| failed("current_exe", error))?;
    let mut command = Command::new(own);
    command.args(["victim", kind]).stdin(Stdio::piped()).stdout(Stdio::piped()).env("MPS_SHIM_KEEP", "memory");
    if let Some(library) = library {
        command.env("LD_PRELOAD", library);
    }
    command.spawn().map_err(|error| failed("spawn", error))
}

/// Hears the child out, takes copies of its descriptors, ends it, and has another one take its memory over.
fn adopt(report: Report, kind: &str, child: &mut Child) -> Result<Value, GpuError> {
    let output = child.stdout.take().ok_or_else(|| failed("spawn", "no standard output"))?;
    let mut lines = BufReader::new(output).lines().map_while(Result::ok).map(|line| {
        let line = serde_json::from_str::<Value>(&line).unwrap_or(Value::Null);
        report.say("victim", json!({ "line": line }));
        line
    });
    let mut kept = lines.find(|line| line["event"] == "kept").ok_or_else(|| failed("victim", "it has kept nothing"))?;
    let mut lost = Value::Null;
    if kind != "killed" {
        let line = lines.find(|line| line["event"] == "lost").ok_or_else(|| failed("victim", "it has lost nothing"))?;
        lost = line["code"].clone();
    }
    let begin = Instant::now();
    let descriptors = adopter::copies(child.id(), &mut kept)?;
    let copied = begin.elapsed();
    child.kill().and_then(|()| child.wait()).map_err(|error| failed("kill", error))?;
    let ended = begin.elapsed();
    let mut tries = 1;
    let adopted = loop {
        match take_over(report, &kept)? {
            Some(adopted) => break adopted,
            None if tries == TRIES => return Err(failed("adopter", "it was refused too often")),
            None => tries += 1,
        }
        std::thread::park_timeout(BETWEEN_TRIES);
    };
    drop(descriptors);
    let steps = json!({ "copy_ms": milliseconds(copied), "end_ms": milliseconds(ended - copied) });
    report.say("adopted", json!({ "lost": lost, "tries": tries, "steps": steps, "by": adopted }));
    Ok(json!({}))
}

/// One process that takes the memory over; what it says, or `None` if its context was refused or lost before it had
/// compared: the server that the fault was on may not have heard of it yet.
fn take_over(report: Report, kept: &Value) -> Result<Option<Value>, GpuError> {
    let own = std::env::current_exe().map_err(|error| failed("current_exe", error))?;
    let mut command = Command::new(own);
    let mut child = command
        .arg("adopter")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed("spawn", error))?;
    let mut input = child.stdin.take().ok_or_else(|| failed("spawn", "no standard input"))?;
    input.write_all(kept.to_string().as_bytes()).map_err(|error| failed("adopter", error))?;
    drop(input);
    let output = child.wait_with_output().map_err(|error| failed("adopter", error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let adopted = lines.iter().find(|line| line["event"] == "mapped").cloned();
    if adopted.is_none() {
        report.say("refused", json!({ "lines": lines }));
    }
    Ok(adopted)
}
