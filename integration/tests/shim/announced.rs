//! The daemon's word: a program that makes no call is recovered before its next one, a culprit is told from a bystander,
//! and what a dead copy of the driver had is given back.

use integration::lab::escrow::TAKES_MEMORY_FILES;
use integration::lab::process::{Finished, Process, run};
use integration::lab::{LIMIT, VERY_PATIENT};
use integration::shim;
use integration::shim::heir::Heir;
use integration::sim::{Sim, error_of, held, wait};
use integration::under_test::{Subject, once};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

const EVERYBODY: &str = "in-place";
const BYSTANDERS: &str = "bystander";
/// `begun_by` of a recovery that the daemon has announced.
const ANNOUNCED: u64 = 1;
/// Values of `part`.
const BYSTANDER: u64 = 1;
const CULPRIT: u64 = 3;
/// A fault comes to the clients as late as on real hardware: the daemon knows by then whose it is. It is asked for that
/// once, when a client has the error.
const SPREAD: (&str, &str) = ("MPS_SIM_FAULT_MS", "300");

fn replaying(sim: &Sim, who: &str, arguments: &[&str]) -> Command {
    let mut command = shim::recording(sim.command("mps-replay-probe", arguments));
    command.env("MPS_SHIM_REPLAY", who);
    command
}

fn events(output: &str, event: &str) -> Vec<Value> {
    let parsed = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    parsed.filter(|line| line["event"] == event).collect()
}

/// A bench whose servers stay after a fault as long as they have clients, and whose daemon waits for what tells of it for
/// certain as long as may be.
fn patient(subject: &Subject) -> Sim {
    let sim = Sim::watched(subject, &[SPREAD, VERY_PATIENT]);
    sim.config("[faults]\nvictims_timeout = 3600\n");
    sim.lab.start(&[]);
    sim
}

fn is_whole(finished: &Finished, recoveries: u64, context: &str) {
    assert_eq!(error_of(finished), None, "{context}: {finished:?}");
    let end = &events(&finished.stdout_text(), "end")[0];
    assert_eq!((&end["is_intact"], end["recoveries"].as_u64()), (&true.into(), Some(recoveries)), "{context}: {end}");
}

/// A program that makes no call, recovered from `count` faults; the last line of each recovery.
fn idle(sim: &Sim, count: usize, hurt: impl Fn(usize)) -> Vec<Value> {
    let arguments = ["--idle", "--recoveries", &count.to_string(), "--seconds", "600"];
    let probe = Process::start(&mut replaying(sim, EVERYBODY, &arguments));
    sim.wait_event(&probe, "ready");
    for done in 0..count {
        hurt(done);
        wait(sim, "a recovery", || events(&probe.output(), "recovered").len() > done);
    }
    let finished = probe.finish(LIMIT).expect("it ends");
    is_whole(&finished, count as u64, &sim.lab.subject().to_string());
    events(&finished.stdout_text(), "recovered")
}

#[test]
fn an_idle_bystander_is_recovered_before_its_next_call_and_sees_nothing() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let kinds = [("oob", 700), ("trap", 719)];
        let recovered = idle(&sim, kinds.len(), |done| {
            let (kind, code) = kinds[done];
            assert_eq!(error_of(&sim.run("mps-aggressor", &[kind])), Some(code), "{subject}");
        });
        for (line, (_, code)) in recovered.iter().zip(kinds) {
            let recovery = &line["recovery"];
            assert_eq!((&line["told"], &recovery["lost_streams"]), (&Value::Null, &0.into()), "{subject}: {line}");
            assert_eq!((recovery["begun_by"].as_u64(), recovery["error"].as_u64()), (Some(ANNOUNCED), Some(code)));
        }
    });
}

#[test]
fn an_idle_program_is_recovered_from_its_servers_death_and_the_daemons() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let recovered = idle(&sim, 2, |done| {
            let server = sim.server();
            if done == 1 {
                // A daemon that was not there before has the word too.
                let daemon = sim.lab.running_daemon();
                kill(daemon, Signal::SIGKILL).expect("it is ours");
                sim.lab.wait_gone(daemon);
                sim.lab.start(&[]);
            }
            kill(Pid::from_raw(server), Signal::SIGKILL).expect("it runs");
        });
        for line in recovered {
            assert_eq!((&line["told"], line["recovery"]["error"].as_u64()), (&Value::Null, Some(806)), "{line}");
            assert_eq!(line["recovery"]["begun_by"].as_u64(), Some(ANNOUNCED), "{line}");
        }
    });
}

#[test]
fn an_idle_program_that_comes_to_the_daemon_after_its_server_has_ended_hears_of_that() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let (door, aside) = (sim.lab.pipe_dir().join("shim"), sim.lab.pipe_dir().join("aside"));
        fs::rename(&door, &aside).expect("the door is there");
        let recovered = idle(&sim, 1, |_| {
            let server = sim.server();
            kill(Pid::from_raw(server), Signal::SIGKILL).expect("it runs");
            wait(&sim, "the server's end is known", || sim.servers().is_empty());
            fs::rename(&aside, &door).expect("it is where it was put");
        });
        assert_eq!(recovered[0]["recovery"]["begun_by"].as_u64(), Some(ANNOUNCED), "{subject}");
    });
}

/// Threads of a process, and sockets that the library holds in it: in the upper half of the numbers.
fn threads_and_sockets(pid: Pid) -> (usize, usize) {
    let count = |folder: &str, fits: &dyn Fn(&Path) -> bool| {
        let entries = fs::read_dir(format!("/proc/{pid}/{folder}")).into_iter().flatten().flatten();
        entries.filter(|entry| fits(&entry.path())).count()
    };
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap_or_default();
    let most: u64 = files.split_whitespace().next().and_then(|soft| soft.parse().ok()).expect("a limit");
    let is_socket = |path: &Path| {
        let number = path.file_name().and_then(|name| name.to_str()?.parse::<u64>().ok());
        number.is_some_and(|number| number >= most / 2)
            && fs::read_link(path).is_ok_and(|file| file.to_string_lossy().starts_with("socket:"))
    };
    (count("task", &|_| true), count("fd", &is_socket))
}

#[test]
fn a_program_has_one_thread_and_one_socket_for_the_daemon_whatever_they_are_for() {
    once(|subject| {
        let sim = Sim::started(subject, &[TAKES_MEMORY_FILES]);
        let arguments = ["--idle", "--recoveries", "1", "--seconds", "600"];
        let alone = Process::start(&mut shim::recording(sim.command("mps-replay-probe", &arguments)));
        sim.wait_event(&alone, "ready");
        let (threads, sockets) = threads_and_sockets(alone.pid());
        assert_eq!(sockets, 0, "{subject}");
        alone.signal(Signal::SIGKILL);
        let _killed = alone.finish(LIMIT);
        // One that only tells of its faults holds no place at the door.
        let mut command = shim::recording(sim.command("mps-replay-probe", &arguments));
        let telling = Process::start(command.env("MPS_SHIM_FAULTS", "tell"));
        sim.wait_event(&telling, "ready");
        wait(&sim, "one thread", || threads_and_sockets(telling.pid()) == (threads + 1, 0));
        telling.signal(Signal::SIGKILL);
        let _killed = telling.finish(LIMIT);
        let mut command = replaying(&sim, EVERYBODY, &arguments);
        let probe = Process::start(command.env("MPS_SHIM_NAME", "llm").env("MPS_SHIM_FAULTS", "tell"));
        sim.wait_event(&probe, "ready");
        wait(&sim, "memory in the vault", || !sim.lab.ask("vault list --json\n").is_empty());
        // A thread that copies the driver's file ends with that, and one more looks at variables.
        wait(&sim, "one thread and one socket", || threads_and_sockets(probe.pid()) == (threads + 2, 1));
        assert_eq!(error_of(&sim.run("mps-aggressor", &["oob"])), Some(700), "{subject}");
        let finished = probe.finish(LIMIT).expect("it ends");
        is_whole(&finished, 1, &subject.to_string());
        let recovered = &events(&finished.stdout_text(), "recovered")[0];
        assert_eq!(recovered["recovery"]["begun_by"].as_u64(), Some(ANNOUNCED), "{subject}: {recovered}");
    });
}

#[test]
fn who_is_certainly_the_culprit_is_not_recovered_where_only_bystanders_are() {
    once(|subject| {
        let sim = patient(subject);
        let probe =
            Process::start(&mut replaying(&sim, BYSTANDERS, &["--idle", "--recoveries", "1", "--seconds", "600"]));
        sim.wait_event(&probe, "ready");
        // On the same server, and by the kernel's own word the culprit.
        let culprit = run(&mut replaying(&sim, BYSTANDERS, &["--faults", "oob"]), b"", LIMIT).expect("it runs");
        assert_eq!(error_of(&culprit), Some(700), "{subject}: {culprit:?}");
        assert!(culprit.stderr_text().contains("spares only bystanders"), "{subject}: {culprit:?}");
        let fault = &events(&culprit.stdout_text(), "fault")[0];
        assert_eq!(fault["is_recovered"], false, "{subject}: {fault}");
        let bystander = probe.finish(LIMIT).expect("it ends");
        is_whole(&bystander, 1, &subject.to_string());
        let recovered = &events(&bystander.stdout_text(), "recovered")[0];
        assert_eq!(recovered["recovery"]["part"].as_u64(), Some(BYSTANDER), "{subject}: {recovered}");
        // The same culprit where everybody is.
        let culprit = run(&mut replaying(&sim, EVERYBODY, &["--faults", "oob"]), b"", LIMIT).expect("it runs");
        is_whole(&culprit, 1, &subject.to_string());
        let fault = &events(&culprit.stdout_text(), "fault")[0];
        assert_eq!(fault["recovery"]["part"].as_u64(), Some(CULPRIT), "{subject}: {fault}");
    });
}

#[test]
fn without_a_daemon_a_fault_is_the_programs_own() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let refused = run(&mut replaying(&sim, BYSTANDERS, &["--faults", "trap"]), b"", LIMIT).expect("it runs");
        assert_eq!(error_of(&refused), Some(719), "{subject}: {refused:?}");
        assert!(refused.stderr_text().contains("spares only bystanders"), "{subject}: {refused:?}");
    });
}

#[test]
fn what_a_dead_copy_had_is_given_back_while_its_server_lives_on() {
    once(|subject| {
        let sim = patient(subject);
        // It makes no call and is not recovered, so the server that the fault has spoilt goes on.
        let lingering = Heir::begin(&sim, "", &[]);
        let _ready = lingering.event("ready");
        let probe =
            Process::start(&mut replaying(&sim, EVERYBODY, &["--idle", "--recoveries", "1", "--seconds", "600"]));
        sim.wait_event(&probe, "ready");
        let server = sim.server();
        let dead = held::Memory::of(probe.pid());
        assert!(dead.in_use(0) > 0, "{subject}");
        assert_eq!(error_of(&sim.run("mps-aggressor", &["oob"])), Some(700), "{subject}");
        wait(&sim, "the memory of the dead copy", || dead.in_use(0) == 0);
        let finished = probe.finish(LIMIT).expect("it ends");
        is_whole(&finished, 1, &subject.to_string());
        assert!(kill(Pid::from_raw(server), None).is_ok(), "{subject}: the old server lives on");
        lingering.kill_9();
    });
}

#[test]
fn a_server_that_has_died_under_work_is_known_to_be_quiet_by_the_daemons_word() {
    // Whether something may still write is for the daemon to say, whatever the dead copy of the driver unmaps.
    const STUBBORN: (&str, &str) = ("MPS_SIM_FAIL_AT", "1:cuMemUnmap");
    once(|subject| {
        for (has_daemon, variables) in [(true, &[STUBBORN][..]), (false, &[STUBBORN]), (true, &[]), (false, &[])] {
            let sim = Sim::started(subject, variables);
            let arguments = ["--busy", "--recoveries", "1", "--seconds", "600"];
            let probe = Process::start(&mut replaying(&sim, EVERYBODY, &arguments));
            sim.wait_event(&probe, "ready");
            let server = sim.server();
            if !has_daemon {
                let daemon = sim.lab.running_daemon();
                kill(daemon, Signal::SIGKILL).expect("it is ours");
                sim.lab.wait_gone(daemon);
            }
            kill(Pid::from_raw(server), Signal::SIGKILL).expect("it runs");
            let finished = probe.finish(LIMIT).expect("it ends");
            if has_daemon {
                is_whole(&finished, 1, &subject.to_string());
                continue;
            }
            assert_eq!(error_of(&finished), Some(806), "{subject}: {finished:?}");
            assert!(finished.stderr_text().contains("may still run"), "{subject}: {finished:?}");
        }
    });
}

#[test]
fn a_daemon_killed_at_any_step_of_its_word_is_asked_again() {
    once(|subject| {
        for point in ["news-asked", "renewal-asked", "renewal-known", "renewal-done"] {
            let sim = Sim::watched(subject, &[]);
            let mut armed = sim.lab.command(&["-f"]);
            let mut armed = armed.env("MPS_TEST_KILL_AT", point).spawn().expect("it starts");
            wait(&sim, "the daemon", || sim.lab.pipe_dir().join("shim").exists());
            let arguments = ["--idle", "--recoveries", "1", "--seconds", "600"];
            let probe = Process::start(&mut replaying(&sim, EVERYBODY, &arguments));
            let hurt = || {
                sim.wait_event(&probe, "ready");
                assert_eq!(error_of(&sim.run("mps-aggressor", &["oob"])), Some(700), "{subject}: {point}");
            };
            if point == "news-asked" {
                assert!(!armed.wait().expect("our child").success(), "it dies at {point}");
                sim.lab.start(&[]);
                hurt();
            } else {
                hurt();
                assert!(!armed.wait().expect("our child").success(), "it dies at {point}");
                sim.lab.start(&[]);
            }
            let finished = probe.finish(LIMIT).expect("it ends");
            is_whole(&finished, 1, &format!("{subject}: {point}"));
            assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{subject}: {point}: the next one is served");
        }
    });
}
