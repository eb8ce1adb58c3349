//! Daemons that kill themselves at a named point (`controld/src/failpoint.rs`), and what must be left of it.

use super::LIMIT;
use super::program::Program;
use super::stage::{Part, Stage, descriptors};
use std::time::{Duration, Instant};

/// Descriptors of daemon and holder.
pub type AtRest = [usize; 2];

/// Starts a daemon that dies at `point` and waits until newcomers find its socket.
pub fn launch_armed(stage: &mut Stage, point: &str) {
    stage.launch(&[], &[("MPS_TEST_KILL_AT", point)]);
    stage.wait_for("the control socket", || stage.pipe_dir().join("control").exists());
}

/// Starts a successor that dies at `point`, and waits until it has taken over.
pub fn succeed_armed(stage: &mut Stage, point: &str) {
    stage.kill_daemon();
    stage.launch(&[], &[("MPS_TEST_KILL_AT", point)]);
    let pid_file = stage.pipe_dir().join("nvidia-cuda-mps-control.pid");
    let own = stage.daemon().pid().to_string();
    stage.wait_for("the successor", || std::fs::read_to_string(&pid_file).is_ok_and(|text| text == own));
}

/// Waits until the daemon has come to its point and is dead.
pub fn died(stage: &Stage, point: &str) {
    assert!(stage.daemon().ended_within(LIMIT), "the daemon does not come to {point}");
}

/// Waits until there is one server for each of `users` and no other, and the daemon knows them all.
pub fn settled(stage: &Stage, users: usize) {
    stage.wait_for("one server for each user, known to the daemon", || {
        let running = stage.pids(Part::Server);
        // A program that was killed before has its server replaced, so both may still change.
        running.len() == users && {
            let mut known = stage.servers();
            known.sort();
            known == running
        }
    });
}

/// How many descriptors daemon and holder have when everybody has left an idle server.
#[must_use]
pub fn at_rest(stage: &Stage) -> AtRest {
    [stage.daemon().pid(), stage.only(Part::Holder)].map(|pid| descriptors(pid).expect("it runs"))
}

/// What [`at_rest`] is on a bench whose daemon nobody has killed, with these users' servers.
#[must_use]
pub fn never_killed(users: &[u32]) -> AtRest {
    let mut counts = [0; 2];
    Stage::run(|stage| {
        stage.start(&[]);
        users
            .iter()
            .map(|user| Program::attached(stage, *user))
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(Program::leave);
        counts = steady(stage);
    });
    counts
}

/// The counts once they no longer change: the same for a while. Right after a start the connections that the start
/// needed may still be open, and who took those into account would find later that nothing is left too soon.
#[must_use]
pub fn steady(stage: &Stage) -> AtRest {
    const QUIET: Duration = Duration::from_millis(200);
    let mut last = (at_rest(stage), Instant::now());
    let deadline = Instant::now() + LIMIT;
    let found = std::cell::Cell::new(last.0);
    while last.1.elapsed() < QUIET && Instant::now() < deadline {
        let _ = super::watch::became_true(stage.pipe_dir(), stage.pipe_dir(), QUIET, || at_rest(stage) != found.get());
        let now = at_rest(stage);
        if now != last.0 {
            last = (now, Instant::now());
        }
        found.set(now);
    }
    last.0
}

/// Waits until daemon and holder have no more descriptors than `baseline`.
pub fn nothing_leaks(stage: &Stage, baseline: AtRest, point: &str) {
    let fits = || {
        let now = at_rest(stage);
        now[0] <= baseline[0] && now[1] <= baseline[1]
    };
    let done = super::watch::became_true(stage.pipe_dir(), stage.pipe_dir(), LIMIT, fits);
    assert!(done, "{point}: descriptors of daemon and holder {:?}, without a kill {baseline:?}", at_rest(stage));
}
