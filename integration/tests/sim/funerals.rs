//! A client that dies in the middle of a kernel while somebody keeps copies of its UVM descriptors: by the daemon's own
//! code in `mps-witness`, as measured on an H200 for both copies, and by the driver's source for one of them.

use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::sim::{Sim, error_of, find_event, held, is_unharmed, wait};
use integration::under_test::{for_each, subjects};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use sim_wire::uvm::{self, Kind};
use std::fs::File;

/// A client in a kernel that ends when the test says so, and its busy word.
fn in_kernel(sim: &Sim) -> (Process, File) {
    let process = sim.start("mps-aggressor", &["endless"], "launched");
    let file = held::look_at(process.pid());
    // Launching returns before the kernel runs.
    wait(sim, "the kernel runs", || uvm::busy_until(&file).is_ok_and(|until| until > uvm::now()));
    (process, file)
}

/// A client that works on and on, and often says so.
fn bystander(sim: &Sim) -> Process {
    sim.start("mps-bystander", &["--every-ms", "50"], "ready")
}

/// `mps-witness` that keeps the client's copies until it is waited for.
fn keeper(sim: &Sim, of: Pid) -> Process {
    let keeper = Process::start_with_input(&mut sim.witness(&["--hold-until-stdin-closes", &of.to_string()]));
    sim.wait_event(&keeper, "attached");
    keeper
}

/// Kills a client; returns when it holds nothing any more and the server has missed it.
fn kill(sim: &Sim, process: &Process) {
    process.signal(Signal::SIGKILL);
    assert!(process.ended_within(LIMIT), "a killed client lives on");
    sim.lab.wait_log("server.log", &format!("Client process {} disconnected", process.pid()));
}

#[test]
fn a_client_killed_in_a_finite_kernel_harms_nobody_while_its_copies_are_kept() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let other = bystander(&sim);
        let (dying, busy) = in_kernel(&sim);
        let keeper = keeper(&sim, dying.pid());
        kill(&sim, &dying);
        uvm::end_work(&busy).expect("the file is open");
        assert!(uvm::is_held(&busy).expect("the file is open"), "{subject}: the copies are kept beyond its end");
        let kept = sim.finish(keeper);
        assert!(find_event(&kept.stdout_text(), "closed").is_some(), "{subject}: {}", kept.stdout_text());
        assert!(!uvm::is_held(&busy).expect("the file is open"), "{subject}: and nobody keeps them now");
        is_unharmed(&sim, &other);
    });
}

#[test]
fn a_client_killed_in_an_endless_kernel_harms_everybody_when_its_copies_go() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let other = bystander(&sim);
        let (dying, busy) = in_kernel(&sim);
        let keeper = keeper(&sim, dying.pid());
        kill(&sim, &dying);
        assert!(uvm::is_held(&busy).expect("the file is open"), "{subject}");
        is_unharmed(&sim, &other);
        drop(sim.finish(keeper));
        assert_eq!(error_of(&sim.finish(other)), Some(700), "{subject}: when they are closed");
    });
}

#[test]
fn a_server_whose_only_client_was_killed_in_a_kernel_fails_the_next_one_unless_the_daemon_replaces_it() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let (dying, _) = in_kernel(&sim);
        let server = sim.server();
        kill(&sim, &dying);
        if subject.ours {
            sim.lab.wait_log("control.log", &format!("Server {server} takes no new clients"));
        }
        // Longer than it takes a fault to spread.
        let next = sim.finish(sim.start("mps-bystander", &["--steps", "1000"], "ready"));
        assert_eq!(error_of(&next), if subject.ours { None } else { Some(719) }, "{subject}");
    });
}

#[test]
fn the_second_descriptor_is_the_one_that_saves() {
    for_each(subjects(), |subject| {
        for (kind, saves) in [(Kind::SPACE, false), (Kind::MM, true)] {
            let sim = Sim::started(subject, &[]);
            let other = bystander(&sim);
            let (dying, busy) = in_kernel(&sim);
            let copy = held::copy(dying.pid(), kind).expect("a process of ours may be asked for its descriptors");
            kill(&sim, &dying);
            if saves {
                uvm::end_work(&busy).expect("the file is open");
                drop(copy);
                is_unharmed(&sim, &other);
            } else {
                // The dead process's own descriptors may go after its connections: the kernel must run until then.
                assert_eq!(error_of(&sim.finish(other)), Some(700), "{subject}: a copy of {kind:?} alone");
                drop(copy);
            }
        }
    });
}

#[test]
fn gpu_memory_of_the_dead_stays_as_long_as_a_copy_of_either_descriptor() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let client = sim.start("mps-bystander", &[], "ready");
        let memory = held::Memory::of(client.pid());
        let in_use = memory.in_use(0);
        assert_ne!(in_use, 0, "{subject}");
        let [space, mm] = held::copies(client.pid()).expect("a process of ours may be asked for its descriptors");
        kill(&sim, &client);
        assert_eq!(memory.in_use(0), in_use, "{subject}: both are kept");
        drop(space);
        assert_eq!(memory.in_use(0), in_use, "{subject}: the second keeps the first");
        drop(mm);
        // A child that another test has just forked has them until it executes its program.
        wait(&sim, "the memory's end", || memory.in_use(0) == 0);
    });
}
