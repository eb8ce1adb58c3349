//! The program, its server and the daemon killed at every named step of allocation, escrow, adoption and recovery: nothing
//! torn is taken for good, nothing leaks, and the next client is served.
//!
//! The steps are those of `client-shim/src/process/failpoint.rs`; one that no scenario here takes fails a test. For the program's
//! own end it is killed there. For the others' it is stopped there, they are killed, and it goes on.

mod hit_again;
mod recovery;

use integration::lab::LIMIT;
use integration::lab::escrow::TAKES_MEMORY_FILES;
use integration::lab::process::ended_within;
use integration::shim;
use integration::shim::heir::Heir;
use integration::sim::{Sim, error_of, wait};
use integration::under_test::{Subject, once};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

use recovery::{REPLAY, UNPROVEN};

const STEPS: &str = include_str!("../../../client-shim/src/process/failpoint.rs");
/// Steps of a program that allocates, frees and commits, and which time of each is the one after its first commit.
const ALLOCATION: [(&str, u32); 11] = [
    ("memory-created", 2),
    ("memory-exported", 2),
    ("memory-mapped", 2),
    ("memory-allowed", 2),
    ("memory-noted", 2),
    ("escrow-sent", 2),
    ("escrow-answered", 2),
    ("release-sent", 1),
    ("release-answered", 1),
    ("commit-settled", 2),
    ("commit-answered", 2),
];
/// Steps of a program that takes over two pieces of memory: in the middle of the second where there are two.
const ADOPTION: [(&str, u32); 6] = [
    ("succession-answered", 1),
    ("adoption-imported", 2),
    ("adoption-mapped", 2),
    ("adoption-allowed", 2),
    ("adoption-noted", 2),
    ("adoption-done", 1),
];
/// Steps of a program that commits what it has a shadow of, a second time.
const SHADOW: [(&str, u32); 1] = [("shadow-copied", 2)];

/// Who is killed when the program has come to a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    Program,
    Servers,
    Daemon,
}

fn started(subject: &Subject) -> Sim {
    let sim = Sim::new(subject, &[TAKES_MEMORY_FILES]);
    sim.lab.start(&[]);
    sim
}

/// Has the step taken: the variables for the program.
pub(super) fn armed(victim: Victim, step: &str, time: u32) -> [(&'static str, String); 2] {
    let action = if victim == Victim::Program { "kill" } else { "stop" };
    let library = shim::with_steps().to_str().expect("a plain path").to_owned();
    [("LD_PRELOAD", library), ("MPS_SHIM_TEST_AT", format!("{action}:{step}:{time}"))]
}

fn is_stopped(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// The program has come to its step; whoever is to die there has died, and who is left goes on.
pub(super) fn strike(sim: &Sim, pid: Pid, victim: Victim, step: &str) {
    if victim == Victim::Program {
        assert!(ended_within(pid, LIMIT), "it does not come to {step}");
        return;
    }
    wait(sim, &format!("the stop at {step}"), || is_stopped(pid));
    match victim {
        Victim::Program => {}
        Victim::Servers => {
            for server in sim.servers() {
                // One that has ended meanwhile is as good.
                let _gone = kill(Pid::from_raw(server), Signal::SIGKILL);
                assert!(ended_within(Pid::from_raw(server), LIMIT), "{step}");
            }
        }
        Victim::Daemon => {
            let daemon = sim.lab.running_daemon();
            kill(daemon, Signal::SIGKILL).expect("it is ours");
            sim.lab.wait_gone(daemon);
            sim.lab.start(&[]);
        }
    }
    kill(pid, Signal::SIGCONT).expect("it is ours");
}

fn regions(sim: &Sim) -> usize {
    sim.lab.ask("vault list --json\n").lines().count()
}

/// Memory files that the daemon and its holder have open: of the vault, since no client is watched here.
fn files_held(sim: &Sim) -> usize {
    let of = |pid: Pid| {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        entries
            .filter(|entry| {
                fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().starts_with("/memfd:nvidia-vmm"))
            })
            .count()
    };
    let servers: Vec<Pid> = sim.servers().into_iter().map(Pid::from_raw).collect();
    sim.lab.processes().into_iter().filter(|pid| !servers.contains(pid)).map(of).sum()
}

/// What is in the vault is adopted whole at one of these commits; then nothing is left, and the next client is served.
pub(super) fn is_succeeded(sim: &Sim, generations: &[u64], context: &str) {
    let mut next = Heir::start(sim, "llm");
    let adopted = next.does("adopt 20000", "adopted");
    assert_eq!((&adopted["code"], &adopted["is_intact"]), (&0.into(), &true.into()), "{context}: {adopted}");
    let generation = adopted["recovery"]["generation"].as_u64().expect("a number");
    assert!(generations.contains(&generation), "{context}: {adopted}");
    // What it had freed after its last commit is said not to be there.
    let freed: &[&str] = if generation == 2 { &["large"] } else { &[] };
    let missing = adopted["missing"].as_array().expect("a list");
    assert!(missing.iter().all(|label| freed.iter().any(|freed| label == freed)), "{context}: {adopted}");
    assert!(next.ended().success(), "{context}");
    wait(sim, &format!("{context}: an empty vault"), || regions(sim) == 0);
    wait(sim, &format!("{context}: no descriptor of memory"), || files_held(sim) == 0);
    assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{context}: the next one is served");
}

/// Whether a program has met an error of the driver's, by one of its lines or its end.
fn is_lost(line: Option<&Value>) -> bool {
    line.is_none_or(|line| line["event"] == "error" || line["event"] == "lost")
}

fn allocation(victim: Victim) {
    once(|subject| {
        for (step, time) in ALLOCATION {
            let context = format!("{victim:?} at {step}");
            let sim = started(subject);
            let variables = armed(victim, step, time);
            let more: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let mut heir = Heir::begin(&sim, "llm", &more);
            let _ready = heir.event("ready");
            heir.succeeds("make small 5000 1", "made");
            heir.succeeds("commit 1 10000", "committed");
            let lines = ["make large 34603012 3", "commit 2 10000", "drop large", "commit 3 10000"];
            for line in lines {
                let _is_heard = heir.hears(line);
            }
            strike(&sim, heir.pid(), victim, step);
            let events: Vec<Option<Value>> = match victim {
                Victim::Program => Vec::new(),
                Victim::Servers | Victim::Daemon => {
                    let mut told = Vec::new();
                    while told.len() < lines.len()
                        && !told.last().is_some_and(|line: &Option<Value>| is_lost(line.as_ref()))
                    {
                        told.push(heir.line());
                    }
                    told
                }
            };
            if victim == Victim::Daemon {
                // Its end costs a running program nothing.
                let codes: Vec<Option<u64>> =
                    events.iter().map(|line| line.as_ref().and_then(|line| line["code"].as_u64())).collect();
                assert_eq!(codes, [Some(0); 4], "{context}: {events:?}");
            }
            heir.kill_9();
            is_succeeded(&sim, if victim == Victim::Daemon { &[3] } else { &[1, 2, 3] }, &context);
        }
    });
}

#[test]
fn a_program_killed_at_any_step_of_an_allocation_or_a_commit_leaves_its_last_commit() {
    allocation(Victim::Program);
}

#[test]
fn a_server_killed_at_any_step_of_an_allocation_or_a_commit_costs_no_committed_byte() {
    allocation(Victim::Servers);
}

#[test]
fn a_daemon_killed_at_any_step_of_an_allocation_or_a_commit_costs_nothing() {
    allocation(Victim::Daemon);
}

#[test]
fn whoever_is_killed_while_a_shadow_is_made_the_copy_is_that_of_the_commit() {
    once(|subject| {
        for victim in [Victim::Program, Victim::Servers, Victim::Daemon] {
            for (step, time) in SHADOW {
                let context = format!("{victim:?} at {step}");
                let sim = started(subject);
                let variables = armed(victim, step, time);
                let more: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let mut heir = Heir::begin(&sim, "llm", &more);
                let _ready = heir.event("ready");
                heir.succeeds("make shadowed 34603012 1", "made");
                heir.succeeds("commit 1 10000", "committed");
                heir.succeeds("write shadowed 2", "written");
                heir.tell("commit 2 10000");
                strike(&sim, heir.pid(), victim, step);
                if victim != Victim::Program {
                    let line = heir.line();
                    assert!(victim == Victim::Servers || !is_lost(line.as_ref()), "{context}: {line:?}");
                }
                heir.kill_9();
                let mut next = Heir::start(&sim, "llm");
                let adopted = next.does("adopt 20000", "adopted");
                let generation = adopted["recovery"]["generation"].as_u64();
                let expected = if victim == Victim::Daemon { &[Some(2)][..] } else { &[Some(1), Some(2)] };
                assert!(adopted["code"] == 0 && expected.contains(&generation), "{context}: {adopted}");
                // Whatever has become of the range, the copy is the one of the commit that is found.
                let restored = next.does("restore shadowed", "restored");
                assert_eq!((&restored["code"], &restored["is_intact"]), (&0.into(), &true.into()), "{context}");
                assert!(next.ended().success(), "{context}");
                wait(&sim, &format!("{context}: an empty vault"), || regions(&sim) == 0);
            }
        }
    });
}

fn adoption(victim: Victim) {
    once(|subject| {
        for (step, time) in ADOPTION {
            let context = format!("{victim:?} at {step}");
            let sim = started(subject);
            let mut first = Heir::start(&sim, "llm");
            first.succeeds("make small 5000 1", "made");
            first.succeeds("make large 34603012 3", "made");
            first.succeeds("commit 6 10000", "committed");
            first.kill_9();
            let variables = armed(victim, step, time);
            let more: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let mut second = Heir::begin(&sim, "llm", &more);
            let _ready = second.event("ready");
            second.tell("adopt 20000");
            strike(&sim, second.pid(), victim, step);
            if victim != Victim::Program {
                let adopted = second.line();
                if let Some(adopted) = adopted.filter(|line| !is_lost(Some(line))) {
                    // What it says that it has adopted is what was there.
                    assert!(adopted["code"] != 0 || adopted["is_intact"] == true, "{context}: {adopted}");
                    assert!(victim != Victim::Daemon || adopted["code"] == 0, "{context}: {adopted}");
                } else {
                    assert_eq!(victim, Victim::Servers, "{context}");
                }
            }
            second.kill_9();
            is_succeeded(&sim, &[6], &context);
        }
    });
}

#[test]
fn a_program_killed_at_any_step_of_an_adoption_is_succeeded_itself() {
    adoption(Victim::Program);
}

#[test]
fn a_server_killed_at_any_step_of_an_adoption_costs_no_byte() {
    adoption(Victim::Servers);
}

#[test]
fn a_daemon_killed_at_any_step_of_an_adoption_costs_nothing() {
    adoption(Victim::Daemon);
}

#[test]
fn every_step_is_taken_by_a_test() {
    let list = STEPS.split_once("POINTS: &[&str] = &[").expect("the list").1.split_once("];").expect("its end").0;
    let named: BTreeSet<&str> =
        list.lines().filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\",")).collect();
    let counted = ALLOCATION.iter().chain(&ADOPTION).chain(&SHADOW).map(|(step, _)| *step);
    let taken = counted.chain(REPLAY).chain(UNPROVEN).chain(super::spare::MAKING).chain(super::spare::SWITCH);
    let taken = taken.chain(super::standby::MAPPING).chain([super::standby::WITHDRAWN]);
    let alone = [super::early_end::ERROR_ANSWERED, super::arrays::TAKEN];
    let taken: BTreeSet<&str> = taken.chain(alone).collect();
    assert!(!named.is_empty());
    assert_eq!(named, taken);
}
