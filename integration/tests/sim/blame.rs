//! The whole path with the real daemon: a client's fault, the tools queue that the daemon reads, the verdict in
//! `control.log`; and the funerals that the daemon holds itself. The server of the simulation blames the wrong client,
//! as NVIDIA's does.

use integration::lab::process::Process;
use integration::lab::stage::long_or;
use integration::lab::watch::wait_for;
use integration::lab::{LIMIT, VERY_PATIENT};
use integration::sim::{Sim, error_of, held, is_unharmed};
use integration::under_test::{Subject, once};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use sim_wire::uvm;
use std::fs;

/// How often a client faults in one daemon's life.
const FAULTS: usize = 20;
/// The same with `REMPS_LONG=1`.
const MANY_FAULTS: usize = 1000;
/// After so many its rings are full.
const WARM_UP: usize = 300;
/// What the daemon's own memory (`RssAnon`) may have, in KiB, in a debug build.
const MOST_MEMORY_KIB: u64 = 5 * 1024;
/// How many values are compared before and after.
const WINDOW: usize = 100;
/// What it may grow by after the warm-up: pages come in steps as the heap is cut up (480 seen in 700 faults); a kilobyte
/// that each fault leaves would be more. That the heap's contents do not grow at all is the recorder's own test to show.
const MEMORY_SLACK_KIB: u64 = 600;
/// So that the same program may fault again and again beside the others.
const NO_QUARANTINE: &str = "[faults]\nquarantine_after = 0\nrefuse_after = 0\n";
/// Clients of a server.
const CLIENTS: usize = 3;

/// A bench with the simulated kernel module and a configuration.
fn watched(subject: &Subject, config: &str) -> Sim {
    let sim = Sim::watched(subject, &[]);
    sim.config(config);
    sim.lab.start(&[]);
    sim
}

fn bystander(sim: &Sim) -> Process {
    sim.start("mps-bystander", &["--every-ms", "50"], "ready")
}

/// The verdicts so far, without the time before and the number.
pub(super) fn verdicts(sim: &Sim) -> Vec<String> {
    let log = sim.lab.log("control.log");
    log.lines().filter_map(|line| Some(line.split_once("] Fault ")?.1.split_once("): ")?.1.to_owned())).collect()
}

pub(super) fn wait_verdicts(sim: &Sim, count: usize) -> Vec<String> {
    let logs = sim.lab.dir().join("log");
    wait_for(&logs, &logs, LIMIT, "a verdict", || verdicts(sim).len() >= count);
    verdicts(sim)
}

/// Three clients, of which the one at `place` did wrong when everybody was there.
pub(super) struct Bench {
    culprit: Pid,
    culprits_end: Option<u64>,
    pub(super) others: Vec<Process>,
}

pub(super) fn fault(sim: &Sim, place: usize, kind: &str, others_do: Option<Signal>) -> Bench {
    let gate = sim.lab.dir().join("gate");
    let _ = fs::remove_file(&gate);
    mkfifo(&gate, Mode::S_IRWXU).expect("the bench's folder is ours");
    let aggressor = || {
        let process = Process::start(sim.command("mps-aggressor", &[kind]).env("MPS_SIM_FAULT_GATE", &gate));
        sim.wait_event(&process, "launched");
        process
    };
    let mut clients: Vec<Process> = (0..CLIENTS)
        .map(|index| match index {
            index if index == place => aggressor(),
            _ => bystander(sim),
        })
        .collect();
    let aggressor = clients.remove(place);
    clients.iter().for_each(|other| others_do.iter().for_each(|signal| other.signal(*signal)));
    drop(fs::OpenOptions::new().write(true).open(&gate).expect("the culprit waits there"));
    let culprit = aggressor.pid();
    Bench { culprit, culprits_end: error_of(&sim.finish(aggressor)), others: clients }
}

/// `RssAnon` of a process, in KiB.
fn own_memory(process: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel has it");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

#[test]
fn the_culprit_of_a_memory_fault_is_named_whoever_it_is_again_and_again() {
    once(|subject| {
        let sim = Sim::watched(subject, &[VERY_PATIENT]);
        sim.config(NO_QUARANTINE);
        sim.lab.start(&[]);
        let (mut descriptors, mut memory) = (Vec::new(), Vec::new());
        let faults = long_or(MANY_FAULTS, FAULTS);
        for number in 0..faults {
            let bench = fault(&sim, number % CLIENTS, "oob", None);
            assert_eq!(bench.culprits_end, Some(700));
            let victims: Vec<Pid> = bench.others.iter().map(Process::pid).collect();
            for victim in bench.others {
                assert_eq!(error_of(&sim.finish(victim)), Some(700));
            }
            let verdict = wait_verdicts(&sim, number + 1).pop().expect("there is one");
            let named = format!("client {} (user ", bench.culprit);
            assert!(verdict.starts_with(&named), "{number}: it was {}: {verdict}", bench.culprit);
            assert!(verdict.contains("memory fault, write of 0x10, invalid PTE"), "{verdict}");
            // On a busy machine the server's log may come first.
            let (_, witnesses) = verdict.split_once("; certain, by ").expect("nothing is surer");
            assert!(witnesses.contains("uvm-event"), "{verdict}");
            let (_, lost) = verdict.split_once("lost with it: ").expect("it says who else is lost");
            let mut lost: Vec<i32> = lost.split(' ').map(|pid| pid.parse().expect("a pid")).collect();
            lost.sort_unstable();
            let mut expected: Vec<i32> = victims.iter().map(|pid| pid.as_raw()).collect();
            expected.sort_unstable();
            assert_eq!(lost, expected, "{verdict}");
            // Everybody has left: what is kept of them goes, and the daemon is as it was.
            let daemon = sim.lab.daemon().expect("it runs");
            let count = || fs::read_dir(format!("/proc/{daemon}/fd")).map_or(0, Iterator::count);
            if number >= CLIENTS {
                let most = descriptors.iter().copied().max().unwrap_or(0);
                let dir = sim.lab.dir();
                wait_for(dir, dir, LIMIT, "as few descriptors as before", || count() <= most);
            }
            descriptors.push(count());
            memory.push(own_memory(daemon));
        }
        assert!(memory.iter().all(|kib| *kib <= MOST_MEMORY_KIB), "KiB after each fault: {memory:?}");
        if let Some(after_warm_up) = memory.get(WARM_UP - WINDOW..).filter(|after| after.len() >= 2 * WINDOW) {
            // One value may be taken while something is under way.
            let (before, after) = (&after_warm_up[..WINDOW], &memory[memory.len() - WINDOW..]);
            assert!(median(after) <= median(before) + MEMORY_SLACK_KIB, "KiB after each fault: {memory:?}");
        }
        assert_eq!(verdicts(&sim).len(), faults);
    });
}

#[test]
fn a_fault_that_waits_to_be_told_when_its_client_ends_is_not_lost() {
    once(|subject| {
        let mut sim = Sim::watched(subject, &[VERY_PATIENT]);
        // The daemon waits some milliseconds for the name of the GPU; the client has ended by then.
        sim.lab = sim.lab.with("MPS_SIM_UVM_TABLE_MS", "1000");
        sim.lab.start(&[]);
        let bench = fault(&sim, 1, "oob", None);
        let verdict = wait_verdicts(&sim, 1).remove(0);
        assert!(verdict.starts_with(&format!("client {} (user ", bench.culprit)), "{verdict}");
        assert!(verdict.contains("memory fault, write of 0x10, invalid PTE; certain"), "{verdict}");
    });
}

#[test]
fn a_driver_module_that_is_loaded_after_the_daemons_start_is_found_and_clients_of_before_are_watched() {
    once(|subject| {
        let mut sim = Sim::watched(subject, &[VERY_PATIENT]);
        let module = sim.lab.dir().join("module");
        sim.lab = sim.lab.with("MPS_SIM_UVM_MODULE", &module);
        sim.lab.start(&[]);
        sim.lab.wait_log("control.log", "Faults are not watched by uvm-event: /proc/devices has no nvidia-uvm");
        let early = bystander(&sim);
        fs::write(&module, "").expect("the bench's folder is ours");
        let bench = fault(&sim, 0, "oob", None);
        let verdict = wait_verdicts(&sim, 1).remove(0);
        assert!(verdict.starts_with(&format!("client {} (user ", bench.culprit)), "{verdict}");
        assert!(verdict.contains("; certain"), "{verdict}");
        let log = sim.lab.log("control.log");
        let says = |text: &str| log.lines().filter(|line| line.contains(text)).count();
        assert_eq!(says("Faults are not watched by uvm-event"), 1, "said once, however often it is looked for");
        assert_eq!(says("Faults are watched by uvm-event from now on"), 1, "{log}");
        assert_eq!(error_of(&sim.finish(early)), Some(700));
    });
}

#[test]
fn of_other_faults_nobody_innocent_is_blamed() {
    once(|subject| {
        let sim = watched(subject, NO_QUARANTINE);
        for (number, kind) in ["trap", "misaligned", "trap"].into_iter().enumerate() {
            // The server stays in its fault as long as somebody lingers, as victims do on a GPU.
            let bench = fault(&sim, number, kind, Some(Signal::SIGSTOP));
            let verdict = wait_verdicts(&sim, number + 1).pop().expect("there is one");
            for victim in bench.others {
                assert!(!verdict.starts_with(&format!("client {} (", victim.pid())), "{kind}: {verdict}");
                victim.signal(Signal::SIGCONT);
                assert_ne!(error_of(&sim.finish(victim)), None, "{kind}");
            }
        }
    });
}

/// A client killed in a kernel that ends when the test says so, and its busy word.
fn killed_in_kernel(sim: &Sim) -> (Pid, fs::File) {
    let (client, file) = in_kernel(sim);
    (kill(sim, client), file)
}

/// A client in a kernel that ends when the test says so, and its busy word.
fn in_kernel(sim: &Sim) -> (Process, fs::File) {
    let client = sim.start("mps-aggressor", &["endless"], "launched");
    let file = held::look_at(client.pid());
    let dir = sim.lab.dir();
    // Launching returns before the kernel runs.
    wait_for(dir, dir, LIMIT, "the kernel runs", || uvm::busy_until(&file).is_ok_and(|until| until > uvm::now()));
    (client, file)
}

/// Kills a client; returns when the server has missed it.
fn kill(sim: &Sim, client: Process) -> Pid {
    let pid = client.pid();
    client.signal(Signal::SIGKILL);
    drop(sim.finish(client));
    sim.lab.wait_log("server.log", &format!("Client process {pid} disconnected"));
    pid
}

#[test]
fn a_client_killed_in_a_finite_kernel_harms_nobody() {
    once(|subject| {
        // Longer than the test takes: that the kernel ends before its time is over is what the test says, not a clock.
        let sim = watched(subject, "[funerals]\nhold_timeout = 3600\n");
        let other = bystander(&sim);
        for _ in 0..3 {
            let (_, file) = killed_in_kernel(&sim);
            is_unharmed(&sim, &other);
            uvm::end_work(&file).expect("the file is open");
            assert!(uvm::is_held(&file).expect("the file is open"), "{}", sim.lab.log("control.log"));
        }
        assert_eq!(verdicts(&sim), Vec::<String>::new(), "nobody is blamed");
        drop(sim);

        // And when its time is over.
        let sim = watched(subject, "[funerals]\nhold_timeout = 0.5\nendless_hold = 0\n");
        let other = bystander(&sim);
        let (dying, file) = in_kernel(&sim);
        uvm::end_work(&file).expect("the file is open");
        kill(&sim, dying);
        let dir = sim.lab.dir();
        wait_for(dir, dir, LIMIT, "the copies' end", || !uvm::is_held(&file).expect("the file is open"));
        is_unharmed(&sim, &other);
        assert_eq!(verdicts(&sim), Vec::<String>::new(), "nobody is blamed");
    });
}

#[test]
fn of_a_client_killed_in_an_endless_kernel_everything_is_kept_while_others_are_there() {
    once(|subject| {
        let sim = watched(subject, "[funerals]\nhold_timeout = 0.5\nendless_hold = 2\n");
        let other = bystander(&sim);
        let (pid, _) = killed_in_kernel(&sim);
        sim.lab.wait_log("control.log", &format!("Client {pid} died"));
        assert_eq!(error_of(&sim.finish(other)), Some(700), "until `endless_hold` is over");
        drop(sim);

        // However long that is.
        let sim = watched(subject, "[funerals]\nhold_timeout = 0.5\nendless_hold = inf\n");
        let other = bystander(&sim);
        let (pid, file) = killed_in_kernel(&sim);
        sim.lab.wait_log("control.log", &format!("Client {pid} died"));
        assert!(uvm::is_held(&file).expect("the file is open"), "the operator is told while they are kept");
        is_unharmed(&sim, &other);
    });
}
