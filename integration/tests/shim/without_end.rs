//! A program is recovered as often as it must be, and each recovery leaves no more behind than the first ones.
//!
//! With `REMPS_LONG=1` a thousand times in one process, from faults of its own and from its neighbours'. Both tell what
//! the process has after 10, 100 and 1,000.

use super::replay::{events, is_whole, replaying};
use integration::lab::LIMIT;
use integration::lab::process::{Finished, Process, run};
use integration::lab::stage::long_or;
use integration::lab::watch::wait_for;
use integration::shim;
use integration::sim::{Sim, error_of};
use integration::under_test::{Subject, once};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::time::Duration;

/// A recovery takes a tenth of that where nothing else runs.
const EACH: Duration = Duration::from_secs(3);

/// Threads that may have ended in the copy that stays: one that is woken when that is cut off ends, and one that is not waits
/// on.
const OF_THE_COPY_THAT_STAYS: i64 = 1;

/// What a process has in one case it has in another one, too. A copy that was not given back would have a library, and more
/// than one thread.
pub(super) fn has_as_much(one: &Value, other: &Value, subject: &Subject) {
    let count = |of: &Value, resource: &str| of[resource].as_i64().expect("a number");
    for resource in ["libraries", "descriptors"] {
        assert_eq!(count(one, resource), count(other, resource), "{subject}: {resource}: {one}, and {other}");
    }
    let difference = count(one, "threads") - count(other, "threads");
    assert!(difference.abs() <= OF_THE_COPY_THAT_STAYS, "{subject}: threads: {one}, and {other}");
}

fn is_flat(finished: &Finished, event: &str, count: usize) {
    grows_by(finished, event, count, 0);
}

/// Compares what the process has after the tenth recovery and after the last one, and tells. Each recovery may leave so many
/// mappings.
#[expect(clippy::print_stdout, reason = "the long run is read by whoever started it")]
fn grows_by(finished: &Finished, event: &str, count: usize, mappings: i64) {
    let lines = events(finished, event);
    let resources = |number: usize| &lines[number - 1]["resources"];
    for number in [10, 100, 1000].into_iter().filter(|number| *number <= count) {
        println!("after {number} recoveries: {}", resources(number));
    }
    let (tenth, last) = (resources(10), resources(count));
    let grown = |resource: &str| {
        let of = |counts: &Value| counts[resource].as_i64().expect("a number");
        of(last) - of(tenth)
    };
    for resource in ["descriptors", "libraries"] {
        assert_eq!(grown(resource), 0, "{resource}: {tenth}, then {last}");
    }
    assert!((-OF_THE_COPY_THAT_STAYS..=0).contains(&grown("threads")), "{tenth}, then {last}");
    // Where two mappings touch they count as one.
    let since = i64::try_from(count - 10).expect("it is small");
    assert!(grown("mappings") <= 2 + since * mappings, "{tenth}, then {last}");
    // The C library's heaps of threads that have left are nobody's, and it makes no more than eight for each CPU.
    let cpus = std::thread::available_parallelism().expect("the kernel says how many").get();
    assert!(last["arenas"].as_u64().is_some_and(|arenas| arenas <= 8 * cpus as u64), "{tenth}, then {last}");
    // Of host memory a page here and there: handles that the program has asked for, the heaps' own lists.
    assert!(grown("resident_kib") < 8 << 10, "{tenth}, then {last}");
}

/// As often as a program has faults, and more often than the driver has places for copies of itself.
#[test]
fn recoveries_from_faults_of_its_own_leave_no_more_behind_than_ten() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let count = long_or(1000, 150);
        let kinds: Vec<&str> = ["oob", "trap", "misaligned", "assert"].into_iter().cycle().take(count).collect();
        let mut command = replaying(&sim, &["--light", "--resources", "--faults", &kinds.join(",")]);
        let limit = EACH * u32::try_from(count).expect("it is small");
        let finished = run(&mut command, b"", limit).expect("the probe runs");
        is_whole(&finished, u64::try_from(count).expect("it is small"), "many recoveries");
        is_flat(&finished, "fault", count);
    });
}

/// A copy has to stay as long as the program has what a private function of it has made, and no longer: compilers make such
/// objects for a moment, and others end them when the copy is dead.
#[test]
fn a_dead_copy_is_given_back_when_what_its_private_functions_have_made_has_ended() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let kinds = ["oob"; 14];
        for calls in ["brief", "next"] {
            let arguments = ["--light", "--resources", "--private", calls, "--faults", &kinds.join(",")];
            let finished = run(&mut replaying(&sim, &arguments), b"", LIMIT * 2).expect("the probe runs");
            is_whole(&finished, kinds.len() as u64, &format!("{subject}: {calls}"));
            is_flat(&finished, "fault", kinds.len());
        }
    });
}

/// Objects of a context are of no use without it: no copy stays for them, but the page on which each lies.
#[test]
fn a_dead_copy_is_given_back_though_its_private_functions_have_made_objects_of_what_is_lost() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let kinds = ["oob"; 14];
        let arguments = ["--light", "--resources", "--private", "asked", "--faults", &kinds.join(",")];
        let finished = run(&mut replaying(&sim, &arguments), b"", LIMIT * 2).expect("the probe runs");
        is_whole(&finished, kinds.len() as u64, &subject.to_string());
        grows_by(&finished, "fault", kinds.len(), 2);
    });
}

/// What a slow machine does: a dead copy's threads do not wait yet when they are to end.
#[test]
fn a_dead_copy_that_could_not_be_given_back_at_once_is_given_back_later() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let kinds = ["oob"; 6];
        let left = [None, Some("fail:dead-threads-end:4")].map(|failing| {
            let mut command = replaying(&sim, &["--light", "--resources", "--faults", &kinds.join(",")]);
            shim::asked_by_tests(&mut command).envs(failing.map(|failing| ("MPS_SHIM_TEST_AT", failing)));
            let finished = run(&mut command, b"", LIMIT * 2).expect("the probe runs");
            is_whole(&finished, kinds.len() as u64, &format!("{subject}: {failing:?}"));
            events(&finished, "fault").pop().expect("one")["resources"].clone()
        });
        has_as_much(&left[0], &left[1], subject);
    });
}

/// What a busy machine does: a thread of the dead copy is just woken when its descriptors are exchanged, and goes on.
#[test]
fn a_dead_copys_thread_that_was_just_woken_takes_no_descriptors_from_the_program() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let kinds = ["oob"; 14];
        let mut command = replaying(&sim, &["--light", "--resources", "--faults", &kinds.join(",")]);
        let finished = run(command.env("MPS_SIM_WOKEN", "1"), b"", LIMIT * 2).expect("the probe runs");
        is_whole(&finished, kinds.len() as u64, &subject.to_string());
        is_flat(&finished, "fault", kinds.len());
    });
}

/// Neighbours that do wrong, and servers that die.
#[test]
fn recoveries_from_its_neighbours_faults_leave_no_more_behind_than_ten() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let count = long_or(1000, 14);
        let number = count.to_string();
        let arguments = ["--light", "--resources", "--recoveries", &number, "--seconds", "36000"];
        let probe = Process::start(&mut replaying(&sim, &arguments));
        sim.wait_event(&probe, "ready");
        for done in 0..count {
            match ["oob", "trap", ""][done % 3] {
                "" => kill(Pid::from_raw(sim.server()), Signal::SIGKILL).expect("it runs"),
                kind => assert!(error_of(&sim.run("mps-aggressor", &[kind])).is_some(), "{subject}: {kind}"),
            }
            let dir = sim.lab.dir();
            let is_recovered = || {
                let output = probe.output();
                output.matches("\"event\":\"recovered\"").count() > done || output.contains("\"event\":\"error\"")
            };
            wait_for(dir, dir, LIMIT, "a recovery", is_recovered);
        }
        let finished = probe.finish(LIMIT).expect("it ends");
        is_whole(&finished, u64::try_from(count).expect("it is small"), &subject.to_string());
        is_flat(&finished, "recovered", count);
    });
}
