//! A daemon without the right to look into its clients: what it can't see then, and what the preloaded library gives it.

use integration::lab::process::Process;
use integration::lab::watch::wait_for;
use integration::lab::{LIMIT, VERY_PATIENT};
use integration::shim;
use integration::sim::{Sim, error_of};
use integration::under_test::{Skipped, Subject, for_each, only_ours};
use nix::sys::signal::Signal;
use std::process::Command;

/// `CAP_SYS_PTRACE`, by `linux/capability.h`.
const SYS_PTRACE: libc::c_ulong = 19;

/// A bench whose daemon may do everything but trace; its clients may do that too, so it may not look into them.
#[expect(unsafe_code, reason = "gives a capability up in the thread that starts the daemon")]
fn blind(subject: &Subject, variables: &[(&str, &str)]) -> Option<Sim> {
    if !nix::unistd::geteuid().is_root() {
        Skipped("only root has a right to give up".to_owned()).report();
        return None;
    }
    let sim = Sim::watched(subject, variables);
    std::thread::scope(|scope| {
        let start = || {
            // SAFETY: two numbers; it changes what programs may have that this thread starts.
            let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, SYS_PTRACE) };
            assert_eq!(dropped, 0, "root may give it up");
            sim.lab.start(&[]);
        };
        scope.spawn(start).join().expect("it starts");
    });
    Some(sim)
}

fn telling(mut command: Command) -> Command {
    command.env("LD_PRELOAD", shim::library()).env("MPS_SHIM_FAULTS", "tell");
    command
}

fn verdict(sim: &Sim) -> String {
    let (dir, log) = (sim.lab.dir(), || sim.lab.log("control.log"));
    let found = || log().lines().find_map(|line| Some(line.split_once("] Fault 1 ")?.1.to_owned()));
    wait_for(&dir.join("log"), dir, LIMIT, "a verdict", || found().is_some());
    found().expect("there is one")
}

#[test]
fn without_the_right_nobody_is_named_and_the_log_says_what_is_missing() {
    for_each(only_ours(), |subject| {
        let Some(sim) = blind(subject, &[]) else { return };
        let other = sim.start("mps-bystander", &["--every-ms", "50"], "ready");
        // Somebody is still there when the daemon asks the server: the log alone may be anybody's.
        other.signal(Signal::SIGSTOP);
        let culprit = Process::start(&mut sim.command("mps-aggressor", &["oob"]));
        assert_eq!(error_of(&sim.finish(culprit)), Some(700));
        assert!(verdict(&sim).contains("nobody can be named"), "{}", verdict(&sim));
        other.signal(Signal::SIGCONT);
        assert_eq!(error_of(&sim.finish(other)), Some(700));
        sim.lab.wait_log("control.log", "is not watched by uvm-event");
        assert!(sim.lab.log("control.log").contains("CAP_SYS_PTRACE"));
    });
}

#[test]
fn a_client_that_hands_its_descriptors_over_is_named_with_certainty() {
    for_each(only_ours(), |subject| {
        let Some(sim) = blind(subject, &[VERY_PATIENT]) else { return };
        let other = sim.start("mps-bystander", &["--every-ms", "50"], "ready");
        let culprit = Process::start(&mut telling(sim.command("mps-aggressor", &["oob"])));
        let pid = culprit.pid();
        assert_eq!(error_of(&sim.finish(culprit)), Some(700));
        assert_eq!(error_of(&sim.finish(other)), Some(700));
        let verdict = verdict(&sim);
        assert!(verdict.contains(&format!("client {pid} (user 0")), "{verdict}");
        // The server's log may have come before it.
        let witnesses = verdict.split_once("; certain, by ").expect(&verdict).1.split_once(';').expect("the others").0;
        assert!(witnesses.split(' ').any(|witness| witness == "uvm-event"), "{verdict}");
        let log = sim.lab.log("control.log");
        let handed_over = format!("Client {pid} is watched by uvm-event: it has handed its descriptors over");
        assert_eq!(log.matches(&handed_over).count(), 1, "{log}");
    });
}

/// A bench whose server notices a fault when its culprit has ended.
fn noticing_late(subject: &Subject, patience: &[(&str, &str)]) -> Sim {
    let late = [("MPS_SIM_FAULT_AFTER_CULPRIT", "1"), ("MPS_SIM_OWN_FAULT_MS", "0")];
    let sim = Sim::new(subject, &[&late, patience].concat());
    sim.lab.start(&[]);
    sim
}

#[test]
fn a_culprit_of_a_trap_that_tells_is_known_by_its_own_word() {
    for_each(only_ours(), |subject| {
        let sim = noticing_late(subject, &[VERY_PATIENT]);
        let other = sim.start("mps-bystander", &["--every-ms", "50"], "ready");
        let culprit = Process::start(&mut telling(sim.command("mps-aggressor", &["trap"])));
        let pid = culprit.pid();
        assert_eq!(error_of(&sim.finish(culprit)), Some(719));
        assert_eq!(error_of(&sim.finish(other)), Some(719));
        let verdict = verdict(&sim);
        assert!(verdict.contains(&format!("client {pid} (user ")), "{verdict}");
        assert!(verdict.contains(", exception; likely, by shim"), "{verdict}");
    });
}

#[test]
fn a_victim_that_tells_is_not_taken_for_the_culprit() {
    for_each(only_ours(), |subject| {
        let sim = noticing_late(subject, &[]);
        let other = Process::start(&mut telling(sim.command("mps-bystander", &["--every-ms", "50"])));
        sim.wait_event(&other, "ready");
        // On a GPU its error comes long after the server's own word.
        other.signal(Signal::SIGSTOP);
        let culprit = sim.start("mps-aggressor", &["trap"], "launched");
        assert_eq!(error_of(&sim.finish(culprit)), Some(719));
        assert!(verdict(&sim).contains("nobody can be named"), "{}", verdict(&sim));
        other.signal(Signal::SIGCONT);
        // It has told when it ends.
        assert_eq!(error_of(&sim.finish(other)), Some(719));
        assert_eq!(sim.lab.log("control.log").matches("] Fault ").count(), 1, "{}", sim.lab.log("control.log"));
    });
}

#[test]
fn a_daemon_that_may_look_is_given_nothing() {
    for_each(only_ours(), |subject| {
        let sim = Sim::watched(subject, &[VERY_PATIENT]);
        sim.lab.start(&[]);
        let culprit = Process::start(&mut telling(sim.command("mps-aggressor", &["oob"])));
        let pid = culprit.pid();
        assert_eq!(error_of(&sim.finish(culprit)), Some(700));
        assert!(verdict(&sim).contains(&format!("client {pid} (user 0")));
        assert!(!sim.lab.log("control.log").contains("handed its descriptors over"));
    });
}
