//! Records that somebody else than a server writes into the log FIFO, in the server's name: the real daemon asks the
//! server and believes nothing of it.

use super::blame::{fault, verdicts, wait_verdicts};
use integration::lab::VERY_PATIENT;
use integration::sim::Sim;
use integration::under_test::once;
use nix::sys::signal::Signal;
use remps_proto::mps::log::{LocalTime, Record, Source};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many records somebody writes.
const MANY: usize = 20_000;
/// Lines that signs of the log may add to the journal after one fault.
const MOST_SIGNS: usize = 16;

fn record(pid: u32, text: &str) -> Vec<u8> {
    let time = LocalTime { year: 2026, month: 1, day: 1, ..LocalTime::default() };
    Record { source: Source::SERVER, pid, time, text: text.as_bytes().to_vec() }.encode()
}

fn fifo(sim: &Sim) -> File {
    File::options().write(true).open(sim.lab.pipe_dir().join("log")).expect("anybody may")
}

fn forged(server: u32, named: i32) -> Vec<u8> {
    record(server, &format!("Client {{PID: {named}, Context ID: 1}} exiting. Worker is in reset. Number of …"))
}

/// Writes them, and waits until the daemon has read them all.
fn forge(sim: &Sim, server: u32, named: i32) {
    let (mut fifo, one) = (fifo(sim), forged(server, named));
    for _ in 0..MANY {
        fifo.write_all(&one).expect("the daemon reads");
    }
    let last = format!("that was {MANY} in the name of {server}");
    fifo.write_all(&record(1, &last)).expect("the daemon reads");
    sim.lab.wait_log("server.log", &last);
}

#[test]
fn a_flood_of_forged_records_after_a_fault_blames_nobody_and_leaves_the_journal_alone() {
    once(|subject| {
        let sim = Sim::watched(subject, &[]);
        sim.config("[faults]\nquarantine_after = 0\nrefuse_after = 0\n");
        sim.lab.start(&[]);
        // Nobody knows whose doing it is, and its server stays as long as somebody lingers.
        let bench = fault(&sim, 1, "misaligned", Some(Signal::SIGSTOP));
        let before = wait_verdicts(&sim, 1);
        assert!(before[0].starts_with("nobody can be named") && before[0].contains("; unknown"), "{before:?}");
        let log = sim.lab.log("control.log");
        let (_, rest) = log.split_once("Fault 1 of server ").expect("it names the server");
        let server = rest.split(' ').next().and_then(|pid| pid.parse().ok()).expect("a pid");
        let innocent = bench.others[0].pid();
        forge(&sim, server, innocent.as_raw());
        sim.lab.wait_log("control.log", "records of faults in the log FIFO were too many to be heard");
        assert!(sim.lab.ask("status\n").contains(&server.to_string()), "it is answered");
        assert_eq!(verdicts(&sim), before, "nothing new is known");
        let journal = sim.lab.log("events.jsonl");
        let signs = journal.lines().filter(|line| line.contains("\"server-log\"")).count();
        assert!(
            signs <= MOST_SIGNS + 2,
            "{signs} lines: the signs, the verdict's own, and what was not heard\n{journal}"
        );
        for other in bench.others {
            other.signal(Signal::SIGCONT);
            drop(sim.finish(other));
        }
    });
}

#[test]
fn a_flood_of_forged_records_about_a_sound_server_takes_nothing_from_its_clients() {
    once(|subject| {
        let sim = Sim::watched(subject, &[]);
        sim.lab.start(&[]);
        let client = sim.start("mps-bystander", &["--every-ms", "50"], "ready");
        let server = sim.lab.ask("get_server_list\n").trim().parse().expect("one server");
        forge(&sim, server, client.pid().as_raw());
        let newcomer = sim.start("mps-bystander", &["--every-ms", "50"], "ready");
        assert_eq!(sim.lab.ask("get_server_list\n").trim(), server.to_string(), "nobody was sent elsewhere");
        assert_eq!(verdicts(&sim), Vec::<String>::new());
        let journal = sim.lab.log("events.jsonl");
        assert!(!journal.contains("fault-sign") && !journal.contains("server-tainted"), "{journal}");
        for process in [client, newcomer] {
            process.signal(Signal::SIGTERM);
            drop(sim.finish(process));
        }
    });
}

/// The flood ends when everything else is done: a daemon that read until nothing is left would do nothing else.
#[test]
fn commands_and_newcomers_are_served_between_forged_records_without_end() {
    once(|subject| {
        // The simulated server may be slow beside so much else.
        let sim = Sim::watched(subject, &[VERY_PATIENT]);
        sim.lab.start(&[]);
        let client = sim.start("mps-bystander", &["--every-ms", "50"], "ready");
        let server: u32 = sim.lab.ask("get_server_list\n").trim().parse().expect("one server");
        let (mut pipe, one) = (fifo(&sim), forged(server, client.pid().as_raw()));
        let is_over = AtomicBool::new(false);
        let newcomer = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    pipe.write_all(&one).expect("the daemon reads");
                }
            });
            let done = || {
                for _ in 0..5 {
                    assert!(sim.lab.ask("status\n").contains(&server.to_string()), "it is answered");
                }
                sim.start("mps-bystander", &["--every-ms", "50"], "ready")
            };
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(done));
            is_over.store(true, Ordering::Relaxed);
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        assert_eq!(sim.lab.ask("get_server_list\n").trim(), server.to_string(), "and went to the same server");
        for process in [client, newcomer] {
            process.signal(Signal::SIGTERM);
            drop(sim.finish(process));
        }
    });
}
