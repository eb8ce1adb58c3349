//! `stop-client`: it ends those who are meant, and nobody else notices.

use integration::lab::process::{Finished, Process};
use integration::sim::{Sim, error_of, find_event, held, wait};
use integration::under_test::{Skipped, Subject, for_each, subjects};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use remps_proto::admin::Personality;
use sim_wire::uvm;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Seconds that are not over before whatever is waited for has happened.
const PATIENT: &str = "3600";

/// A client that nobody may harm: it ends, with all its work done, when it is waited for.
fn bystander(sim: &Sim) -> Process {
    sim.start_with_input("mps-bystander", &["--until-stdin-closes", "--every-ms", "50"], "ready")
}

/// Waits until a bystander has worked for longer than a fault takes to reach it, and for its end.
fn goes_on(sim: &Sim, process: Process) -> Finished {
    let lines = || process.output().matches("progress").count();
    let before = lines();
    wait(sim, "the bystander goes on", || lines() >= before + 3 || find_event(&process.output(), "error").is_some());
    sim.finish(process)
}

/// Our program with `stop-client`, whoever is the daemon.
fn stop(sim: &Sim, arguments: &[&str]) -> Finished {
    let tool = Subject::ours(Personality::V580);
    sim.lab.finish(&mut sim.lab.command_of(&tool, &[&["stop-client"], arguments].concat()), b"")
}

#[track_caller]
fn assert_done(finished: &Finished, says: &str) {
    assert_eq!((finished.code, finished.stderr_text().as_str()), (Some(0), ""), "{finished:?}");
    assert!(finished.stdout_text().contains(says), "{finished:?}");
}

/// It is ended, and said to be no client.
#[track_caller]
fn assert_no_client(finished: &Finished, pid: &str, says: &str) {
    let remark = format!("stop-client: {pid}: no client of this daemon's\n");
    assert_eq!((finished.code, finished.stderr_text()), (Some(1), remark), "{finished:?}");
    assert!(finished.stdout_text().contains(says), "{finished:?}");
}

/// A client in a kernel that never ends.
fn in_endless_kernel(sim: &Sim) -> Process {
    let process = sim.start("mps-aggressor", &["endless"], "launched");
    let file = held::look_at(process.pid());
    wait(sim, "the kernel runs", || uvm::busy_until(&file).is_ok_and(|until| until > uvm::now()));
    process
}

/// A shell that does what is told on SIGTERM, and is no client.
fn shell(sim: &Sim, on_sigterm: &str) -> Process {
    // Reading from a FIFO that nobody writes is waiting without another process.
    let fifo = sim.lab.dir().join("never-written");
    let script = format!(
        "mkfifo {0}; exec 3<>{0}; trap '{on_sigterm}' TERM; echo '{{\"event\":\"ready\"}}'; while :; do read line <&3; done",
        fifo.display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    let process = Process::start(&mut command);
    sim.wait_event(&process, "ready");
    process
}

#[test]
fn a_client_in_an_endless_kernel_is_ended_and_its_bystanders_go_on() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let other = bystander(&sim);
        let client = in_endless_kernel(&sim);
        let (server, pid) = (sim.server(), client.pid().to_string());
        let finished = stop(&sim, &["--timeout", PATIENT, &pid]);
        assert_done(&finished, &format!("{pid}: terminated at server {server}, ended"));
        let _ = sim.finish(client);
        let unharmed = goes_on(&sim, other);
        assert_eq!(error_of(&unharmed), None, "{subject}");
        assert!(find_event(&unharmed.stdout_text(), "end").is_some(), "{subject}");
    });
}

#[test]
fn who_does_not_end_by_sigterm_is_killed_after_the_timeout() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let stubborn = shell(&sim, "");
        let pid = stubborn.pid().to_string();
        assert_no_client(&stop(&sim, &["--timeout", "0.2", &pid]), &pid, "after SIGKILL");
        assert_eq!(sim.finish(stubborn).signal, Some(Signal::SIGKILL as i32), "{subject}");
    });
}

#[test]
fn who_handles_sigterm_may_end_by_itself_when_it_is_given_grace() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let graceful = shell(&sim, "exit 3");
        let pid = graceful.pid().to_string();
        assert_no_client(&stop(&sim, &["--grace", PATIENT, &pid]), &pid, "ended by itself");
        assert_eq!(sim.finish(graceful).code, Some(3), "{subject}");
        // One that does not handle it is terminated first, whatever grace there is: the signal would end it at once.
        let other = bystander(&sim);
        let client = in_endless_kernel(&sim);
        assert_done(&stop(&sim, &["--grace", PATIENT, &client.pid().to_string()]), "terminated at server");
        let _ = sim.finish(client);
        assert_eq!(error_of(&goes_on(&sim, other)), None, "{subject}");
    });
}

#[test]
fn a_pid_that_no_process_has_is_said_and_is_a_failure() {
    // The kernel gives no pid above this (`PID_MAX_LIMIT`).
    const NOBODY: &str = "4194305";
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let client = sim.start("mps-bystander", &[], "ready");
        let finished = stop(&sim, &[NOBODY, &client.pid().to_string()]);
        assert_eq!((finished.code, finished.stderr_text().as_str()), (Some(1), ""), "{finished:?}");
        let text = finished.stdout_text();
        assert!(text.starts_with(&format!("{NOBODY}: no such process\n")), "{text}");
        assert!(text.contains("terminated at server"), "the others are ended: {text}");
        let _ = sim.finish(client);
        let json = stop(&sim, &["-o", "json", NOBODY]);
        let want = format!("{{\"complete\":false,\"done\":\"no such process\",\"process\":\"{NOBODY}\"}}\n");
        assert_eq!((json.code, json.stdout_text()), (Some(1), want), "{json:?}");
    });
    // Nor without a daemon.
    for_each(subjects(), |subject| {
        let finished = stop(&Sim::new(subject, &[]), &[NOBODY]);
        assert_eq!((finished.code, finished.stdout_text()), (Some(1), format!("{NOBODY}: no such process\n")));
    });
}

#[test]
fn without_signals_a_client_loses_its_work_and_nothing_else() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let client = sim.start("mps-bystander", &[], "ready");
        assert_done(&stop(&sim, &["--no-signal", &client.pid().to_string()]), "no signal sent");
        assert_eq!(error_of(&sim.finish(client)), Some(810), "{subject}");
    });
}

#[test]
fn without_a_daemon_a_process_is_ended_all_the_same() {
    for_each(subjects(), |subject| {
        let sim = Sim::new(subject, &[]);
        let process = shell(&sim, "exit 0");
        let finished = stop(&sim, &[&process.pid().to_string()]);
        assert_eq!(finished.code, Some(0), "{finished:?}");
        assert!(finished.stderr_text().contains("no daemon answers"), "{finished:?}");
        assert_eq!(sim.finish(process).code, Some(0), "{subject}");
    });
}

#[test]
fn all_clients_of_a_namespace_are_ended_and_who_is_no_client_lives() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let clients = [0, 1].map(|_| sim.start("mps-bystander", &[], "ready"));
        let bystander = shell(&sim, "exit 0");
        let finished = stop(&sim, &["--all-of", "self"]);
        assert_done(&finished, "terminated");
        assert_eq!(finished.stdout_text().lines().count(), clients.len(), "{finished:?}");
        for client in clients {
            let _ = sim.finish(client);
        }
        assert!(!bystander.ended_within(std::time::Duration::ZERO), "{subject}");
        assert_eq!(sim.lab.ask(&format!("get_client_list {}\n", sim.server())), "", "{subject}");
    });
}

/// A cgroup of the test's own, in whatever hierarchy it may make one.
struct Cgroup(PathBuf);

impl Cgroup {
    fn make() -> Result<Self, Skipped> {
        let name = format!("mps-test-{}", std::process::id());
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"];
        for path in roots.map(|root| PathBuf::from(root).join(&name)) {
            if fs::create_dir(&path).is_ok() {
                if path.join("cgroup.procs").exists() {
                    return Ok(Self(path));
                }
                let _ = fs::remove_dir(&path);
            }
        }
        Err(Skipped("no right to make a cgroup".to_owned()))
    }

    fn add(&self, pid: Pid) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("a process of ours can be moved");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // One that still has a process stays, which is the machine's only trace of a failed test.
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn all_clients_of_a_cgroup_are_ended_and_those_of_others_live() {
    let cgroup = match Cgroup::make() {
        Ok(cgroup) => cgroup,
        Err(skipped) => return skipped.report(),
    };
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let other = bystander(&sim);
        let (client, no_client) = (in_endless_kernel(&sim), shell(&sim, "exit 0"));
        cgroup.add(client.pid());
        cgroup.add(no_client.pid());
        let path = cgroup.0.to_str().expect("a plain path").to_owned();
        let finished = stop(&sim, &["--cgroup", &path]);
        assert_done(&finished, &format!("{}: terminated", client.pid()));
        assert_eq!(finished.stdout_text().lines().count(), 1, "{finished:?}");
        let _ = sim.finish(client);
        assert!(!no_client.ended_within(std::time::Duration::ZERO), "{subject}");
        no_client.signal(Signal::SIGKILL);
        let _ = sim.finish(no_client);
        assert_eq!(error_of(&goes_on(&sim, other)), None, "{subject}");
    });
}

#[test]
fn a_hook_in_a_container_terminates_its_own_clients_and_no_others() {
    let unshare = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    if !Command::new("unshare").args(unshare).arg("true").status().is_ok_and(|status| status.success()) {
        return Skipped("no right to make a process namespace".to_owned()).report();
    }
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let other = bystander(&sim);
        let like = sim.command("mps-bystander", &[]);
        let mut command = Command::new("unshare");
        // The first process outlives the client, because its end would be that of everything in there, the hook too.
        let init = r#""$@"; echo '{"event":"left"}'; mkfifo "$0"; read line < "$0""#;
        let fifo = sim.lab.dir().join("never-written");
        command.args(unshare).args(["sh", "-c", init]).arg(fifo);
        command.arg(like.get_program()).args(like.get_args()).env_clear();
        command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("PATH", "/usr/bin:/bin");
        let container = Process::start(&mut command);
        sim.wait_event(&container, "ready");
        let first = fs::read_to_string(format!("/proc/{0}/task/{0}/children", container.pid())).expect("it has one");
        let tool = Subject::ours(Personality::V580);
        let hook = |arguments: &[&str]| {
            let like = sim.lab.command_of(&tool, &[&["stop-client"], arguments].concat());
            let mut command = Command::new("nsenter");
            command.args(["--target", first.trim(), "--pid", "--mount"]).arg(like.get_program());
            command.args(like.get_args()).env_clear();
            command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command.env("PATH", "/usr/bin:/bin");
            sim.lab.finish(&mut command, b"")
        };
        // Pid 1 of the container is somebody else for the daemon.
        let refused = hook(&["1"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr_text().contains("--all-of self"), "{refused:?}");
        assert!(find_event(&container.output(), "error").is_none(), "{}", container.output());
        assert_done(&hook(&["--all-of", "self"]), "(the daemon's pid): terminated");
        sim.wait_event(&container, "left");
        let error = find_event(&container.output(), "error").expect("it has lost its work");
        assert_eq!(error["code"], 810, "{subject}");
        assert_eq!(error_of(&goes_on(&sim, other)), None, "{subject}");
    });
}
