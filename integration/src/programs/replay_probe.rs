//! `mps-replay-probe`: a program that is recovered in place again and again, and that checks everything it has.
//!
//! ```text
//! mps-replay-probe [--faults KIND,…] [--recoveries N] [--seconds N] [--busy|--idle|--ticking] [--tail] [--threads N] [--library] [--variable]
//!                  [--pinned] [--pools] [--settings] [--enumerated] [--graph] [--arrays] [--strange-graph] [--strange-array] [--context] [--linker] [--shared-event] [--private CALL,…] [--stuck] [--light] [--breakable] [--slabs COUNT,MIB] [--until-stdin-closes]
//!                  [--maps FOLDER] [--scene NAME]
//! ```
//! It has memory of several sizes, some that it mapped itself, a range of host memory, two streams, two events, a module
//! with functions and, with `--library`, a library with a kernel; and threads with a stream each. All of it is made
//! once. A *round* uses all of it and compares every byte.
//!
//! - `--faults oob,trap`: after a first round it does wrong itself, once for each kind, and goes on: a line `fault` says
//!   what the call answered that found out, and what came after.
//! - `--recoveries N`: it does rounds until it was recovered so often from the faults of others, for `--seconds` at most
//!   (30 else); a line `recovered` each, with the time of day
//!   (`good_at_us`) at which the first kernel that was launched after it was done, and a line `beat` each second that it waits for one. Between rounds it is idle; with `--busy` it always has work on its way, and with
//!   `--idle` it makes no call at all until it was recovered, and with `--ticking` it runs one short kernel after the other. With `--tail` it first gives a stream a kernel that takes
//!   a while, a set, a copy of what was set, and a kernel that counts up, says `tail`, and compares afterwards.
//! - `--enumerated` launches a kernel of a library and a function of a module that it has got in lists.
//! - `--settings` sets flags, limits and attributes of its context and streams.
//! - `--pools` has memory of the default pool by its handle and of a pool of its own.
//! - `--pinned` asks for host memory of the driver's too, `--variable` for variables of a module and of a library,
//!   `--graph` for graphs, which rounds use.
//! - `--arrays` has arrays of all kinds, with textures and surfaces that rounds use, destroy and make again.
//! - `--until-stdin-closes`: with that done it goes on with rounds until its standard input ends.
//! - `--light` leaves the large blocks out, of which the simulated driver makes page after page.
//! - `--breakable` has a broken pipe end the process, as it does in a program in C that says nothing about it.
//! - `--slabs COUNT,MIB` has so many blocks of so many MiB besides, which are compared after each recovery.
//! - `--strange-graph` makes a graph with a node of a kind that is not made again, `--strange-array` an array of such a kind, `--context` a context of its own, `--linker` a linker
//!   that is at work, `--shared-event` an event for other processes, `--stuck`
//!   leaves a thread in the driver for as long as the process lives: programs that cannot be recovered.
//! - `--private CALL,…` has each round call functions of a private table of which nobody knows what they take; the calls are
//!   in `replay_probe/private.rs`, the table is the simulated driver's.
//! - `--scene NAME` does nothing of that: it plays one scene of lost work, and says who hears of it.
//! - `--at-once` tells of a recovery before its dead copy is cut off.
//! - `--resources` tells after each recovery how many descriptors, threads, mappings and so on the process has.
//! - `--maps FOLDER` writes `/proc/self/maps` and the list of descriptors there before and after each recovery.
//!
//! At `SIGUSR2` each thread writes its stack to standard error.
//!
//! Lines with a recovery have what `mps_shim_last_recovery` says of it. `end` has `is_intact`: whether every byte was
//! right in every round, and whatever a lost kernel may have changed was told to be in doubt.

mod arrays;
mod enumerated;
mod graphs;
mod last;
mod left;
mod neighbours;
mod observed;
mod options;
mod own_fault;
mod pinned;
mod pools;
mod private;
mod scenes;
mod settings;
mod signals;
mod slabs;

mod stored;
mod variables;
mod worker;
mod workload;

use super::gpu::{GpuError, initialise};
use super::report::{Report, milliseconds, time_of_day_us};
use last::Recovery;
use options::{Options, USAGE};
use serde_json::{Value, json};
use slabs::Slabs;
use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use worker::Worker;
use workload::Workload;

/// Whether the last time it was with a spare copy.
pub(super) fn is_by_a_spare() -> bool {
    last::get().is_some_and(|last| last.is_by_a_spare())
}

/// How often this process has gone on with another copy of the driver.
pub(super) fn recoveries() -> u64 {
    last::get().map_or(0, |last| last.count())
}

/// Between two rounds of an idle program.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(2);

/// The program.
#[must_use]
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = Report::begin();
    signals::answer();
    let Some(options) = Options::parse(arguments) else {
        report.say("usage", json!({ "text": USAGE }));
        return ExitCode::from(2);
    };
    if options.is_breakable {
        signals::ends_by_broken_pipes();
    }
    if let Some(scene) = &options.scene {
        return report.end(initialise().and_then(|()| scenes::play(report, scene)), json!({}));
    }
    report.end(initialise().and_then(|()| Probe::new(report, &options)?.run()), json!({}))
}

/// Something that is not the driver's fault.
fn failed(call: &'static str, error: impl std::fmt::Display) -> GpuError {
    GpuError { call, code: 0, name: error.to_string() }
}

/// The program at work.
struct Probe<'a> {
    report: Report,
    options: &'a Options,
    workload: Workload,
    workers: Vec<Worker>,
    slabs: Option<Slabs>,
    is_intact: bool,
}

impl<'a> Probe<'a> {
    fn new(report: Report, options: &'a Options) -> Result<Self, GpuError> {
        let begin = Instant::now();
        let mut workload = Workload::new(options.has_library, options.is_light)?;
        if options.has_variable {
            workload.ask_for_variables()?;
        }
        if options.has_pinned {
            workload.ask_for_host_memory()?;
        }
        if options.has_pools {
            workload.ask_for_pools()?;
        }
        if options.has_enumerated {
            workload.ask_for_lists()?;
        }
        if options.has_settings {
            workload.ask_for_settings()?;
        }
        if options.has_graphs {
            workload.ask_for_graphs()?;
        }
        if options.has_arrays {
            workload.ask_for_arrays()?;
        }
        if options.has_strange_array {
            arrays::leave_a_strange_one()?;
        }
        if options.has_strange_graph {
            workload.ask_for_a_strange_graph()?;
        }
        if options.has_context {
            workload.ask_for_context()?;
        }
        if options.has_linker {
            left::leave_a_linker()?;
        }
        if options.has_shared_event {
            left::leave_a_shared_event()?;
        }
        if !options.private.is_empty() {
            workload.ask_for_private_functions(&options.private)?;
        }
        let workers = (0..options.threads).map(|_| Worker::start(workload.context())).collect::<Result<_, _>>()?;
        if options.is_stuck {
            workload.leave_a_thread_in_the_driver()?;
        }
        let slabs = options.slabs.map(Slabs::new).transpose()?;
        let mut probe = Self { report, options, workload, workers, slabs, is_intact: true };
        probe.whole_round()?;
        report.say("ready", json!({ "made_ms": milliseconds(begin.elapsed()), "has_shim": last::get().is_some() }));
        Ok(probe)
    }

    fn run(mut self) -> Result<Value, GpuError> {
        let faults = self.options.faults.clone();
        for kind in &faults {
            self.own_fault(kind)?;
        }
        let mut told = 0;
        let mut unaware = 0;
        let deadline = Instant::now() + self.options.patience;
        let target = u64::try_from(faults.len()).unwrap_or(u64::MAX).saturating_add(self.options.recoveries);
        while count() < target {
            if Instant::now() > deadline {
                return Err(failed("--recoveries", "no fault has come in time"));
            }
            match self.wait_for_a_recovery(deadline)? {
                Some(_) => told += 1,
                None => unaware += 1,
            }
        }
        if self.options.is_staying {
            self.stay()?;
        }
        let recovery = last::get().map(|last| last.describe());
        let fields = json!({
            "is_intact": self.is_intact, "recoveries": count(), "told": told, "unaware": unaware, "rounds": self.workload.rounds(),
            "last": recovery,
        });
        Ok(fields)
    }

    /// Does rounds, each with all its comparisons, until nobody has anything more to say on standard input.
    fn stay(&mut self) -> Result<(), GpuError> {
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        std::thread::spawn(move || {
            // Whatever comes is thrown away; its end, or an error, is the sign.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            flag.store(true, Ordering::SeqCst);
        });
        while !is_over.load(Ordering::SeqCst) {
            self.whole_round()?;
            std::thread::park_timeout(BETWEEN_ROUNDS);
        }
        Ok(())
    }

    /// One round of everybody.
    fn whole_round(&mut self) -> Result<(), GpuError> {
        self.workload.round()?;
        for worker in &self.workers {
            worker.round()?;
        }
        self.check()
    }

    fn check(&mut self) -> Result<(), GpuError> {
        let wrong = self.workload.wrong()?;
        self.judge(&wrong);
        Ok(())
    }

    /// Compares what takes seconds, and is compared after recoveries only.
    fn check_slabs(&mut self) -> Result<(), GpuError> {
        let wrong = self.slabs.as_ref().map_or_else(|| Ok(Vec::new()), Slabs::wrong)?;
        self.judge(&wrong);
        Ok(())
    }

    fn judge(&mut self, wrong: &[String]) {
        if !wrong.is_empty() {
            self.is_intact = false;
            self.report.say("wrong", json!({ "what": wrong }));
        }
    }

    fn observe(&self, name: &str) {
        if let Some(folder) = &self.options.maps {
            observed::write(folder, name);
        }
    }

    /// A recovery as it is told of.
    fn seen(&self, recovery: Recovery) -> Recovery {
        if self.options.tells_at_once { recovery } else { recovery.when_cut_off() }
    }

    /// What the driver answers tells the program of what is lost; a wrong value that it finds itself is none of that.
    fn check_told(&mut self, error: &GpuError) {
        if error.code == 0 {
            self.is_intact = false;
            self.report.say("wrong", json!({ "what": [error.to_string()] }));
        }
    }

    /// The time of day at which a kernel was done that was launched now.
    fn good_kernel(&self) -> Result<u64, GpuError> {
        self.workload.tick()?;
        Ok(time_of_day_us())
    }

    fn step(&mut self) -> Result<(), GpuError> {
        if self.options.is_idle {
            std::thread::park_timeout(BETWEEN_ROUNDS);
            return Ok(());
        }
        if self.options.is_busy {
            return self.workload.keep_busy();
        }
        if self.options.is_ticking {
            return self.workload.tick();
        }
        self.workload.round()?;
        std::thread::park_timeout(BETWEEN_ROUNDS);
        Ok(())
    }
}

fn count() -> u64 {
    last::get().map_or(0, |last| last.count())
}

fn code_of<T>(result: &Result<T, GpuError>) -> u32 {
    result.as_ref().err().map_or(0, |error| error.code)
}
