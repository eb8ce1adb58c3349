//! The tools queue as a witness, and the copies of clients' descriptors: the daemon's own code in `mps-witness`, with a
//! simulated kernel module under it.

mod refusals;

use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::lab::watch::wait_for;
use integration::sim::{Sim, bearer, error_of, held};
use integration::under_test::{Subject, for_each, only_ours, subjects};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use sim_wire::tools::Event;
use sim_wire::uvm::{self, Kind};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};

/// The releases whose structures differ.
const RELEASES: [&str; 5] = ["535", "550", "560", "565", "580"];
/// The GPU of the simulation.
const GPU: &str = "GPU-5e900000-6d70-732d-7369-6d0000000000";

/// Runs a test that needs no daemon, once.
fn once(test: impl Fn(&Subject)) {
    for_each(only_ours().map(|subjects| subjects.into_iter().take(1).collect()), test);
}

fn events(output: &str, event: &str) -> Vec<Value> {
    let lines = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["event"].as_str() == Some(event)).collect()
}

/// A running `mps-witness` on a process.
fn witness(sim: &Sim, of: &Process, variables: &[(&str, &str)]) -> Process {
    let mut command = sim.witness(&[&of.pid().to_string()]);
    command.envs(variables.iter().copied());
    Process::start(&mut command)
}

/// Waits until a witness has so many lines of an event.
fn wait_events(sim: &Sim, witness: &Process, event: &str, count: usize) -> Vec<Value> {
    let dir = sim.lab.dir();
    wait_for(dir, dir, LIMIT, event, || events(&witness.output(), event).len() >= count);
    events(&witness.output(), event)
}

/// An initialised address space and its companion.
fn space(number: u64) -> [File; 2] {
    let files = [bearer::opened(), bearer::opened()];
    uvm::initialise(&files[0], Kind::SPACE, number).expect("the file is ours");
    uvm::initialise(&files[1], Kind::MM, number).expect("the file is ours");
    uvm::add_device(&files[0], 0).expect("the file is ours");
    files
}

fn bear(files: &[&File]) -> Process {
    bearer::start(&files.iter().map(|file| file.as_fd()).collect::<Vec<_>>())
}

fn event(space: u64, address: u64) -> Event {
    Event { space, address, time: uvm::event_time(), fault_type: 2, access_type: 2, reason: 1, processor: 1 }
}

fn addresses(faults: &[Value]) -> Vec<&str> {
    faults.iter().filter_map(|fault| fault["address"].as_str()).collect()
}

#[test]
fn the_culprits_queue_has_its_fault_and_nobody_elses_has_one() {
    for_each(subjects(), |subject| {
        let sim = Sim::watched(subject, &[]);
        sim.lab.start(&[]);
        let victims: Vec<Process> = (0..2).map(|_| sim.start("mps-bystander", &[], "ready")).collect();
        // It waits before its fault until everybody is watched.
        let gate = sim.lab.dir().join("gate");
        mkfifo(&gate, Mode::S_IRWXU).expect("the bench's folder is ours");
        let culprit = Process::start(sim.command("mps-aggressor", &["oob"]).env("MPS_SIM_FAULT_GATE", &gate));
        sim.wait_event(&culprit, "launched");
        let watched: Vec<Process> = victims.iter().chain([&culprit]).map(|client| witness(&sim, client, &[])).collect();
        watched.iter().for_each(|witness| drop(wait_events(&sim, witness, "attached", 1)));
        drop(OpenOptions::new().write(true).open(&gate).expect("the culprit waits there"));
        for client in victims.into_iter().chain([culprit]) {
            assert_eq!(error_of(&sim.finish(client)), Some(700), "{subject}");
        }
        let outputs: Vec<String> = watched.into_iter().map(|witness| sim.finish(witness).stdout_text()).collect();
        let faults: Vec<Vec<Value>> = outputs.iter().map(|output| events(output, "fault")).collect();
        assert_eq!(faults.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 1], "{subject}: {outputs:?}");
        let fault = &faults[2][0];
        let said = ["address", "access", "kind", "gpu", "reason"].map(|field| fault[field].as_str().unwrap_or("?"));
        assert_eq!(said, ["0x10", "write", "invalid PTE", GPU, "InvalidAddress"], "{subject}");
        assert!(outputs.iter().all(|output| events(output, "closed").len() == 1), "{subject}: {outputs:?}");
    });
}

#[test]
fn a_client_is_watched_before_it_has_a_server_and_so_before_its_first_kernel() {
    once(|subject| {
        // The context waits for the server as it would for a daemon that attaches before it hands a client over.
        let mut sim = Sim::watched(subject, &[]);
        let gate = sim.lab.dir().join("gate");
        mkfifo(&gate, Mode::S_IRWXU).expect("the bench's folder is ours");
        sim.lab = sim.lab.with("MPS_SIM_INIT_GATE", &gate);
        sim.lab.start(&[]);
        let program = sim.command("mps-aggressor", &[]).get_program().to_string_lossy().into_owned();
        let witness = Process::start(&mut sim.witness(&["--", &program, "oob"]));
        sim.wait_event(&witness, "attached");
        drop(OpenOptions::new().write(true).open(&gate).expect("the server waits there"));
        let output = sim.finish(witness).stdout_text();
        let at =
            |event: &str| output.find(&format!("\"event\":\"{event}\"")).unwrap_or_else(|| panic!("{event}: {output}"));
        assert!(at("attached") < at("launched") && at("launched") < at("error"), "{output}");
        assert_eq!(events(&output, "fault").len(), 1, "{output}");
    });
}

#[test]
fn every_release_of_the_driver_is_understood() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        for release in RELEASES {
            let files = space(7);
            let client = bear(&[&files[0], &files[1]]);
            let witness = witness(&sim, &client, &[("MPS_SIM_UVM_RELEASE", release)]);
            let attached = wait_events(&sim, &witness, "attached", 1);
            let version = if ["565", "580"].contains(&release) { "V2" } else { "V1" };
            assert_eq!(attached[0]["queue"].as_str(), Some(version), "{release}");
            assert_eq!(attached[0]["is_complete"].as_bool(), Some(true), "{release}");
            event(7, 0xdead_0000).send(&sim.uvm_dir()).expect("somebody listens");
            let faults = wait_events(&sim, &witness, "fault", 1);
            let said = ["address", "access", "kind", "gpu"].map(|field| faults[0][field].as_str().unwrap_or("?"));
            assert_eq!(said, ["0xdead0000", "write", "invalid PTE", GPU], "{release}");
        }
    });
}

#[test]
fn only_what_is_the_clients_doing_is_a_fault_of_it() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let files = space(8);
        let client = bear(&[&files[0], &files[1]]);
        let witness = witness(&sim, &client, &[]);
        wait_events(&sim, &witness, "attached", 1);
        let innocent = [
            // Another client's; the CPU's; want of memory; an error of the driver.
            event(9, 1),
            Event { processor: 0, ..event(8, 2) },
            Event { reason: 4, ..event(8, 3) },
            Event { reason: 5, ..event(8, 4) },
        ];
        let real = [event(8, 5), event(8, 5), event(8, 6)];
        for event in innocent.iter().chain(&real) {
            event.send(&sim.uvm_dir()).expect("somebody listens");
        }
        let faults = wait_events(&sim, &witness, "fault", 2);
        assert_eq!(addresses(&faults), ["0x5", "0x6"], "a fault of many threads is told once");
        client.signal(Signal::SIGKILL);
        let output = sim.finish(witness).stdout_text();
        assert_eq!(events(&output, "fault").len(), 2, "{output}");
        assert_eq!(events(&output, "ended")[0]["not_culpable"].as_u64(), Some(3), "{output}");
    });
}

#[test]
fn faults_that_come_at_once_are_all_told_in_order() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let files = space(8);
        let client = bear(&[&files[0], &files[1]]);
        let witness = witness(&sim, &client, &[]);
        wait_events(&sim, &witness, "attached", 1);
        witness.signal(Signal::SIGSTOP);
        // They wait while it is stopped, and come at once when it goes on.
        for address in 0..8 {
            event(8, address).send(&sim.uvm_dir()).expect("somebody listens");
        }
        witness.signal(Signal::SIGCONT);
        let faults = wait_events(&sim, &witness, "fault", 8);
        assert_eq!(addresses(&faults), ["0x0", "0x1", "0x2", "0x3", "0x4", "0x5", "0x6", "0x7"]);
    });
}

#[test]
fn an_address_space_is_found_when_it_is_initialised_and_not_before() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let main = bearer::opened();
        let client = bear(&[&main]);
        let witness = witness(&sim, &client, &[]);
        assert_eq!(events(&witness.output(), "attached").len(), 0);
        uvm::initialise(&main, Kind::SPACE, 21).expect("the file is ours");
        let attached = wait_events(&sim, &witness, "attached", 1);
        assert_eq!(attached[0]["is_complete"].as_bool(), Some(false));
        drop(client);
        let output = sim.finish(witness).stdout_text();
        assert_eq!(events(&output, "completed").len(), 0, "there is no second one: {output}");
    });
}

#[test]
fn a_second_descriptor_that_comes_later_is_kept_as_well() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let [main, companion] = space(22);
        let gate = sim.lab.dir().join("gate");
        mkfifo(&gate, Mode::S_IRWXU).expect("the bench's folder is ours");
        let client = bearer::start_with_more(&[main.as_fd()], companion.as_fd(), &gate);
        let witness = witness(&sim, &client, &[]);
        let attached = wait_events(&sim, &witness, "attached", 1);
        assert_eq!(attached[0]["is_complete"].as_bool(), Some(false));
        drop(OpenOptions::new().write(true).open(&gate).expect("the client waits there"));
        let completed = wait_events(&sim, &witness, "completed", 1);
        assert_eq!(completed[0]["descriptors"].as_array().map(Vec::len), Some(2), "{completed:?}");
    });
}

#[test]
fn another_address_space_of_the_same_process_is_watched_as_well() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let (first, second) = (space(31), [bearer::opened(), bearer::opened()]);
        let client = bear(&[&first[0], &first[1], &second[0], &second[1]]);
        let witness = witness(&sim, &client, &[]);
        wait_events(&sim, &witness, "attached", 1);
        uvm::initialise(&second[1], Kind::MM, 32).expect("the file is ours");
        uvm::initialise(&second[0], Kind::SPACE, 32).expect("the file is ours");
        let attached = wait_events(&sim, &witness, "attached", 2);
        assert_eq!(attached.iter().map(|line| line["space"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2)]);
        event(32, 0xb).send(&sim.uvm_dir()).expect("somebody listens");
        event(31, 0xa).send(&sim.uvm_dir()).expect("somebody listens");
        let faults = wait_events(&sim, &witness, "fault", 2);
        let mut told: Vec<_> =
            faults.iter().map(|fault| (fault["space"].as_u64(), fault["address"].as_str())).collect();
        told.sort_unstable();
        assert_eq!(told, [(Some(1), Some("0xa")), (Some(2), Some("0xb"))]);
        client.signal(Signal::SIGKILL);
        let output = sim.finish(witness).stdout_text();
        let of_space = |line: &Value| line["space"].as_u64();
        let mut closed: Vec<_> = events(&output, "closed").iter().map(of_space).collect();
        closed.sort_unstable();
        // A look that was under way may have found what the dying process had, for a moment.
        assert!(closed.starts_with(&[Some(1), Some(2)]), "{output}");
        assert_eq!(closed.len(), events(&output, "attached").len(), "{output}");
    });
}

#[test]
fn a_tracker_keeps_the_address_space_and_lets_go_when_the_client_has_ended() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let client = sim.start("mps-bystander", &[], "ready");
        let witness = witness(&sim, &client, &[]);
        wait_events(&sim, &witness, "attached", 1);
        let (number, file) = (held::space(client.pid()), held::look_at(client.pid()));
        assert_ne!(number, 0);
        client.signal(Signal::SIGKILL);
        let output = sim.finish(witness).stdout_text();
        assert_eq!(events(&output, "closed").len(), 1, "{output}");
        assert!(!uvm::is_held(&file).expect("the file is open"), "nobody holds it any longer");
    });
}

#[test]
fn descriptors_that_are_handed_over_are_kept_and_watched_if_they_are_what_they_should_be() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let client = bear(&[]);
        let (files, plain) = (space(12), File::create(sim.lab.dir().join("nvidia-uvm")).expect("it is ours"));
        let handed = [&plain, &files[1], &files[0], &files[0]];
        let numbers: Vec<String> = handed.iter().map(|file| file.as_raw_fd().to_string()).collect();
        let pid = client.pid().to_string();
        let given: Vec<&str> = numbers.iter().flat_map(|number| ["--given", number]).chain([pid.as_str()]).collect();
        let all: Vec<_> = handed.iter().map(|file| file.as_fd()).collect();
        let witness = bearer::start_as(&mut sim.witness(&given), &all);
        let attached = wait_events(&sim, &witness, "attached", 1);
        assert_eq!(attached[0]["descriptors"].as_array().map(Vec::len), Some(2), "{attached:?}");
        assert_eq!(attached[0]["is_complete"].as_bool(), Some(true));
        event(12, 0x44).send(&sim.uvm_dir()).expect("somebody listens");
        assert_eq!(addresses(&wait_events(&sim, &witness, "fault", 1)), ["0x44"]);
    });
}
