//! What the preload library adds to a call that programs make all the time: runs of `mps-cost` on the simulated driver,
//! in rounds with one for each way, so that whatever else the machine does is in all of them.
//!
//! Instructions are the same in every run, but for what the simulated driver does; times are not worth much where the
//! machine is busy.

use super::figures::{Figure, Samples};
use super::programs::Programs;
use super::{BenchError, system};
use crate::lab::LIMIT;
use crate::lab::process::run;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::process::Command;

/// Rounds.
const ROUNDS: usize = 5;
const ARGUMENTS: [&str; 6] = ["--batches", "12", "--calls", "64", "--steps", "3"];
/// Ways with their settings, `MPS_SHIM_KEEP` and `MPS_SHIM_REPLAY`.
const WAYS: [(&str, &str, &str); 4] = [
    ("the library alone", "", ""),
    ("`MPS_SHIM_KEEP=memory`", "memory", ""),
    ("`MPS_SHIM_KEEP=state`", "state", ""),
    ("and `MPS_SHIM_REPLAY=in-place`", "state", "in-place"),
];

/// What a call takes: nanoseconds, and instructions where they can be counted.
type Cost = (f64, Option<f64>);

pub(super) fn measure(programs: &Programs) -> Result<Vec<Figure>, BenchError> {
    let about = format!(
        "A call of the simulated driver, the least of 12 batches of 64, and the instructions of one, in {ROUNDS} rounds; \
         what each way takes more than the run without the library in its round."
    );
    let folder = tempfile::tempdir().map_err(system("make a folder"))?;
    symlink(&programs.driver, folder.path().join("libcuda.so.1")).map_err(system("name the driver"))?;
    let plain = || {
        let mut command = Command::new(&programs.cost);
        command.args(ARGUMENTS).env_clear().env("LD_LIBRARY_PATH", folder.path());
        command.env("CUDA_MPS_PIPE_DIRECTORY", folder.path().join("mps"));
        command
    };
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let without = costs(&mut plain())?;
        let with = WAYS.map(|(_, keep, replay)| {
            let mut command = plain();
            command.env("LD_PRELOAD", &programs.library).env("MPS_SHIM_KEEP", keep).env("MPS_SHIM_REPLAY", replay);
            costs(&mut command)
        });
        rounds.push((without, with.into_iter().collect::<Result<Vec<_>, BenchError>>()?));
    }
    let mut figure = Figure::new("a call through the preload library", about);
    for call in rounds[0].0.keys() {
        let times = rounds.iter().map(|(without, _)| without[call].0);
        figure = figure.with(format!("{call}: without the library, ns"), Samples::new(times));
        for (at, (way, ..)) in WAYS.iter().enumerate() {
            let pairs = || rounds.iter().map(|(without, with)| (without[call], with[at][call]));
            let more = pairs().map(|(without, with)| with.0 - without.0);
            figure = figure.with(format!("{call}: {way}, more, ns"), Samples::new(more));
            let counted: Option<Vec<f64>> = pairs().map(|(without, with)| Some(with.1? - without.1?)).collect();
            let part = format!("{call}: {way}, more, instructions");
            figure = match counted {
                Some(more) => figure.with(part, Samples::new(more)),
                None => figure.without(part, "the processor does not stop after each instruction here"),
            };
        }
    }
    Ok(vec![figure])
}

/// What each kind of call takes in one run of the program.
fn costs(command: &mut Command) -> Result<BTreeMap<String, Cost>, BenchError> {
    let finished = run(command, b"", LIMIT).map_err(system("run a program"))?;
    let output = finished.stdout_text();
    let lines = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let cost = |line: Value| {
        let instructions = line["instructions"]["least"].as_f64();
        Some((line["call"].as_str()?.to_owned(), (line["ns"].as_f64()?, instructions)))
    };
    let found: BTreeMap<String, Cost> = lines.filter(|line| line["event"] == "cost").filter_map(cost).collect();
    if finished.code == Some(0) && !found.is_empty() {
        Ok(found)
    } else {
        Err(BenchError::Wrong(format!("the program that calls the driver: {finished:?}")))
    }
}
