//! Memory that outlives its program, the daemon and the holder.

use crate::kept_memory::{ROOT, idle, start, start_armed};
use integration::lab::escrow::{Shim, TAKES_MEMORY_FILES};
use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage};
use integration::lab::sudden_death::{AtRest, died, nothing_leaks};
use nix::sys::signal::{Signal, kill};

#[test]
fn memory_outlives_its_program_and_the_daemon_and_is_adopted_to_the_bit() {
    let baseline = idle();
    Stage::run(|stage| {
        start(stage);
        let mut first = Program::with_memory(stage, ROOT);
        for key in 1..=3 {
            first.does(&format!("escrow {key} weights"), "done 1");
        }
        first.does("escrow 9 -", "done 1");
        first.does("hand-back", "1 intact, 2 intact, 3 intact, 9 intact, done 4");
        first.kill_9();
        stage.kill_daemon();
        start(stage);
        let mut second = Program::with_memory(stage, ROOT);
        second.does("list", "1 orphaned, 2 orphaned, 3 orphaned, done 3");
        assert_eq!(stage.ask("vault list --wide\n").lines().count(), 4, "a heading and three regions");
        let metrics = stage.ask("metrics\n");
        assert!(metrics.contains("of=\"dead\"} 6291456"), "{metrics}");
        second.does("adopt weights", "1 intact, 2 intact, 3 intact, done 3");
        // Once more, as after a lost answer.
        second.does("adopt weights", "1 intact, 2 intact, 3 intact, done 3");
        second.does("release 2", "done 1");
        stage.kill_daemon();
        start(stage);
        second.does("hand-back", "1 intact, 3 intact, done 2");
        for key in [1, 3] {
            second.does(&format!("release {key}"), "done 1");
        }
        second.leave();
        nothing_leaks(stage, baseline, "everything released");
    });
}

#[test]
fn a_daemon_killed_at_any_step_of_an_escrow_keeps_the_region_or_is_asked_again() {
    let baseline = idle();
    for point in ["region-asked", "region-held", "region-safe"] {
        Stage::run(|stage| {
            start_armed(stage, point);
            let mut program = Program::with_memory(stage, ROOT);
            program.begins("escrow 1 weights");
            died(stage, point);
            start(stage);
            program.expect("done 1");
            program.does("list", "1 owned, done 1");
            program.kill_9();
            let mut next = Program::with_memory(stage, ROOT);
            next.does("adopt weights", "1 intact, done 1");
            next.does("release 1", "done 1");
            next.leave();
            nothing_leaks(stage, baseline, point);
        });
    }
}

#[test]
fn a_daemon_killed_at_any_step_of_an_adoption_leaves_all_of_a_name_or_nothing() {
    for point in ["adoption-known", "adoption-half-noted:4", "adoption-half-noted:5", "adoption-noted"] {
        Stage::run(|stage| {
            start_armed(stage, point);
            let mut first = Program::with_memory(stage, ROOT);
            for key in 1..=3 {
                first.does(&format!("escrow {key} weights"), "done 1");
            }
            // Its end is the first three notes.
            first.kill_9();
            let mut second = Program::with_memory(stage, ROOT);
            while_owner_lives(&mut second, "adopt weights");
            died(stage, point);
            start(stage);
            second.expect("1 intact, 2 intact, 3 intact, done 3");
            second.does("list", "1 owned, 2 owned, 3 owned, done 3");
        });
    }
}

/// Has a name adopted by a program whose predecessor's end the daemon may not have seen yet; the answer is not awaited.
fn while_owner_lives(program: &mut Program, line: &str) {
    // The end of the first is seen before its successor's request, or this would have to ask again.
    program.begins("list");
    let listed = program.line_within(integration::lab::LIMIT).expect("a list");
    if listed.contains("owned") {
        return while_owner_lives(program, line);
    }
    program.begins(line);
}

#[test]
fn a_daemon_killed_while_it_lets_go_loses_count_of_nothing() {
    let baseline = idle();
    for point in ["region-released", "owner-end-seen", "owner-end-noted", "vault-restored"] {
        Stage::run(|stage| {
            stage.config("[vault]\nttl = 0.3\n");
            if point == "vault-restored" {
                start(stage);
            } else {
                start_armed(stage, point);
            }
            let mut program = Program::with_memory(stage, ROOT);
            program.does("escrow 1 weights", "done 1");
            program.does("escrow 2 -", "done 1");
            if point == "region-released" {
                program.begins("release 1");
            } else if point == "vault-restored" {
                stage.kill_daemon();
                stage.launch(&[], &[TAKES_MEMORY_FILES, ("MPS_TEST_KILL_AT", point)]);
            }
            if point != "region-released" {
                program.kill_9();
            }
            died(stage, point);
            start(stage);
            nothing_leaks_but_a_program(stage, baseline, point);
        });
    }
}

/// The program of the released region still has another one without a name, and a connection.
fn nothing_leaks_but_a_program(stage: &Stage, mut baseline: AtRest, point: &str) {
    if point == "region-released" {
        baseline = [baseline[0] + 8, baseline[1] + 1];
    }
    nothing_leaks(stage, baseline, point);
}

#[test]
fn what_nobody_adopts_in_time_is_freed() {
    let baseline = idle();
    Stage::run(|stage| {
        stage.config("[vault]\nttl = 0.3\n");
        start(stage);
        let mut first = Program::with_memory(stage, ROOT);
        first.does("escrow 1 weights", "done 1");
        first.kill_9();
        stage.wait_for("an empty vault", || stage.ask("vault list --json\n").is_empty());
        nothing_leaks(stage, baseline, "the time is over");
        Program::with_memory(stage, ROOT).does("adopt weights", "failed NOT_FOUND");
    });
}

#[test]
fn a_signal_hands_the_vault_over_and_a_killed_holder_gets_it_again() {
    Stage::run(|stage| {
        start(stage);
        let mut program = Program::with_memory(stage, ROOT);
        program.does("escrow 1 weights", "done 1");
        let old = stage.only(Part::Holder);
        kill(old, Signal::SIGKILL).expect("it is ours");
        stage.wait_for("another holder", || {
            let holders = stage.pids(Part::Holder);
            !holders.is_empty() && !holders.contains(&old)
        });
        program.does("escrow 2 weights", "done 1");
        stage.daemon().signal(Signal::SIGUSR1);
        assert!(stage.take_daemon().ended_within(integration::lab::LIMIT));
        start(stage);
        program.does("hand-back", "1 intact, 2 intact, done 2");
    });
}

#[test]
fn a_vault_that_is_switched_off_has_no_door_and_lets_go_of_what_it_had() {
    let baseline = idle();
    Stage::run(|stage| {
        start(stage);
        let mut program = Program::with_memory(stage, ROOT);
        program.does("escrow 1 weights", "done 1");
        stage.kill_daemon();
        stage.config("[vault]\nenabled = false\n");
        start(stage);
        // The door of the daemon before is closed beside everything else that a start does.
        stage.wait_for("no door", || Shim::silent(stage.pipe_dir()).is_err());
        nothing_leaks(stage, baseline, "switched off");
    });
}
