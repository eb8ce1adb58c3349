//! What the checker is asked for, and what its processes are told of that.

use super::fate::Neighbours;
use super::generate::Faults;
use super::steps;
use std::path::PathBuf;
use std::time::Duration;

/// Programs of a process: the driver's copies are counted, and what they leave behind slows later ones down.
const BATCH: u64 = 40;
/// Candidates that are tried for a shorter counterexample.
const SHRINKINGS: usize = 400;
pub(super) const USAGE: &str = "mps-checker [--operations N] [--seconds N] [--seed N] [--jobs N] [--most-found N] [--shrinkings N] \
                     [--save FOLDER] [--each N] | --cases [--times N] | --case NAME [--times N] | --program FILE [--times N] | --waits; each with [--devices N] [--faults own|neighbours|both] [--aggressor PROGRAM] \
                     [--at-step NAME|any] [--faults-elsewhere N]";

#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) operations: u64,
    pub(super) time: Duration,
    pub(super) seed: u64,
    pub(super) jobs: usize,
    pub(super) most_found: u64,
    pub(super) shrinkings: usize,
    pub(super) save: Option<PathBuf>,
    pub(super) batch: Option<u64>,
    /// Programs of a process.
    pub(super) each: u64,
    pub(super) program: Option<PathBuf>,
    /// How often that is run, in one process.
    pub(super) times: u32,
    pub(super) has_cases: bool,
    /// When copies read their sources, and no program.
    pub(super) has_waits: bool,
    /// One of them, by its name.
    pub(super) case: Option<String>,
    pub(super) devices: u8,
    pub(super) faults: Faults,
    pub(super) aggressor: Option<String>,
    pub(super) at_step: Option<String>,
    /// Faults that are none of a program's operations.
    pub(super) elsewhere: u64,
}

impl Options {
    pub(super) fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
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
            times: 1,
            has_cases: false,
            has_waits: false,
            case: None,
            devices: 2,
            faults: Faults { own: true, neighbours: true },
            aggressor: None,
            at_step: None,
            elsewhere: 0,
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
                "--times" => options.times = arguments.next()?.parse().ok()?,
                "--cases" => options.has_cases = true,
                "--waits" => options.has_waits = true,
                "--case" => options.case = Some(arguments.next()?),
                "--devices" => options.devices = arguments.next()?.parse().ok()?,
                "--faults" => {
                    options.faults = match arguments.next()?.as_str() {
                        "own" => Faults { own: true, neighbours: false },
                        "neighbours" => Faults { own: false, neighbours: true },
                        "both" => Faults { own: true, neighbours: true },
                        _ => return None,
                    }
                }
                "--faults-elsewhere" => options.elsewhere = arguments.next()?.parse().ok()?,
                "--aggressor" => options.aggressor = Some(arguments.next()?),
                "--at-step" => options.at_step = Some(arguments.next().filter(|name| steps::named(name, 0).is_some())?),
                _ => return None,
            }
        }
        Some(options)
    }

    pub(super) fn neighbours(&self) -> Neighbours {
        self.aggressor.clone().map_or(Neighbours::Simulated, Neighbours::Program)
    }

    /// Whether the neighbours of processes side by side are each other's.
    pub(super) fn is_shared(&self) -> bool {
        self.jobs > 1 && self.aggressor.is_some()
    }

    /// Arguments of a process that has the same surroundings.
    pub(super) fn passed_on(&self) -> Vec<String> {
        let faults = match self.faults {
            Faults { own: true, neighbours: false } => "own",
            Faults { own: false, .. } => "neighbours",
            Faults { .. } => "both",
        };
        let mut arguments: Vec<String> =
            ["--devices", &self.devices.to_string(), "--faults", faults, "--jobs", &self.jobs.to_string()]
                .map(str::to_owned)
                .to_vec();
        if let Some(aggressor) = &self.aggressor {
            arguments.extend(["--aggressor".to_owned(), aggressor.clone()]);
        }
        arguments
    }
}
