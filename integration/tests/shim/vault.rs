//! What a program under the preloaded library keeps outlives the program and the daemon, and its successor takes it over.

use integration::lab::LIMIT;
use integration::lab::escrow::TAKES_MEMORY_FILES;
use integration::lab::watch::wait_for;
use integration::shim::heir::Heir;
use integration::sim::Sim;
use integration::under_test::once;
use nix::sys::signal::{Signal, kill};
use serde_json::Value;

const STANDBY: (&str, &str) = ("MPS_SHIM_STANDBY", "1");

fn started(subject: &integration::under_test::Subject) -> Sim {
    let sim = Sim::new(subject, &[TAKES_MEMORY_FILES]);
    sim.lab.start(&[]);
    sim
}

/// The regions of the vault, as `vault list --json` has them.
fn regions(sim: &Sim) -> Vec<Value> {
    sim.lab.ask("vault list --json\n").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn wait_regions(sim: &Sim, count: usize) {
    let dir = sim.lab.dir();
    wait_for(dir, dir, LIMIT, &format!("{count} regions"), || regions(sim).len() == count);
}

fn kill_daemon(sim: &Sim) {
    let daemon = sim.lab.running_daemon();
    kill(daemon, Signal::SIGKILL).expect("it is ours");
    sim.lab.wait_gone(daemon);
}

/// A program with memory in a shared slab and in one of its own, which has committed.
fn committed(sim: &Sim, name: &str, generation: u64) -> Heir {
    let mut heir = Heir::start(sim, name);
    heir.succeeds("make small 5000 1", "made");
    heir.succeeds("make constant 1048576 2", "made");
    heir.succeeds("make large 34603012 3", "made");
    heir.succeeds(&format!("commit {generation} 10000"), "committed");
    heir
}

/// Looks whether all of it was adopted.
fn is_all(adopted: &Value, generation: u64, context: &str) {
    assert_eq!((&adopted["code"], &adopted["is_intact"]), (&0.into(), &true.into()), "{context}: {adopted}");
    assert_eq!(adopted["missing"], serde_json::json!([]), "{context}: {adopted}");
    let recovery = &adopted["recovery"];
    assert_eq!((&recovery["generation"], &recovery["ranges"]), (&generation.into(), &3.into()), "{context}: {adopted}");
    assert_eq!(adopted["in_doubt"], serde_json::json!(["large", "small"]), "{context}");
}

#[test]
fn a_program_without_a_name_or_a_daemon_runs_as_ever() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let mut alone = Heir::start(&sim, "llm");
        alone.succeeds("make small 5000 1", "made");
        assert_eq!(alone.does("commit 1 0", "committed")["code"], 4, "no daemon");
        assert!(alone.ended().success());
        let mut unnamed = Heir::begin(&sim, "", &[]);
        let _ready = unnamed.event("ready");
        assert_eq!(unnamed.does("adopt 0", "adopted")["code"], 3, "no name");
        assert!(unnamed.ended().success());
    });
}

#[test]
fn a_successor_has_the_memory_at_the_same_addresses_to_the_last_byte() {
    once(|subject| {
        let sim = started(subject);
        let mut first = Heir::start(&sim, "llm");
        assert_eq!(first.does("adopt 10000", "adopted")["code"], 1, "it is the first");
        drop(first);
        for end in ["kill -9", "fault oob", "fault trap", "abort"] {
            let mut heir = committed(&sim, "llm", 7);
            assert_eq!(regions(&sim).len(), 2, "a slab for the small ones, and the large one's own");
            if end == "kill -9" {
                heir.kill_9();
            } else {
                heir.tell(end);
                let _status = heir.ended();
            }
            let mut next = Heir::start(&sim, "llm");
            let adopted = next.does("adopt 20000", "adopted");
            is_all(&adopted, 7, end);
            // Whether the server is still sound when it is asked, or reaped already, is a matter of moments.
            let rest = adopted["recovery"]["rest"].as_u64();
            assert!(matches!(rest, Some(1 | 2)), "{end}: {adopted}");
            // It frees as if it had allocated, and what is freed leaves the vault.
            assert_eq!(next.does("drop large", "dropped")["code"], 0, "{end}");
            wait_regions(&sim, 1);
            next.succeeds("make other 3000000 9", "made");
            next.succeeds("commit 8 10000", "committed");
            // With status 0 nothing is left behind.
            assert!(next.ended().success(), "{end}");
            wait_regions(&sim, 0);
        }
    });
}

#[test]
fn a_daemon_that_is_killed_or_replaced_is_told_everything_anew() {
    once(|subject| {
        let sim = started(subject);
        let mut heir = committed(&sim, "llm", 1);
        kill_daemon(&sim);
        heir.succeeds("make meanwhile 40000000 5", "made");
        heir.succeeds("drop large", "dropped");
        sim.lab.start(&[]);
        heir.succeeds("commit 2 10000", "committed");
        assert_eq!(regions(&sim).len(), 2);
        let before = sim.lab.running_daemon();
        kill(before, Signal::SIGUSR1).expect("it is ours");
        sim.lab.wait_gone(before);
        sim.lab.start(&[]);
        heir.succeeds("commit 3 10000", "committed");
        heir.kill_9();
        let mut next = Heir::start(&sim, "llm");
        let adopted = next.does("adopt 10000", "adopted");
        assert_eq!((&adopted["code"], &adopted["is_intact"]), (&0.into(), &true.into()), "{adopted}");
        assert_eq!(adopted["recovery"]["generation"], 3, "{adopted}");
    });
}

#[test]
fn a_daemon_killed_at_any_step_costs_a_running_program_nothing() {
    once(|subject| {
        for point in ["region-asked", "region-held:2", "region-safe", "commit-asked", "commit-held", "commit-safe"] {
            let sim = Sim::new(subject, &[TAKES_MEMORY_FILES]);
            let armed = sim.lab.command(&["-f"]).env("MPS_TEST_KILL_AT", point).spawn();
            let mut armed = armed.expect("it starts");
            let dir = sim.lab.dir();
            wait_for(dir, dir, LIMIT, "the daemon", || sim.lab.pipe_dir().join("shim").exists());
            let mut heir = Heir::start(&sim, "llm");
            for line in ["make small 5000 1", "make constant 1048576 2", "make large 34603012 3"] {
                heir.succeeds(line, "made");
            }
            heir.tell("commit 1 20000");
            assert!(!armed.wait().expect("our child").success(), "it dies at {point}");
            sim.lab.start(&[]);
            assert_eq!(heir.event("committed")["code"], 0, "{point}");
            heir.kill_9();
            let mut next = Heir::start(&sim, "llm");
            is_all(&next.does("adopt 10000", "adopted"), 1, point);
            assert!(next.ended().success());
            wait_regions(&sim, 0);
        }
    });
}

#[test]
fn a_standby_is_activated_when_the_primary_is_gone_and_keeps_its_own_memory() {
    once(|subject| {
        let sim = started(subject);
        let primary = committed(&sim, "llm", 4);
        let mut standby = Heir::begin(&sim, "llm", &[STANDBY]);
        let _ready = standby.event("ready");
        standby.succeeds("make workspace 34603012 8", "made");
        assert_eq!(standby.does("wait 300", "adopted")["code"], 2, "the primary lives");
        assert_eq!(standby.does("commit 9 300", "committed")["code"], 2, "only who is activated commits");
        assert_eq!(regions(&sim).len(), 2, "nothing of the standby");
        standby.tell("wait 20000");
        primary.kill_9();
        let adopted = standby.event("adopted");
        is_all(&adopted, 4, "standby");
        assert_eq!(adopted["recovery"]["was_standby"], 1);
        standby.succeeds("commit 5 10000", "committed");
        assert_eq!(regions(&sim).len(), 3, "its own too");
        standby.kill_9();
        let mut third = Heir::start(&sim, "llm");
        let adopted = third.does("adopt 10000", "adopted");
        assert_eq!((&adopted["recovery"]["generation"], &adopted["is_intact"]), (&5.into(), &true.into()), "{adopted}");
    });
}

#[test]
fn a_successor_killed_in_the_middle_of_its_adoption_is_succeeded_itself() {
    once(|subject| {
        for line in ["adopt 20000", "wait 20000"] {
            let sim = started(subject);
            committed(&sim, "llm", 6).kill_9();
            let mut second = Heir::start(&sim, "llm");
            second.tell(line);
            // It dies at some point before, in or after the adoption.
            second.kill_9();
            let mut third = Heir::start(&sim, "llm");
            is_all(&third.does("adopt 20000", "adopted"), 6, line);
            assert!(third.ended().success());
            wait_regions(&sim, 0);
        }
    });
}

#[test]
fn a_name_that_another_process_has_is_not_taken_and_said_so() {
    once(|subject| {
        let sim = started(subject);
        let first = committed(&sim, "llm", 1);
        let mut second = Heir::start(&sim, "llm");
        second.succeeds("make small 5000 1", "made");
        assert_eq!(second.does("commit 2 5000", "committed")["code"], 11);
        assert_eq!(second.does("adopt 200", "adopted")["code"], 2);
        assert!(second.ended().success());
        assert_eq!(regions(&sim).len(), 2, "its end takes nothing of the first's along");
        drop(first);
    });
}

#[test]
fn memory_that_was_freed_is_there_again_at_once() {
    once(|subject| {
        let sim = started(subject);
        let mut heir = Heir::start(&sim, "llm");
        for round in 0..20 {
            heir.succeeds(&format!("make big 67108864 {round}"), "made");
            heir.succeeds("drop big", "dropped");
        }
        wait_regions(&sim, 0);
        assert!(heir.ended().success());
    });
}

#[test]
fn a_successor_on_the_spoilt_server_itself_is_told_to_come_again() {
    once(|subject| {
        let sim = Sim::new(subject, &[TAKES_MEMORY_FILES]);
        // No server ends here because its time is over.
        sim.config("[faults]\nvictims_timeout = 3600\n");
        sim.lab.start(&[]);
        let mut first = committed(&sim, "llm", 5);
        // It has a context before anybody knows of the fault.
        let mut second = Heir::start(&sim, "llm");
        first.tell("fault trap");
        let _launched = first.event("launched");
        assert_eq!(first.event("lost")["code"], 719);
        let _status = first.ended();
        let dir = sim.lab.dir();
        wait_for(dir, dir, LIMIT, "the taint", || sim.lab.ask("events --json\n").contains("\"server-tainted\""));
        // Its own server would wait for it, and it for its own server.
        assert_eq!(second.does("adopt 20000", "adopted")["code"], 12, "{subject}");
        second.kill_9();
        let mut third = Heir::start(&sim, "llm");
        is_all(&third.does("adopt 20000", "adopted"), 5, &subject.to_string());
    });
}

#[test]
fn a_shadowed_range_is_had_again_as_it_was_at_the_commit() {
    once(|subject| {
        let sim = started(subject);
        let mut first = Heir::start(&sim, "llm");
        first.succeeds("make shadowed 34603012 1", "made");
        assert_eq!(first.does("restore shadowed", "restored")["code"], 1, "no commit yet");
        for generation in 1..=3 {
            first.succeeds(&format!("write shadowed {}", 10 + generation), "written");
            first.succeeds(&format!("commit {generation} 10000"), "committed");
        }
        // What comes after the commit is in the range, and the copy is as it was.
        first.succeeds("write shadowed 99", "written");
        assert_eq!(regions(&sim).len(), 3, "the range and two copies");
        first.kill_9();
        let mut next = Heir::start(&sim, "llm");
        let adopted = next.does("adopt 20000", "adopted");
        assert_eq!((&adopted["code"], &adopted["is_intact"]), (&0.into(), &false.into()), "{subject}: {adopted}");
        assert_eq!(adopted["recovery"]["ranges"], 1, "{subject}: {adopted}");
        assert_eq!(adopted["in_doubt"], serde_json::json!(["shadowed"]), "{subject}");
        for _ in 0..2 {
            let restored = next.does("restore shadowed", "restored");
            assert_eq!((&restored["code"], &restored["is_intact"]), (&0.into(), &true.into()), "{subject}: {restored}");
        }
        next.succeeds("commit 4 10000", "committed");
        next.succeeds("drop shadowed", "dropped");
        next.succeeds("commit 5 10000", "committed");
        assert!(next.ended().success(), "{subject}");
        wait_regions(&sim, 0);
    });
}
