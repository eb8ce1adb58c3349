//! What one client's fault, or sudden death, does to the others: as measured on an H200, here with the simulated
//! driver and server and the daemon under test between them.

use integration::lab::process::{Finished, Process};
use integration::lab::{LIMIT, watch};
use integration::sim::{Sim, error_of, find_event, held};
use integration::under_test::{for_each, subjects};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use remps_proto::admin::CommandName;
use sim_wire::uvm;

/// `--for-ms` of a kernel that ends, long after the test.
const LONG_MS: &str = "3600000";

/// A bystander that ends by an error or not at all.
fn bystander(sim: &Sim) -> Process {
    sim.start("mps-bystander", &[], "ready")
}

/// A bystander that must come to no harm: it says often that it goes on, and ends when it is waited for.
fn survivor(sim: &Sim) -> Process {
    sim.start_with_input("mps-bystander", &["--until-stdin-closes", "--every-ms", "50"], "ready")
}

/// Lets a bystander go on for longer than a fault takes to reach it, and end; the error that it met, if any.
fn error_of_survivor(sim: &Sim, process: Process) -> Option<u64> {
    let lines = || process.output().matches("progress").count();
    let before = lines();
    let dir = sim.lab.dir();
    let goes_on = || lines() >= before + 3 || error_of_running(&process).is_some();
    watch::wait_for(dir, dir, LIMIT, "the bystander goes on", goes_on);
    error_of(&sim.finish(process))
}

fn code(sim: &Sim, process: Process) -> Option<u64> {
    let finished = sim.finish(process);
    let code = error_of(&finished);
    assert_eq!(finished.code, code.map(|code| i32::try_from(code & 0xff).expect("eight bits")), "the exit status");
    code
}

fn torn_down(pid: Pid) -> String {
    format!("Client {{PID: {pid}, Context ID: 1}} on device 0 to be torn down")
}

#[test]
fn a_fault_of_one_is_everyones_error_and_the_log_blames_another() {
    for_each(subjects(), |subject| {
        for (kind, number) in [("oob", 700), ("trap", 719)] {
            let sim = Sim::started(subject, &[]);
            let (first, second) = (bystander(&sim), bystander(&sim));
            let (innocent, other) = (first.pid(), second.pid());
            let aggressor = sim.start("mps-aggressor", &[kind], "launched");
            let culprit = aggressor.pid();
            for process in [aggressor, first, second] {
                assert_eq!(code(&sim, process), Some(number), "{subject}: {kind}");
            }
            sim.lab.wait_log("server.log", "Destroy server context on device 0 (NVIDIA H200)");
            let log = sim.server_log();
            let blamed = format!("Client {{PID: {innocent}, Context: 1}} encountered a fatal GPU error.");
            let says = |text: &str| log.iter().filter(|line| line.contains(text)).count();
            assert_eq!(says("encountered a fatal GPU error"), usize::from(kind == "oob"), "{subject}: {kind}");
            assert_eq!(says(&blamed), usize::from(kind == "oob"), "{subject}: {kind} was done by {culprit}: {log:?}");
            assert_eq!(says("Server is handling a fatal GPU error."), 1, "{subject}: {kind}");
            // The culprit of all but a memory fault knows before the others, and has ended when they learn of it.
            assert_eq!((says(&torn_down(innocent)), says(&torn_down(other))), (1, 1), "{subject}: {kind}");
            if kind == "oob" {
                assert_eq!(says(&torn_down(culprit)), 1, "{subject}: {kind}: {log:?}");
            }
            // The one honest word about the culprit.
            let culprits_exit = format!(
                "Client {{PID: {culprit}, Context ID: 1}} exiting. Worker is in reset. Number of active client contexts is "
            );
            assert_eq!(says("Worker is in reset"), usize::from(kind == "trap"), "{subject}: {kind}");
            assert_eq!(says(&culprits_exit), usize::from(kind == "trap"), "{subject}: {kind}");
            // A daemon of ours may have another server already.
            let servers = says("Creating server context");
            assert!(servers == 1 || subject.ours && servers == 2, "{subject}: {kind}: {servers}");
            // The context is new, so is everyone who comes now.
            let newcomer = sim.run("mps-bystander", &["--steps", "5"]);
            assert_eq!(error_of(&newcomer), None, "{subject}: {kind}");
            if !subject.ours {
                // Built anew for the newcomer; a daemon of ours may have sent it to another server.
                let contexts =
                    || sim.server_log().iter().filter(|line| line.contains("Creating server context")).count();
                watch::wait_for(sim.lab.log_dir(), sim.lab.dir(), LIMIT, "two contexts", || contexts() == 2);
            }
        }
    });
}

#[test]
fn after_a_misaligned_access_its_culprit_ends_well_and_the_others_fail_with_either_error() {
    for_each(subjects(), |subject| {
        // The server notices when the culprit has ended.
        let sim = Sim::started(subject, &[("MPS_SIM_FAULT_AFTER_CULPRIT", "1")]);
        let (first, second) = (bystander(&sim), bystander(&sim));
        let aggressor = sim.start("mps-aggressor", &["misaligned"], "launched");
        assert_eq!(sim.finish(aggressor).code, Some(0), "{subject}");
        assert_eq!((code(&sim, first), code(&sim, second)), (Some(716), Some(719)), "{subject}");
        sim.lab.wait_log("server.log", "Destroy server context on device 0 (NVIDIA H200)");
        let log = sim.server_log();
        let says = |text: &str| log.iter().filter(|line| line.contains(text)).count();
        assert_eq!(says("Server is handling a fatal GPU error."), 1, "{subject}: {log:?}");
        assert_eq!(says("encountered a fatal GPU error") + says("Worker is in reset"), 0, "{subject}: {log:?}");
    });
}

#[test]
fn a_failed_assertion_ends_its_client_alone() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let other = survivor(&sim);
        let aggressor = sim.start("mps-aggressor", &["assert"], "launched");
        let culprit = aggressor.pid();
        assert_eq!(code(&sim, aggressor), Some(710), "{subject}");
        let exit = format!(
            "Client {{PID: {culprit}, Context ID: 1}} exiting. Worker is in reset. Number of active client contexts is "
        );
        sim.lab.wait_log("server.log", &exit);
        assert_eq!(error_of_survivor(&sim, other), None, "{subject}");
        assert!(!sim.server_log().iter().any(|line| line.contains("fatal GPU error")), "{subject}");
    });
}

#[test]
fn while_an_affected_client_lives_the_server_is_in_fault_and_refuses_newcomers() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let stuck = bystander(&sim);
        let server = sim.server();
        stuck.signal(Signal::SIGSTOP);
        assert_eq!(code(&sim, sim.start("mps-aggressor", &["trap"], "launched")), Some(719), "{subject}");
        sim.lab.wait_log("server.log", "The following client process have a sticky error set:");
        if subject.personality.knows(CommandName::GetServerStatus) {
            assert_eq!(sim.lab.ask(&format!("get_server_status {server}\n")), "FAULT\n", "{subject}");
        }
        if !subject.ours {
            let refused = sim.run("mps-first-alloc", &[]);
            assert_eq!((refused.code, error_of(&refused)), (Some(39), Some(807)), "{subject}");
            let pid = pid_of(&refused);
            let refusing = "Server teardown in progress. Refusing to accept new client";
            sim.lab.wait_log("server.log", &format!("{refusing} {{PID: {pid}, Context ID: 0}}"));
            let failed = format!("Failed to accept client {{PID: {pid}, Context ID: 0}} with status 807");
            sim.lab.wait_log("server.log", &failed);
        }
        stuck.signal(Signal::SIGKILL);
        sim.lab.wait_log("server.log", "Destroy server context on device 0 (NVIDIA H200)");
        // Ours has another server by then, and this one may be gone.
        if !subject.ours && subject.personality.knows(CommandName::GetServerStatus) {
            assert_eq!(sim.lab.ask(&format!("get_server_status {server}\n")), "ACTIVE\n", "{subject}");
        }
        assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{subject}");
    });
}

#[test]
fn a_fault_stays_on_its_gpu_but_newcomers_are_refused_on_all() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[("MPS_SIM_DEVICES", "2")]);
        let elsewhere = ["--device", "1"];
        let other = sim.start("mps-bystander", &elsewhere, "ready");
        let stuck = bystander(&sim);
        stuck.signal(Signal::SIGSTOP);
        assert_eq!(code(&sim, sim.start("mps-aggressor", &["trap"], "launched")), Some(719), "{subject}");
        sim.lab.wait_log("server.log", "The following client process have a sticky error set:");
        if !subject.ours {
            let refused = sim.finish(sim.start("mps-bystander", &elsewhere, "error"));
            assert_eq!(error_of(&refused), Some(807), "{subject}");
        }
        stuck.signal(Signal::SIGKILL);
        sim.lab.wait_log("server.log", "Destroy server context on device 0 (NVIDIA H200)");
        assert_eq!(error_of_running(&other), None, "{subject}");
        assert!(
            !sim.server_log()
                .iter()
                .any(|line| line.contains("on device 1 (NVIDIA H200)") && line.starts_with("Destroy"))
        );
    });
}

fn pid_of(finished: &Finished) -> i64 {
    find_event(&finished.stdout_text(), "error").and_then(|line| line["pid"].as_i64()).expect("it says its pid")
}

#[test]
fn a_killed_server_gives_its_clients_806_and_the_next_client_a_new_server() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let (first, second) = (bystander(&sim), bystander(&sim));
        let server = sim.server();
        kill(Pid::from_raw(server), Signal::SIGKILL).expect("it runs");
        assert_eq!((code(&sim, first), code(&sim, second)), (Some(806), Some(806)), "{subject}");
        if !subject.ours {
            // Until the vendor's daemon has missed its server it sends clients there, which gives them 805.
            sim.lab.wait_log("control.log", &format!("Server {server} exited"));
        }
        assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{subject}");
        assert_ne!(sim.server(), server, "{subject}");
    });
}

#[test]
fn ct_22_terminating_a_client_answers_exactly_0_and_gives_it_810() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let (terminated, other) = (bystander(&sim), survivor(&sim));
        let (server, pid) = (sim.server(), terminated.pid());
        assert_eq!(sim.lab.ask(&format!("terminate_client {server} {pid}\n")), "0\n", "{subject}");
        sim.lab.wait_log("server.log", "Client termination succeeded.");
        let log = sim.server_log();
        let asked = format!("MPS server requesting client {{PID: {pid}, Context ID: 1}} to exit");
        let at = log.iter().position(|line| *line == asked).unwrap_or_else(|| panic!("{subject}: {log:?}"));
        assert!(log[at + 1].contains("status 806, assuming client"), "{subject}: {log:?}");
        assert_eq!(log[at + 2], "Client termination succeeded.", "{subject}");
        assert_eq!(code(&sim, terminated), Some(810), "{subject}");
        let unharmed = sim.finish(other);
        assert_eq!(find_event(&unharmed.stdout_text(), "end").map(|end| end["is_intact"].clone()), Some(true.into()));
    });
}

#[test]
fn a_client_killed_in_a_kernel_takes_the_others_along() {
    for_each(subjects(), |subject| {
        for kind in ["long", "endless"] {
            let sim = Sim::started(subject, &[]);
            let other = bystander(&sim);
            let dying = in_kernel(&sim, kind);
            dying.signal(Signal::SIGKILL);
            assert_eq!(code(&sim, other), Some(700), "{subject}: {kind}");
        }
    });
}

#[test]
fn a_client_terminated_before_it_is_killed_harms_nobody() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let other = survivor(&sim);
        let dying = in_kernel(&sim, "endless");
        let (server, pid) = (sim.server(), dying.pid());
        assert_eq!(sim.lab.ask(&format!("terminate_client {server} {pid}\n")), "0\n", "{subject}");
        dying.signal(Signal::SIGKILL);
        sim.lab.wait_log("server.log", &format!("Client process {pid} disconnected"));
        assert_eq!(error_of_survivor(&sim, other), None, "{subject}");
    });
}

#[test]
fn a_copy_of_the_dead_clients_descriptor_held_until_its_kernel_has_ended_saves_the_others() {
    for_each(subjects(), |subject| {
        for has_ended in [true, false] {
            let sim = Sim::started(subject, &[]);
            let other = survivor(&sim);
            let dying = in_kernel(&sim, "endless");
            let file = held::look_at(dying.pid());
            let copies = held::copies(dying.pid()).expect("a process of ours may be asked for its descriptors");
            dying.signal(Signal::SIGKILL);
            sim.lab.wait_log("server.log", &format!("Client process {} disconnected", dying.pid()));
            if has_ended {
                uvm::end_work(&file).expect("the file is open");
            }
            assert_eq!(error_of_running(&other), None, "{subject}: {has_ended}, with the copy held");
            drop(copies);
            if !has_ended {
                // However long the server takes to learn of it: told to leave before, the bystander would end well.
                sim.wait_event(&other, "error");
            }
            let expected = if has_ended { None } else { Some(700) };
            assert_eq!(error_of_survivor(&sim, other), expected, "{subject}: {has_ended}, with the copy closed");
        }
    });
}

fn error_of_running(process: &Process) -> Option<u64> {
    find_event(&process.output(), "error")?.get("code")?.as_u64()
}

/// A client in a long kernel, or in one without end.
fn in_kernel(sim: &Sim, kind: &str) -> Process {
    let process = sim.start("mps-aggressor", &[kind, "--for-ms", LONG_MS], "launched");
    let file = held::look_at(process.pid());
    // Launching returns before the kernel runs.
    watch::wait_for(sim.lab.dir(), sim.lab.dir(), LIMIT, "the kernel runs", || {
        uvm::busy_until(&file).is_ok_and(|until| until > uvm::now())
    });
    process
}
