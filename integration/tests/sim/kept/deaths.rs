//! A daemon that dies suddenly at every step of a change.

use super::House;
use integration::under_test::{Subject, for_each, only_ours};
use std::fs;

const COMMANDS: [&str; 6] = [
    "set_default_active_thread_percentage 30",
    "server create other",
    "namespace create jobs --server=training",
    "server set training --active-thread-percentage=10",
    "namespace delete old --server=training",
    "server delete training",
];

/// A daemon that dies at the first of these points that a command comes to, and what its successor has.
fn dies_at(subject: &Subject, points: &[&str]) {
    let house = House::new(subject);
    for line in COMMANDS {
        let _ = fs::remove_dir_all(&house.folder);
        house.start();
        house.does("server create training");
        house.does("namespace create old --server=training");
        let before = house.everything();
        house.quit();
        house.start();
        assert_eq!(house.says(line), Some(0), "{line}");
        let after = house.everything();
        assert_ne!(before, after, "{line}");
        house.quit();
        for point in points {
            for everything in [false, true] {
                let _ = fs::remove_dir_all(&house.folder);
                fs::create_dir(&house.folder).expect("the bench's folder is ours");
                fs::write(house.file(), &before.2).expect("the bench's folder is ours");
                let mut armed = house.sim.lab.command(&["-d"]);
                armed.env("MPS_TEST_KILL_AT", point);
                assert_eq!(house.sim.lab.finish(&mut armed, b"").code, Some(0), "{subject}: {point}");
                let daemon = house.sim.lab.running_daemon();
                let _ = house.says(line);
                house.sim.lab.wait_gone(daemon);
                if everything {
                    house.pull_the_plug();
                }
                house.start();
                let found = house.everything();
                let which = format!("{subject}: {line}, {point}, everything {everything}");
                assert!(found == before || found == after, "{which}: {found:?}");
                let is_kept = ["state-renamed", "state-kept", "state-known", "answered"].contains(point);
                if everything {
                    assert_eq!(found == after, is_kept, "{which}: the file says which");
                }
                if *point == "answered" {
                    assert_eq!(found, after, "{which}: an answer was given");
                }
                house.quit();
            }
        }
    }
}

#[test]
fn sudden_death_while_a_change_is_written_leaves_what_was_before_or_after_it() {
    for_each(only_ours(), |subject| dies_at(subject, &["state-asked", "state-written", "state-renamed"]));
}

#[test]
fn sudden_death_after_a_change_was_written_leaves_what_was_before_or_after_it_and_an_answer_is_kept() {
    for_each(only_ours(), |subject| dies_at(subject, &["state-kept", "state-known", "answered"]));
}
