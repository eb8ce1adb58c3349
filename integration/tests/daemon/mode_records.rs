//! Compute modes when daemon and holder are killed together, and when several daemons of a machine have changed one.

use crate::compute_mode::{MANAGE, bench, ends, launch, quits, set, start, tell_to_end, wait_managed, wait_mode};
use integration::lab::LIMIT;
use integration::lab::process::ended_within;
use integration::lab::stage::{Part, Stage};
use integration::nvml::{DEFAULT, EXCLUSIVE_PROCESS, Gpus, PROHIBITED};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;

/// SIGKILL for the daemon and its holder, as at the end of a container, and for its servers.
fn kill_everything(stage: &Stage) {
    let processes = stage.processes();
    assert!(processes.iter().any(|(part, _)| *part == Part::Holder));
    for (_, pid) in &processes {
        // A server may end by itself when the two are gone.
        let _ = kill(*pid, Signal::SIGKILL);
    }
    assert!(processes.iter().all(|(_, pid)| ended_within(*pid, LIMIT)), "a killed process lives on");
    assert!(stage.daemon().ended_within(LIMIT));
}

/// The record of the first GPU in the pipe directory.
fn record(stage: &Stage) -> PathBuf {
    stage.pipe_dir().join(format!("compute-mode.{}", Gpus::uuid(0)))
}

fn machines_record(stage: &Stage) -> PathBuf {
    stage.lab().dir().join("records").join(format!("compute-mode.{}", Gpus::uuid(0)))
}

/// Starts a daemon that changes the mode, and kills it with its holder.
fn leave_behind(stage: &mut Stage, gpus: &Gpus) {
    start(stage, gpus);
    wait_managed(stage);
    kill_everything(stage);
    assert_eq!(gpus.mode(0), DEFAULT);
}

/// Another bench whose daemon has the same GPUs and the same folder of the machine.
fn beside(first: &Stage, gpus: &Gpus) -> Stage {
    let mut second = Stage::new();
    second.config(&format!("{MANAGE}records = \"{}\"\n", first.lab().dir().join("records").display()));
    start(&mut second, gpus);
    wait_managed(&second);
    second
}

#[test]
fn a_mode_that_was_left_behind_by_killed_processes_is_given_back_when_the_next_daemon_ends() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        leave_behind(stage, gpus);
        start(stage, gpus);
        wait_managed(stage);
        stage.wait_for("the line", || stage.daemon().output().contains("was killed with its holder"));
        quits(stage);
        assert_eq!(gpus.sets(), set(&[DEFAULT, EXCLUSIVE_PROCESS]));
        assert_eq!((record(stage).exists(), machines_record(stage).exists()), (false, false));
        // And once more, when nothing of it is left but the directory that a new container has mounted.
        start(stage, gpus);
        wait_managed(stage);
        kill_everything(stage);
        fs::remove_dir_all(stage.lab().dir().join("records")).expect("it is ours");
        start(stage, gpus);
        wait_managed(stage);
        quits(stage);
        assert_eq!(gpus.mode(0), EXCLUSIVE_PROCESS);
    });
}

#[test]
fn a_mode_that_was_left_behind_is_given_back_at_once_by_a_daemon_that_leaves_modes_alone() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        leave_behind(stage, gpus);
        stage.config("");
        start(stage, gpus);
        wait_mode(stage, gpus, EXCLUSIVE_PROCESS);
        stage.wait_for("the record's end", || !record(stage).exists() && !machines_record(stage).exists());
        let said = quits(stage);
        assert!(said.contains("is given back now"), "{said}");
        assert_eq!(gpus.sets(), set(&[DEFAULT, EXCLUSIVE_PROCESS]));
    });
}

#[test]
fn the_next_daemon_of_another_directory_gives_back_what_was_left_behind() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        leave_behind(stage, gpus);
        let mut second = beside(stage, gpus);
        quits(&mut second);
        assert_eq!(gpus.mode(0), EXCLUSIVE_PROCESS);
        // What the first directory still says is void by now, and harms nobody.
        stage.config("");
        start(stage, gpus);
        stage.wait_for("the record's end", || !record(stage).exists());
        quits(stage);
        assert_eq!(gpus.sets(), set(&[DEFAULT, EXCLUSIVE_PROCESS]));
    });
}

#[test]
fn a_mode_that_somebody_has_set_since_is_not_given_back_by_the_next_daemon() {
    for config in ["", MANAGE] {
        bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
            leave_behind(stage, gpus);
            gpus.set_mode(0, PROHIBITED);
            stage.config(config);
            start(stage, gpus);
            stage.wait_for("the record's end", || !record(stage).exists() && !machines_record(stage).exists());
            quits(stage);
            assert_eq!((gpus.mode(0), gpus.sets()), (PROHIBITED, set(&[DEFAULT])), "{config}");
        });
    }
}

#[test]
fn a_mode_that_could_not_be_given_back_is_left_to_the_next_daemon() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        start(stage, gpus);
        wait_managed(stage);
        gpus.write("fail", "nvmlDeviceSetComputeMode 4\n");
        assert!(quits(stage).contains("is not given back"));
        assert_eq!(gpus.mode(0), DEFAULT);
        gpus.write("fail", "");
        start(stage, gpus);
        wait_managed(stage);
        quits(stage);
        assert_eq!(gpus.mode(0), EXCLUSIVE_PROCESS);
    });
}

#[test]
fn of_two_daemons_the_last_one_gives_the_mode_back_whichever_has_changed_it() {
    for first_ends_first in [true, false] {
        bench(&[EXCLUSIVE_PROCESS], |first, gpus| {
            start(first, gpus);
            wait_managed(first);
            let mut second = beside(first, gpus);
            let ends_first = if first_ends_first { &mut *first } else { &mut second };
            let said = quits(ends_first);
            assert!(said.contains("stays as it is for another daemon"), "{said}");
            assert_eq!(gpus.mode(0), DEFAULT, "the other one counts on it");
            let ends_last = if first_ends_first { &mut second } else { &mut *first };
            wait_managed(ends_last);
            quits(ends_last);
            assert_eq!(gpus.sets(), set(&[DEFAULT, EXCLUSIVE_PROCESS]));
            assert!(!machines_record(first).exists() && !record(first).exists());
        });
    }
}

#[test]
fn the_holder_of_a_killed_daemon_leaves_the_mode_to_another_daemon_and_gives_it_back_as_the_last() {
    bench(&[EXCLUSIVE_PROCESS], |first, gpus| {
        start(first, gpus);
        wait_managed(first);
        let mut second = beside(first, gpus);
        let ends = |stage: &Stage| {
            let holder = stage.only(Part::Holder);
            stage.kill_daemon();
            tell_to_end(holder);
            stage.lab().wait_gone(holder);
        };
        ends(first);
        assert_eq!(gpus.mode(0), DEFAULT, "the other one counts on it");
        // A holder without a daemon counts, too.
        let holder = second.only(Part::Holder);
        second.kill_daemon();
        start(first, gpus);
        wait_managed(first);
        assert!(quits(first).contains("stays as it is for another daemon"));
        tell_to_end(holder);
        second.lab().wait_gone(holder);
        assert_eq!(gpus.sets(), set(&[DEFAULT, EXCLUSIVE_PROCESS]));
        assert!(!machines_record(first).exists());
        drop(second.take_daemon());
    });
}

#[test]
fn a_killed_daemons_mode_is_given_back_by_the_other_one_when_that_ends() {
    bench(&[EXCLUSIVE_PROCESS], |first, gpus| {
        start(first, gpus);
        wait_managed(first);
        let mut second = beside(first, gpus);
        kill_everything(first);
        quits(&mut second);
        assert_eq!(gpus.sets(), set(&[DEFAULT, EXCLUSIVE_PROCESS]));
    });
}

#[test]
fn a_successor_keeps_its_part_beside_another_daemon() {
    bench(&[EXCLUSIVE_PROCESS], |first, gpus| {
        start(first, gpus);
        wait_managed(first);
        let mut second = beside(first, gpus);
        first.kill_daemon();
        start(first, gpus);
        wait_managed(first);
        first.daemon().signal(Signal::SIGUSR1);
        ends(first);
        start(first, gpus);
        wait_managed(first);
        let holder = first.only(Part::Holder);
        kill(holder, Signal::SIGKILL).expect("it is ours");
        first.wait_for("another holder", || first.pids(Part::Holder).iter().any(|pid| *pid != holder));
        assert!(quits(&mut second).contains("stays as it is for another daemon"));
        quits(first);
        assert_eq!(gpus.sets(), set(&[DEFAULT, EXCLUSIVE_PROCESS]));
    });
}

#[test]
fn what_is_no_record_is_told_and_changes_no_mode() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        leave_behind(stage, gpus);
        // What a daemon has written, from which each of the others differs.
        let text = fs::read_to_string(record(stage)).expect("it is there");
        fs::remove_dir_all(stage.lab().dir().join("records")).expect("it is ours");
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("every kernel has it");
        let other_boot = text.replace(boot.trim(), "01234567-89ab-cdef-0123-456789abcdef");
        let cases = [
            ("it is not whole", &text[..text.len() - 9], 0o600, 0),
            ("the machine has been started anew", &other_boot, 0o600, 0),
            ("it is another user's", &text, 0o600, 65_534),
            ("somebody else can write to it", &text, 0o666, 0),
        ];
        stage.config("");
        for (why, text, mode, owner) in cases {
            if owner != 0 && !nix::unistd::geteuid().is_root() {
                continue;
            }
            fs::write(record(stage), text).expect("it is ours");
            fs::set_permissions(record(stage), fs::Permissions::from_mode(mode)).expect("it is ours");
            chown(record(stage), Some(owner).filter(|owner| *owner != 0), None).expect("this is root");
            start(stage, gpus);
            let said = quits(stage);
            assert_eq!(said.matches(why).count(), 1, "{said}");
            assert_eq!((gpus.mode(0), gpus.sets()), (DEFAULT, set(&[DEFAULT])), "{why}");
            assert!(!record(stage).exists(), "{why}: it is said once");
        }
    });
}

#[test]
fn a_record_of_a_gpu_that_is_not_there_is_told_and_the_daemon_serves() {
    bench(&[EXCLUSIVE_PROCESS, DEFAULT], |stage, gpus| {
        leave_behind(stage, gpus);
        // The GPU has fallen off the bus.
        gpus.write("gpus", &format!("{}\n", Gpus::uuid(1)));
        for config in ["", MANAGE] {
            stage.config(config);
            start(stage, gpus);
            stage.wait_for("the line", || stage.daemon().output().contains("was killed with its holder"));
            stage.wait_for("an answer", || stage.ask("get_server_list\n").is_empty());
            let said = quits(stage);
            assert!(said.contains("is not given back its compute mode EXCLUSIVE_PROCESS"), "{config}: {said}");
            assert_eq!(gpus.sets(), set(&[DEFAULT]), "{config}");
        }
        // It is back.
        gpus.write("gpus", &format!("{}\n{}\n", Gpus::uuid(0), Gpus::uuid(1)));
        start(stage, gpus);
        wait_managed(stage);
        quits(stage);
        assert_eq!(gpus.mode(0), EXCLUSIVE_PROCESS);
    });
}

#[test]
fn a_record_that_cannot_be_written_is_told_and_the_mode_managed_all_the_same() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        // In a directory of its own name nothing can be put in its place.
        fs::create_dir_all(record(stage).join("x")).expect("the bench's folder is ours");
        stage.config(&format!("{MANAGE}records = \"/proc/none\"\n"));
        start(stage, gpus);
        wait_managed(stage);
        let said = quits(stage);
        assert_eq!(said.matches("nobody will know the mode").count(), 1, "{said}");
        assert!(said.contains("it is no regular file"), "{said}");
        assert_eq!(gpus.sets(), set(&[DEFAULT, EXCLUSIVE_PROCESS]));
    });
}

#[test]
fn doctor_tells_what_was_left_behind_and_what_is_to_be_done() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        let finding = |stage: &Stage| {
            let (name, folder) = gpus.environment();
            let finished = stage.lab().finish(stage.lab().command(&["doctor", "--json"]).env(name, folder), b"");
            let report: Value = serde_json::from_slice(&finished.stdout).expect("JSON");
            let all = report["findings"].as_array().expect("findings");
            all.iter().find(|finding| finding["id"] == "mode-records").expect("every check has one").clone()
        };
        assert_eq!(finding(stage)["severity"], "ok");
        start(stage, gpus);
        wait_managed(stage);
        let found = finding(stage);
        assert_eq!(found["severity"], "ok", "{found}");
        assert!(found["what"].as_str().is_some_and(|what| what.contains("when the daemon ends")), "{found}");
        kill_everything(stage);
        let found = finding(stage);
        assert_eq!(found["severity"], "warning", "{found}");
        let command = format!("nvidia-smi -i {} -c EXCLUSIVE_PROCESS", Gpus::uuid(0));
        assert!(found["advice"].as_str().is_some_and(|advice| advice.contains(&command)), "{found}");
        launch(stage, gpus, &[]);
        stage.wait_up();
        wait_managed(stage);
        quits(stage);
        assert_eq!(finding(stage)["severity"], "ok");
    });
}
