//! Commits and succession: how far a program has come outlives it and the daemon, and exactly one process gets its name.

use crate::kept_memory::{OTHER, ROOT, idle, start, start_armed};
use integration::lab::LIMIT;
use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage, descriptors};
use integration::lab::sudden_death::{died, nothing_leaks};
use nix::sys::signal::{Signal, kill};

/// A program with one region and a commit; its pid.
fn committed(stage: &Stage, uid: u32, generation: u64) -> (Program, i32) {
    let mut program = Program::with_memory(stage, uid);
    program.does("escrow 1 llm", "done 1");
    program.does(&format!("commit llm {generation}"), "done 0");
    let pid = program.pid().as_raw();
    (program, pid)
}

#[test]
fn a_successor_learns_how_far_its_predecessor_was_whatever_became_of_the_daemon() {
    let baseline = idle();
    Stage::run(|stage| {
        start(stage);
        let (mut first, pid) = committed(stage, ROOT, 1);
        first.does("commit llm 2", "done 0");
        stage.kill_daemon();
        start(stage);
        first.does("commit llm 3", "done 0");
        first.kill_9();
        stage.kill_daemon();
        start(stage);
        let mut second = Program::with_memory(stage, ROOT);
        let inherited = format!("after {pid} at 3 at rest SERVER, 1 intact, done 1");
        second.does("succeed llm 10000", &inherited);
        second.does("succeed llm 10000", &inherited);
        second.does("commit llm 4", "done 0");
        let second_pid = second.pid();
        second.kill_9();
        let mut third = Program::with_memory(stage, ROOT);
        third.does("succeed llm 10000", &format!("after {second_pid} at 4 at rest SERVER, 1 intact, done 1"));
        third.does("discard llm", "done 1");
        third.does("succeed llm 0", "failed NOT_FOUND");
        third.leave();
        nothing_leaks(stage, baseline, "discarded");
    });
}

#[test]
fn of_two_standbys_one_wins_and_the_other_waits_on() {
    Stage::run(|stage| {
        start(stage);
        let mut standbys = [Program::with_memory(stage, ROOT), Program::with_memory(stage, ROOT)];
        for standby in &mut standbys {
            standby.begins("stand llm 20000");
        }
        let (first, pid) = committed(stage, ROOT, 7);
        first.kill_9();
        let expected = format!("after {pid} at 7 at rest SERVER, 1 intact, done 1");
        let winner = std::cell::Cell::new(None);
        stage.wait_for("one of them to be activated", || {
            let said = standbys.iter().position(|standby| {
                let line = standby.line_within(std::time::Duration::ZERO);
                line.inspect(|line| assert_eq!(*line, expected)).is_some()
            });
            winner.set(said);
            said.is_some()
        });
        let winner = winner.get();
        let mut standbys = standbys.into_iter();
        let (a, b) = (standbys.next().expect("two"), standbys.next().expect("two"));
        let (winner, loser) = if winner == Some(0) { (a, b) } else { (b, a) };
        let winner_pid = winner.pid();
        winner.kill_9();
        assert_eq!(
            loser.line_within(LIMIT),
            Some(format!("after {winner_pid} at 7 at rest SERVER, 1 intact, done 1")),
            "it is activated after the one before"
        );
    });
}

#[test]
fn nobody_succeeds_the_living_and_no_other_user_the_dead() {
    Stage::run(|stage| {
        start(stage);
        let (first, pid) = committed(stage, OTHER, 1);
        let mut second = Program::with_memory(stage, OTHER);
        second.does("succeed llm 100", "failed NOT_YET");
        second.does("commit llm 9", "failed NAME_IN_USE");
        second.does("stand nobody 100", "failed NOT_YET");
        first.kill_9();
        for user in [ROOT, OTHER + 1] {
            let mut other = Program::with_memory(stage, user);
            other.does("succeed llm 100", "failed NOT_FOUND");
            other.does("stand llm 100", "failed NOT_YET");
            other.does(&format!("fate {pid}"), "NONE");
        }
        second.does("succeed llm 10000", &format!("after {pid} at 1 at rest SERVER, 1 intact, done 1"));
    });
}

#[test]
fn a_daemon_killed_at_any_step_of_a_commit_or_a_succession_loses_none() {
    let baseline = idle();
    for point in ["commit-asked", "commit-held", "commit-safe"] {
        Stage::run(|stage| {
            start_armed(stage, &format!("{point}:2"));
            let (mut first, pid) = committed(stage, ROOT, 1);
            first.begins("commit llm 2");
            died(stage, point);
            start(stage);
            first.expect("done 0");
            first.kill_9();
            let mut next = Program::with_memory(stage, ROOT);
            next.does("succeed llm 10000", &format!("after {pid} at 2 at rest SERVER, 1 intact, done 1"));
            next.does("discard llm", "done 1");
            next.leave();
            nothing_leaks(stage, baseline, point);
        });
    }
    for point in ["owner-end-seen", "owner-end-noted", "succession-known", "succession-noted", "succession-safe"] {
        Stage::run(|stage| {
            start_armed(stage, point);
            let (first, pid) = committed(stage, ROOT, 1);
            let mut standby = Program::with_memory(stage, ROOT);
            standby.begins("stand llm 20000");
            first.kill_9();
            died(stage, point);
            start(stage);
            standby.expect(&format!("after {pid} at 1 at rest SERVER, 1 intact, done 1"));
            standby.does("discard llm", "done 1");
            standby.leave();
            nothing_leaks(stage, baseline, point);
        });
    }
}

#[test]
fn a_killed_holder_gets_the_commits_again_and_a_signal_hands_them_over() {
    Stage::run(|stage| {
        start(stage);
        let (mut first, pid) = committed(stage, ROOT, 1);
        let old = stage.only(Part::Holder);
        kill(old, Signal::SIGKILL).expect("it is ours");
        stage.wait_for("another holder", || {
            let holders = stage.pids(Part::Holder);
            !holders.is_empty() && !holders.contains(&old)
        });
        first.does("list", "1 owned, done 1");
        stage.daemon().signal(Signal::SIGUSR1);
        assert!(stage.take_daemon().ended_within(LIMIT));
        start(stage);
        first.kill_9();
        let mut next = Program::with_memory(stage, ROOT);
        next.does("succeed llm 10000", &format!("after {pid} at 1 at rest SERVER, 1 intact, done 1"));
    });
}

#[test]
fn who_has_asked_in_vain_is_no_longer_watched() {
    Stage::run(|stage| {
        start(stage);
        let daemon = stage.daemon().pid();
        let mut programs: Vec<Program> = (0..5).map(|_| Program::with_memory(stage, ROOT)).collect();
        programs.iter_mut().for_each(|program| program.does("fate 1", "NONE"));
        let before = descriptors(daemon);
        for program in &mut programs {
            program.does("succeed llm 0", "failed NOT_FOUND");
            program.does("stand llm 1", "failed NOT_YET");
        }
        // A watch has a descriptor of the process.
        stage.wait_for("all watches to be over", || descriptors(daemon) <= before);
        // Asked again, and not in vain, its end is noticed all the same.
        let (mut first, mut second) = (programs.swap_remove(0), programs.swap_remove(0));
        let pid = second.pid();
        second.does("commit llm 1", "done 0");
        second.kill_9();
        first.does("succeed llm 20000", &format!("after {pid} at 1 at rest SERVER, done 0"));
        first.leave();
    });
}
