//! Compute modes on simulated GPUs: what is set, and what is given back whatever becomes of the daemon.

use integration::lab::LIMIT;
use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage};
use integration::nvml::{DEFAULT, EXCLUSIVE_PROCESS, Gpus, PROHIBITED};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

pub(crate) const MANAGE: &str = "[gpu]\ncompute_mode = \"manage\"\ninterval = 0.2\n";
pub(crate) const ROOT: u32 = 0;

/// A bench, and GPUs in these modes.
pub(crate) fn bench(modes: &[u32], test: impl FnOnce(&mut Stage, &Gpus)) {
    Stage::run(|stage| {
        let gpus = Gpus::new(stage.lab().dir(), modes);
        stage.config(MANAGE);
        test(stage, &gpus);
    });
}

/// Starts a daemon that finds the GPUs, with these further variables.
pub(crate) fn launch(stage: &mut Stage, gpus: &Gpus, environment: &[(&str, &str)]) {
    let (name, folder) = gpus.environment();
    let folder = folder.into_string().expect("the bench's path is text");
    stage.launch(&[], &[&[(name, folder.as_str())], environment].concat());
}

pub(crate) fn start(stage: &mut Stage, gpus: &Gpus) {
    launch(stage, gpus, &[]);
    stage.wait_up();
}

pub(crate) fn wait_mode(stage: &Stage, gpus: &Gpus, mode: u32) {
    stage.wait_for("the mode", || gpus.mode(0) == mode);
}

/// Until the daemon itself has been told that it has set the mode, and has told others.
pub(crate) fn wait_managed(stage: &Stage) {
    stage.wait_for("the word of the mode", || {
        stage.ask("status --wide\n").contains("compute mode DEFAULT, EXCLUSIVE_PROCESS again when")
    });
}

pub(crate) fn ends(stage: &mut Stage) -> String {
    let finished = stage.take_daemon().finish(LIMIT).expect("it ends");
    assert_eq!(finished.code, Some(0), "{finished:?}");
    finished.stdout_text()
}

pub(crate) fn quits(stage: &mut Stage) -> String {
    assert_eq!(stage.ask("quit\n"), "");
    ends(stage)
}

/// Tells a holder without a daemon to end.
pub(crate) fn tell_to_end(holder: Pid) {
    kill(holder, Signal::SIGTERM).expect("it is ours");
    // One that holds no server may have ended of the first.
    let _ = kill(holder, Signal::SIGTERM);
}

pub(crate) fn events(stage: &Stage, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(stage.lab().log_dir().join("events.jsonl")).unwrap_or_default();
    let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    all.filter(|event| event["event"] == name).collect()
}

pub(crate) fn set(modes: &[u32]) -> Vec<(String, u32)> {
    modes.iter().map(|mode| (Gpus::uuid(0), *mode)).collect()
}

#[test]
fn a_managed_gpu_is_open_while_the_daemon_runs_and_exclusive_again_after_quit() {
    bench(&[EXCLUSIVE_PROCESS, DEFAULT], |stage, gpus| {
        start(stage, gpus);
        wait_mode(stage, gpus, DEFAULT);
        wait_managed(stage);
        let client = Program::attached(stage, ROOT);
        client.leave();
        let said = quits(stage);
        assert_eq!(gpus.sets(), set(&[DEFAULT, EXCLUSIVE_PROCESS]), "{said}");
        let told = events(stage, "compute-mode-changed");
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!((&told[0]["to"], &told[1]["to"]), (&"DEFAULT".into(), &"EXCLUSIVE_PROCESS".into()));
        assert!(told.iter().all(|event| event["cause"] == "daemon"));
        assert_eq!(stage.processes(), []);
    });
}

#[test]
fn sigterm_gives_the_mode_back_too() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        start(stage, gpus);
        wait_managed(stage);
        stage.daemon().signal(Signal::SIGTERM);
        ends(stage);
        assert_eq!(gpus.mode(0), EXCLUSIVE_PROCESS);
    });
}

#[test]
fn the_holder_gives_the_mode_back_when_a_killed_daemon_has_no_successor() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        stage.config(&format!("successor_wait = 0.3\n{MANAGE}"));
        start(stage, gpus);
        wait_managed(stage);
        let mut client = Program::attached(stage, ROOT);
        stage.kill_daemon();
        wait_mode(stage, gpus, EXCLUSIVE_PROCESS);
        assert_eq!(gpus.sets(), set(&[DEFAULT, EXCLUSIVE_PROCESS]));
        client.ping();
        // One that comes late begins anew.
        start(stage, gpus);
        wait_managed(stage);
        client.ping();
        client.leave();
        quits(stage);
        assert_eq!(gpus.mode(0), EXCLUSIVE_PROCESS);
    });
}

#[test]
fn a_holder_that_is_told_to_end_gives_the_mode_back_first() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        start(stage, gpus);
        wait_managed(stage);
        let holder = stage.only(Part::Holder);
        stage.kill_daemon();
        tell_to_end(holder);
        stage.lab().wait_gone(holder);
        assert_eq!(gpus.mode(0), EXCLUSIVE_PROCESS);
    });
}

#[test]
fn a_holder_that_was_killed_is_replaced_by_one_that_gives_the_mode_back() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        stage.config(&format!("successor_wait = 0.3\n{MANAGE}"));
        start(stage, gpus);
        wait_managed(stage);
        let first = stage.only(Part::Holder);
        kill(first, Signal::SIGKILL).expect("it is ours");
        stage.wait_for("another holder", || stage.pids(Part::Holder).iter().any(|pid| *pid != first));
        // It has everything when the daemon answers again.
        assert_ne!(stage.ask("status\n"), "");
        stage.kill_daemon();
        wait_mode(stage, gpus, EXCLUSIVE_PROCESS);
    });
}

#[test]
fn a_successor_goes_on_and_gives_back_what_the_first_daemon_found() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        start(stage, gpus);
        wait_managed(stage);
        stage.kill_daemon();
        start(stage, gpus);
        wait_managed(stage);
        stage.daemon().signal(Signal::SIGUSR1);
        ends(stage);
        start(stage, gpus);
        wait_managed(stage);
        assert_eq!(gpus.sets(), set(&[DEFAULT]), "nothing was changed in between");
        quits(stage);
        assert_eq!(gpus.sets(), set(&[DEFAULT, EXCLUSIVE_PROCESS]));
    });
}

#[test]
fn a_daemon_that_dies_while_it_sets_the_mode_leaves_it_to_its_successor() {
    for point in ["modes-held", "modes-changed"] {
        bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
            launch(stage, gpus, &[("MPS_TEST_KILL_AT", point)]);
            assert!(stage.daemon().ended_within(LIMIT), "{point}");
            start(stage, gpus);
            wait_managed(stage);
            quits(stage);
            assert_eq!(gpus.mode(0), EXCLUSIVE_PROCESS, "{point}");
        });
    }
}

#[test]
fn a_successor_that_is_not_to_manage_modes_gives_them_back_at_once() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        start(stage, gpus);
        wait_managed(stage);
        stage.daemon().signal(Signal::SIGUSR1);
        ends(stage);
        stage.config("");
        start(stage, gpus);
        wait_mode(stage, gpus, EXCLUSIVE_PROCESS);
        quits(stage);
        assert_eq!(gpus.sets(), set(&[DEFAULT, EXCLUSIVE_PROCESS]));
    });
}

#[test]
fn a_mode_that_somebody_else_sets_meanwhile_stays() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        start(stage, gpus);
        wait_managed(stage);
        gpus.set_mode(0, PROHIBITED);
        let others = || events(stage, "compute-mode-changed").iter().any(|event| event["cause"] == "somebody-else");
        stage.wait_for("the word of it", others);
        // A successor does not begin anew with it.
        stage.kill_daemon();
        start(stage, gpus);
        stage.wait_for("a look", || stage.ask("status --wide\n").contains("compute mode PROHIBITED"));
        quits(stage);
        assert_eq!((gpus.mode(0), gpus.sets()), (PROHIBITED, set(&[DEFAULT])));
    });
}

#[test]
fn a_mode_that_is_changed_after_the_last_look_is_not_given_back_either() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        stage.config("[gpu]\ncompute_mode = \"manage\"\ninterval = 3600\n");
        start(stage, gpus);
        wait_managed(stage);
        gpus.set_mode(0, PROHIBITED);
        assert!(quits(stage).contains("is left alone"));
        assert_eq!((gpus.mode(0), gpus.sets()), (PROHIBITED, set(&[DEFAULT])));
    });
}

#[test]
fn without_the_right_to_change_modes_one_line_says_so_and_the_daemon_serves() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        gpus.write("fail", "nvmlDeviceSetComputeMode 4\n");
        start(stage, gpus);
        stage.wait_for("the line", || stage.daemon().output().contains("it takes root"));
        Program::attached(stage, ROOT).leave();
        gpus.processes(0, &format!("{} C\n", std::process::id()));
        // Another look has been taken in.
        stage.wait_for("a stranger", || !events(stage, "stranger-found").is_empty());
        let said = quits(stage);
        assert_eq!(said.matches("it takes root").count(), 1, "{said}");
        assert_eq!((gpus.mode(0), gpus.sets()), (EXCLUSIVE_PROCESS, Vec::new()));
    });
}

#[test]
fn a_gpu_that_nobody_may_use_is_left_so() {
    bench(&[PROHIBITED], |stage, gpus| {
        start(stage, gpus);
        stage.wait_for("the line", || stage.daemon().output().contains("stays in compute mode PROHIBITED"));
        quits(stage);
        assert_eq!(gpus.sets(), Vec::new());
    });
}

#[test]
fn without_the_library_one_line_says_so_and_the_daemon_serves() {
    Stage::run(|stage| {
        stage.config(MANAGE);
        stage.start(&[]);
        stage.wait_for("the line", || stage.daemon().output().contains("libnvidia-ml.so.1 can't be loaded"));
        Program::attached(stage, ROOT).leave();
        quits(stage);
    });
}

#[test]
fn a_library_that_hangs_holds_up_neither_clients_nor_the_end() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        gpus.write("hang", "nvmlInit_v2\n");
        start(stage, gpus);
        Program::attached(stage, ROOT).leave();
        quits(stage);
        assert_eq!(gpus.mode(0), EXCLUSIVE_PROCESS);
    });
}

#[test]
fn only_gpus_that_servers_see_whole_are_changed() {
    bench(&[EXCLUSIVE_PROCESS; 3], |stage, gpus| {
        gpus.write(&format!("{}.instances", Gpus::uuid(2)), "MIG-a 1 0\nMIG-b 2 0\n");
        let visible = format!("{},MIG-b", &Gpus::uuid(1)[..12]);
        launch(stage, gpus, &[("CUDA_VISIBLE_DEVICES", &visible)]);
        stage.wait_up();
        stage.wait_for("the line", || stage.daemon().output().contains("a part of it only"));
        stage.wait_for("the mode", || gpus.mode(1) == DEFAULT);
        // Another look has been taken in: on the other instance nobody is looked for.
        let own = std::process::id();
        gpus.processes(2, &format!("1 C 1 0\n{own} C 2 0\n"));
        stage.wait_for("a stranger", || !events(stage, "stranger-found").is_empty());
        assert_eq!(events(stage, "stranger-found")[0]["process"]["pid"], own);
        quits(stage);
        assert_eq!(gpus.sets(), [(Gpus::uuid(1), DEFAULT), (Gpus::uuid(1), EXCLUSIVE_PROCESS)]);
    });
}

#[test]
fn where_the_mode_is_left_exclusive_one_line_says_what_does_not_work_and_none_stands_by() {
    bench(&[EXCLUSIVE_PROCESS], |stage, gpus| {
        stage.config("[domains]\nstandby = true\n");
        start(stage, gpus);
        stage.wait_for("the line", || stage.daemon().output().contains("none stands by"));
        let client = Program::attached(stage, ROOT);
        let server = stage.only(Part::Server);
        client.leave();
        let said = quits(stage);
        assert_eq!(said.matches("none stands by").count(), 1, "{said}");
        assert_eq!(events(stage, "server-started").len(), 1, "{server} alone");
        assert_eq!((gpus.mode(0), gpus.sets()), (EXCLUSIVE_PROCESS, Vec::new()));
    });
}
