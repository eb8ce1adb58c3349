//! `mps-heir`: a program whose state outlives it, told what to do by lines on standard input.
//!
//! It is started with the preloaded library and a name (`MPS_SHIM_NAME`). `ready` comes when it has a context.
//!
//! | line | does | event |
//! |---|---|---|
//! | `adopt MS`, `wait MS` | takes what a predecessor left; the latter as a standby | `adopted`: code, what is known of it, whether every labelled range is the same to the last byte and how many bytes that were, and when a kernel had run |
//! | `make LABEL BYTES SEED` | memory with the seed's pattern, registered; a label that begins with `c` is constant | `made` |
//! | `drop LABEL` | frees it | `dropped` |
//! | `commit N MS` | notes N, and which seed each range has | `committed`: code, ms |
//! | `discard MS` | | `discarded`: code |
//! | `kernel` | runs one | `worked` |
//! | `fault KIND` | runs one that does wrong, and ends with its error | `lost`, `error` |
//! | `watch` | works until another's fault reaches it, and ends with its error | `lost`, `error` |
//! | `abort`, `exit N` | ends so | |
//! | end of input | ends well | `end` |
//!
//! `mps-heir remap GIB SLAB_MIB` is something else: what it takes to import, map and allow so much exported memory.

mod api;
mod remap;

use super::gpu::{Argument, Gpu, GpuError, initialise};
use super::memory_probe::{allocate, check};
use super::report::{Report, milliseconds, time_of_day_us};
use super::survivor::pattern;
use api::Api;
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::BufRead;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// An address that nothing is ever mapped at.
const WILD: u64 = 0x10;
/// Nanoseconds of a kernel that shows that kernels run.
const SHORT: u64 = 1000;
/// Between two looks whether a fault of another client has come.
const EVERY: Duration = Duration::from_millis(1);

/// Something that is not the driver's fault.
fn failed(call: &'static str, error: impl std::fmt::Display) -> GpuError {
    GpuError { call, code: 0, name: error.to_string() }
}

/// A labelled range: where it is, bytes, seed of its pattern.
type Ranges = BTreeMap<String, (u64, usize, u8)>;

struct Heir {
    report: Report,
    gpu: Gpu,
    api: Api,
    ranges: Ranges,
}

/// The program.
#[must_use]
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = Report::begin();
    let arguments: Vec<String> = arguments.collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => serve(report),
        ["remap", gib, slab_mib] => remap::run(gib, slab_mib),
        _ => Err(failed("usage", "mps-heir [remap GIB SLAB_MIB]")),
    };
    report.end(result, json!({}))
}

/// What a range is registered as, by its label: constant where that begins with a `c`, shadowed where it
/// begins so.
fn flags_of(label: &str) -> u32 {
    if label.starts_with('c') {
        1
    } else if label.starts_with("shadow") {
        2
    } else {
        0
    }
}

fn serve(report: Report) -> Result<Value, GpuError> {
    initialise()?;
    let initialised = report.start().elapsed();
    let gpu = Gpu::open(0)?;
    let opened = report.start().elapsed();
    let mut heir = Heir { report, gpu, api: Api::loaded()?, ranges: Ranges::new() };
    let (init, context) = (milliseconds(initialised), milliseconds(opened - initialised));
    report.say("ready", json!({ "init_ms": init, "context_ms": context }));
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| failed("standard input", error))?;
        heir.obey(&line)?;
    }
    Ok(json!({}))
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, GpuError> {
    word.parse().map_err(|_| failed("standard input", format_args!("{word} is no number")))
}

fn read_back(address: u64, size: usize) -> Result<Vec<u8>, GpuError> {
    let mut bytes = vec![0; size];
    api::read(address, &mut bytes)?;
    Ok(bytes)
}

impl Heir {
    fn obey(&mut self, line: &str) -> Result<(), GpuError> {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["adopt", limit] => self.adopt(number(limit)?, false),
            ["wait", limit] => self.adopt(number(limit)?, true),
            ["make", label, bytes, seed] => self.make(label, number(bytes)?, number(seed)?),
            ["drop", label] => self.drop(label),
            ["write", label, seed] => self.write(label, number(seed)?),
            ["restore", label] => self.restore(label),
            ["commit", generation, limit] => self.commit(number(generation)?, number(limit)?),
            ["discard", limit] => {
                let code = self.api.discard(number(limit)?);
                self.report.say("discarded", json!({ "code": code }));
                Ok(())
            }
            ["kernel"] => {
                self.work()?;
                self.report.say("worked", json!({}));
                Ok(())
            }
            ["fault", kind] => self.fault(kind),
            ["watch"] => loop {
                // An idle client hears of a fault when it asks.
                match self.gpu.synchronize() {
                    Ok(()) => std::thread::park_timeout(EVERY),
                    error => return self.lost(error),
                }
            },
            ["abort"] => std::process::abort(),
            ["exit", status] => std::process::exit(number(status)?),
            _ => Err(failed("standard input", format_args!("no command: {line}"))),
        }
    }

    fn work(&mut self) -> Result<(), GpuError> {
        let kernel = self.gpu.kernel("spin")?;
        self.gpu.launch(kernel, 1, &[Argument::U64(SHORT)])?;
        self.gpu.synchronize()
    }

    fn adopt(&mut self, limit: u32, is_standby: bool) -> Result<(), GpuError> {
        let begin = Instant::now();
        let code = if is_standby { self.api.wait(limit) } else { self.api.adopt(limit) };
        let called = begin.elapsed();
        let mut fields = json!({ "code": code, "call_ms": milliseconds(called) });
        if code == 0 {
            self.work()?;
            fields["first_kernel_ms"] = milliseconds(begin.elapsed()).into();
            let (recovery, data) = self.api.last_recovery();
            let (mut is_intact, mut doubt, mut missing, mut compared) = (true, Vec::new(), Vec::new(), 0);
            for line in String::from_utf8_lossy(&data).lines() {
                let words: Vec<&str> = line.split(' ').collect();
                let [label, bytes, seed] = words.as_slice() else { return Err(failed("commit", line)) };
                let (bytes, seed): (usize, u8) = (number(bytes)?, number(seed)?);
                let Some(found) = self.api.find(label) else {
                    // Freed after the commit.
                    missing.push(label.to_string());
                    continue;
                };
                if found.is_in_doubt != 0 {
                    doubt.push(label.to_string());
                }
                compared += bytes;
                is_intact &= found.bytes == bytes as u64 && read_back(found.address, bytes)? == pattern(bytes, seed);
                self.ranges.insert(label.to_string(), (found.address, bytes, seed));
            }
            fields["recovery"] = recovery;
            fields["is_intact"] = is_intact.into();
            fields["bytes"] = compared.into();
            fields["in_doubt"] = doubt.into();
            fields["missing"] = missing.into();
        }
        self.report.say("adopted", fields);
        Ok(())
    }

    fn make(&mut self, label: &str, bytes: usize, seed: u8) -> Result<(), GpuError> {
        let address = allocate(bytes)?;
        api::write(address, &pattern(bytes, seed))?;
        let code = self.api.register(label, address, bytes, flags_of(label));
        self.ranges.insert(label.to_owned(), (address, bytes, seed));
        self.report.say("made", json!({ "code": code, "address": address }));
        Ok(())
    }

    /// Writes another pattern, which is the one that is expected from now on.
    fn write(&mut self, label: &str, seed: u8) -> Result<(), GpuError> {
        let (address, bytes, known) = self.ranges.get_mut(label).ok_or_else(|| failed("write", label))?;
        api::write(*address, &pattern(*bytes, seed))?;
        *known = seed;
        self.report.say("written", json!({ "code": 0 }));
        Ok(())
    }

    /// Has a range as it was, and looks whether it is the one that is expected.
    fn restore(&mut self, label: &str) -> Result<(), GpuError> {
        let (address, bytes, seed) = *self.ranges.get(label).ok_or_else(|| failed("restore", label))?;
        let code = self.api.restore(label);
        let is_intact = read_back(address, bytes)? == pattern(bytes, seed);
        self.report.say("restored", json!({ "code": code, "is_intact": is_intact }));
        Ok(())
    }

    fn drop(&mut self, label: &str) -> Result<(), GpuError> {
        let (address, ..) = self.ranges.remove(label).ok_or_else(|| failed("drop", label))?;
        let code = self.api.unregister(label);
        api::free(address)?;
        self.report.say("dropped", json!({ "code": code }));
        Ok(())
    }

    fn commit(&mut self, generation: u64, limit: u32) -> Result<(), GpuError> {
        let lines = self.ranges.iter().map(|(label, (_, bytes, seed))| format!("{label} {bytes} {seed}\n"));
        let (data, begin) = (lines.collect::<String>(), Instant::now());
        let code = self.api.commit(generation, data.as_bytes(), limit);
        self.report.say("committed", json!({ "code": code, "ms": milliseconds(begin.elapsed()) }));
        Ok(())
    }

    fn fault(&mut self, kind: &str) -> Result<(), GpuError> {
        let arguments = if kind == "oob" { vec![Argument::U64(WILD)] } else { Vec::new() };
        let kernel = self.gpu.kernel(kind)?;
        self.report.say("launched", json!({ "at_us": time_of_day_us() }));
        let answer = self.gpu.launch(kernel, 1, &arguments).and_then(|()| self.gpu.synchronize());
        self.lost(answer)
    }

    fn lost(&self, answer: Result<(), GpuError>) -> Result<(), GpuError> {
        if let Err(error) = &answer {
            self.report.say("lost", json!({ "call": error.call, "code": error.code }));
        }
        answer
    }
}

/// Checks that a call has done what it was to.
fn checked(call: &'static str, answer: sys::CUresult) -> Result<(), GpuError> {
    check(call, answer)
}
