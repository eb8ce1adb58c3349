//! What the preload library adds to a call that only passes through.
//!
//! A C program calls a function of a stand-in driver again and again. Both are compiled from the sources that the
//! library's own tests use, so this part needs gcc and the sources' folder.

use super::figures::{Figure, Samples};
use super::programs::Programs;
use super::{BenchError, system};
use crate::lab::LIMIT;
use crate::lab::process::run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs of the program.
const RUNS: usize = 7;
/// Batches of 20,000 calls in a run, of which the fastest counts.
const BATCHES: &str = "50";
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../client-shim/tests/c");

pub(super) fn measure(programs: &Programs) -> Result<Vec<Figure>, BenchError> {
    let about =
        format!("A call of `cuStreamQuery`, the fastest of {BATCHES} batches of 20,000, in {RUNS} runs of a program.");
    let figure = Figure::new("a call through the preload library", about);
    let folder = tempfile::tempdir().map_err(system("make a folder"))?;
    let program = match compiled(folder.path()) {
        Ok(program) => program,
        Err(reason) => return Ok(vec![figure.without("all", reason)]),
    };
    let plain = || {
        let mut command = Command::new(&program);
        command.arg(BATCHES).env_clear().env("LD_LIBRARY_PATH", folder.path());
        command.env("CUDA_MPS_PIPE_DIRECTORY", folder.path().join("mps"));
        command
    };
    let preloaded = |keep: &str, replay: &str| {
        let mut command = plain();
        command.env("LD_PRELOAD", &programs.library).env("MPS_SHIM_KEEP", keep).env("MPS_SHIM_REPLAY", replay);
        command
    };
    Ok(vec![
        figure
            .with("without the library, ns", nanoseconds(plain)?)
            .with("with it, ns", nanoseconds(|| preloaded("", ""))?)
            .with("`MPS_SHIM_KEEP=memory`, ns", nanoseconds(|| preloaded("memory", ""))?)
            .with("`MPS_SHIM_KEEP=state`, ns", nanoseconds(|| preloaded("state", ""))?)
            .with("and `MPS_SHIM_REPLAY=in-place`, ns", nanoseconds(|| preloaded("state", "in-place"))?),
    ])
}

/// The program and its driver; why not else.
fn compiled(folder: &Path) -> Result<PathBuf, String> {
    let driver = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic"];
    compile(folder, "driver.c", "libcuda.so.1", &driver)?;
    compile(folder, "cost.c", "cost", &[])
}

fn compile(folder: &Path, source: &str, output: &str, arguments: &[&str]) -> Result<PathBuf, String> {
    let target = folder.join(output);
    let mut command = Command::new("gcc");
    command.args(["-O1", "-o"]).arg(&target).arg(Path::new(SOURCES).join(source)).args(arguments);
    let finished = run(command.args(["-ldl", "-lpthread"]), b"", LIMIT).map_err(|error| format!("gcc: {error}"))?;
    if finished.code == Some(0) { Ok(target) } else { Err(finished.stderr_text()) }
}

fn nanoseconds(command: impl Fn() -> Command) -> Result<Samples, BenchError> {
    let once = |_| {
        let finished = run(&mut command(), b"", LIMIT).map_err(system("run a program"))?;
        let picoseconds: Option<u32> = finished.stdout_text().trim().parse().ok();
        let wrong = || BenchError::Wrong(format!("the program that calls the driver: {finished:?}"));
        picoseconds.map(|time| f64::from(time) / 1e3).ok_or_else(wrong)
    };
    Ok(Samples::new((0..RUNS).map(once).collect::<Result<Vec<_>, BenchError>>()?))
}
