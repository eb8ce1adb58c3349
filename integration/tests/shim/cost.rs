//! What the library adds to a call, in instructions: they are counted one by one and are the same on every machine. What
//! that is in time is for the benchmark to say, here and on a GPU.

use integration::lab::process::run;
use integration::shim;
use integration::sim::Sim;
use integration::under_test::{Skipped, Subject, once};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

/// How many instructions more a call may run with `MPS_SHIM_REPLAY=in-place` than without the library: with the one that
/// is released, and with a build for debugging. What the simulated driver does varies by about a hundred.
const MOST: [(&str, u64, u64); 8] = [
    ("launch", 270, 2400),
    ("record", 200, 4200),
    ("event query", 130, 6400),
    ("wait for an event", 160, 1700),
    ("query", 110, 3000),
    ("copy", 270, 2100),
    ("current context", 40, 1000),
    ("value of a context", 50, 1100),
];
/// Calls for which the simulated driver runs the same instructions each time.
const STEADY: [&str; 4] = ["event query", "query", "current context", "value of a context"];
/// Of these the calls of which nothing is noted but for recoveries, found by name: the last one is of a private table.
const NOT_NOTED: [&str; 3] = ["event query", "query", "current context"];

/// How long one count may take: a second or so where nothing else runs, and each instruction is a switch of processes.
const LIMIT: Duration = Duration::from_mins(4);

/// The instructions of each kind of call that is looked at here; why they cannot be counted here.
fn counted(sim: &Sim, prepare: impl FnOnce(&mut Command)) -> Result<BTreeMap<String, u64>, Skipped> {
    counted_of(sim, MOST.iter().map(|(call, ..)| *call), &[], prepare)
}

/// The same of those that are steady, which takes a part of the time. They come behind launches, as among all of them: what
/// the library has to begin beside a program that has just come up takes some time itself.
fn steady(sim: &Sim, more: &[&str], prepare: impl FnOnce(&mut Command)) -> Result<BTreeMap<String, u64>, Skipped> {
    counted_of(sim, ["launch"].into_iter().chain(STEADY), more, prepare)
}

fn counted_of(
    sim: &Sim,
    calls: impl Iterator<Item = &'static str>,
    more: &[&str],
    prepare: impl FnOnce(&mut Command),
) -> Result<BTreeMap<String, u64>, Skipped> {
    let only = calls.collect::<Vec<_>>().join(",");
    // The processor stops after each instruction, which takes most of the time: the least of three is enough.
    let arguments = [&["--batches", "1", "--calls", "16", "--steps", "3", "--only", &only], more].concat();
    let mut command = sim.command("mps-cost", &arguments);
    prepare(&mut command);
    let finished = run(&mut command, b"", LIMIT).expect("it runs");
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let output = finished.stdout_text();
    let lines = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = lines.filter(|line| line["event"] == "cost" && !line["instructions"].is_null()).map(|line| {
        let call = line["call"].as_str().expect("it has a name").to_owned();
        if let Some(reason) = line["instructions"]["skipped"].as_str() {
            return Err(Skipped(reason.to_owned()));
        }
        Ok((call, line["instructions"]["least"].as_u64().expect("a number")))
    });
    found.collect()
}

fn compared(subject: &Subject) -> Result<(), Skipped> {
    let sim = Sim::new(subject, &[]);
    let plain = counted(&sim, |_| {})?;
    let alone = steady(&sim, &[], |command| {
        command.env("LD_PRELOAD", shim::library());
    })?;
    for call in STEADY {
        assert_eq!(alone[call], plain[call], "{call}: with nothing asked for the library is not in the way");
    }
    let kept = steady(&sim, &[], |command| {
        command.env("LD_PRELOAD", shim::library()).env("MPS_SHIM_KEEP", "state");
    })?;
    for call in NOT_NOTED {
        assert_eq!(kept[call], plain[call], "{call}: where nothing is recovered the library is not in the way");
    }
    let ready = counted(&sim, |command| {
        command.env("LD_PRELOAD", shim::library()).env("MPS_SHIM_KEEP", "state").env("MPS_SHIM_REPLAY", "in-place");
    })?;
    let is_released = std::env::var_os("MPS_SHIM_UNDER_TEST").is_some();
    for (call, released, debug) in MOST {
        let (more, most) = (ready[call].saturating_sub(plain[call]), if is_released { released } else { debug });
        assert!(more <= most, "{call}: {more} instructions more, and not {most} at most");
    }
    Ok(())
}

#[test]
fn a_call_is_not_in_the_way_of_a_program_that_asks_for_nothing_and_costs_few_instructions_where_it_is_recovered() {
    once(|subject| {
        if let Err(skipped) = compared(subject) {
            skipped.report();
        }
    });
}

/// The long way begins where another process may wait for an event, and not where one is made for that.
fn with_an_event(subject: &Subject) -> Result<(), Skipped> {
    let sim = Sim::new(subject, &[]);
    let [none, made, given] = [&[][..], &["--event", "made"], &["--event", "given"]].map(|more| {
        steady(&sim, more, |command| {
            let ready = [("MPS_SHIM_KEEP", "state"), ("MPS_SHIM_REPLAY", "in-place")];
            command.env("LD_PRELOAD", shim::library()).envs(ready);
        })
    });
    let (none, made, given) = (none?, made?, given?);
    for call in STEADY {
        assert_eq!(made[call], none[call], "{call}: an event that is given to nobody is in no call's way");
    }
    // So this would be seen.
    let slower = STEADY.iter().filter(|call| given[**call] > none[**call]).count();
    assert!(slower > 0, "{given:?} {none:?}");
    Ok(())
}

#[test]
fn an_event_for_other_processes_costs_other_calls_nothing_before_it_is_given_away() {
    once(|subject| {
        if let Err(skipped) = with_an_event(subject) {
            skipped.report();
        }
    });
}

/// What a call runs in instructions as the driver itself has it, and as a program finds it, in one process.
fn beside(sim: &Sim, preload: &[(&str, &str)]) -> Result<BTreeMap<String, (u64, u64)>, Skipped> {
    let only = STEADY[..3].join(",");
    let arguments = ["--beside", "2", "--calls", "4", "--steps", "3", "--only", &["record", &only].join(",")];
    let mut command = sim.command("mps-cost", &arguments);
    command.envs(preload.iter().copied());
    let finished = run(&mut command, b"", LIMIT).expect("it runs");
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let output = finished.stdout_text();
    let lines = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = lines.filter(|line| line["event"] == "beside").map(|line| {
        let call = line["call"].as_str().expect("it has a name").to_owned();
        assert_eq!(line["rounds"], 2, "{line}");
        let [own, more] = [&line["own_ns"], &line["more_ns"]].map(|of| of["median"].as_f64().expect("a number"));
        // How long anything takes says nothing on a machine that does something else as well.
        assert!(own > 0.0 && more.is_finite(), "{line}");
        let instructions = &line["instructions"];
        if let Some(reason) = instructions["skipped"].as_str() {
            return Err(Skipped(reason.to_owned()));
        }
        let [own, shown] = ["own", "shown"].map(|of| instructions[of].as_u64().expect("a number"));
        Ok((call, (own, shown)))
    });
    let found = found.collect::<Result<BTreeMap<_, _>, _>>()?;
    assert_eq!(found.len(), 4, "{found:?}");
    Ok(found)
}

#[test]
fn beside_the_drivers_own_function_a_call_shows_what_the_library_adds_in_one_process() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let library = shim::library();
        let library = library.to_str().expect("a path of ours");
        let ready = [("LD_PRELOAD", library), ("MPS_SHIM_KEEP", "state"), ("MPS_SHIM_REPLAY", "in-place")];
        let found = [&[][..], &ready[..1], &ready].map(|preload| beside(&sim, preload));
        let [Ok(without), Ok(alone), Ok(recovered)] = found else {
            return found.into_iter().filter_map(Result::err).for_each(|skipped| skipped.report());
        };
        for call in NOT_NOTED {
            for (way, of) in [("without", &without), ("alone", &alone)] {
                let (own, shown) = of[call];
                assert_eq!(own, shown, "{call}, {way}: the program finds the driver's own");
            }
        }
        for (call, (own, shown)) in &recovered {
            assert!(own < shown, "{call}: the library's function is in between: {own}, {shown}");
        }
        for call in NOT_NOTED {
            assert_eq!(recovered[call].0, without[call].0, "{call}: the driver's own is not the library's");
        }
    });
}
