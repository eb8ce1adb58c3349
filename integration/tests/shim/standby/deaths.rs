//! Whoever dies while a standby maps ahead, nothing is lost or leaks.

use super::{CONFIG, MAPPING, REGIONS, STANDBY, Scene, TAKES_MEMORY_FILES, WITHDRAWN, is_whole, wait};
use crate::steps::{Victim, armed, is_succeeded, strike};
use integration::lab::LIMIT;
use integration::lab::half_dead::HalfDead;
use integration::lab::process::ended_within;
use integration::shim::heir::Heir;
use integration::sim::Sim;
use integration::under_test::once;
use nix::sys::signal::{Signal, kill};

#[test]
fn whoever_is_killed_at_any_step_of_mapping_ahead_nothing_is_lost_or_leaks() {
    once(|subject| {
        for victim in [Victim::Program, Victim::Daemon] {
            for step in MAPPING {
                let context = format!("{victim:?} at {step}");
                let mut scene = Scene::new(subject);
                let variables = armed(victim, step, 1);
                let more: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let standby = scene.standby(&more);
                scene.predecessor_dies();
                strike(&scene.sim, standby.pid(), victim, step);
                scene.server_goes_on();
                if victim == Victim::Daemon {
                    is_whole(&standby.event("adopted"));
                }
                standby.kill_9();
                is_succeeded(&scene.sim, &[6], &context);
            }
        }
    });
}

#[test]
fn a_standby_that_dies_when_it_has_given_an_offer_back_leaves_all_to_the_next() {
    once(|subject| {
        let mut scene = Scene::new(subject);
        let variables = armed(Victim::Program, WITHDRAWN, 1);
        let more: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let standby = scene.standby(&more);
        scene.predecessor_dies();
        scene.waits_until_mapped(&standby, REGIONS);
        let daemon = scene.sim.lab.running_daemon();
        kill(daemon, Signal::SIGKILL).expect("it is ours");
        scene.sim.lab.wait_gone(daemon);
        scene.sim.lab.start(&[]);
        assert!(ended_within(standby.pid(), LIMIT), "it comes to {WITHDRAWN}");
        scene.server_goes_on();
        standby.kill_9();
        is_succeeded(&scene.sim, &[6], WITHDRAWN);
    });
}

#[test]
fn a_daemon_killed_when_it_knows_of_the_end_or_has_offered_costs_nothing() {
    once(|subject| {
        for point in ["owner-ends-seen", "offer-made"] {
            let sim = Sim::new(subject, &[TAKES_MEMORY_FILES]);
            sim.config(CONFIG);
            let mut daemon = sim.lab.command(&["-f"]).env("MPS_TEST_KILL_AT", point).spawn().expect("it starts");
            wait(&sim, "the door", || sim.lab.pipe_dir().join("shim").exists());
            let mut primary = Heir::start(&sim, "llm");
            primary.succeeds("make small 5000 1", "made");
            primary.succeeds("make large 34603012 3", "made");
            primary.succeeds("commit 6 10000", "committed");
            let mut standby = Heir::begin(&sim, "llm", &STANDBY);
            let _ready = standby.event("ready");
            standby.tell("wait 60000");
            let dying = HalfDead::keep(primary.pid());
            kill(primary.pid(), Signal::SIGKILL).expect("it is ours");
            assert!(!daemon.wait().expect("our child").success(), "it dies at {point}");
            sim.lab.start(&[]);
            drop(dying);
            let adopted = standby.event("adopted");
            assert_eq!((&adopted["code"], &adopted["is_intact"]), (&0.into(), &true.into()), "{point}: {adopted}");
            primary.kill_9();
            standby.kill_9();
            is_succeeded(&sim, &[6], point);
        }
    });
}
