//! Clients without a pid for the daemon: it is in a PID namespace of its own, as in a pod without `hostPID`.
//!
//! Nobody outside may tell such a daemon to quit; it and all that it has started end with the bench.

use integration::lab::LIMIT;
use integration::lab::place::{Container, where_possible, within};
use integration::lab::process::Process;
use integration::lab::program::Program;
use integration::lab::stage::{CLIENT, CONTROL, Stage};
use integration::lab::watch;
use integration::under_test::Skipped;
use nix::unistd::geteuid;
use std::process::Command;

/// A container's namespaces: pids and, by what is mounted there, a `/proc` of its own.
const POD: &[&str] = &["unshare", "--pid", "--fork", "--kill-child", "--mount"];

/// The daemon in such a place, which sees the machine's `/proc` where the bench has it.
struct Pod(Process);

impl Pod {
    fn start(stage: &Stage, domains: &str, proc: &str) -> Self {
        stage.config(&format!("[domains]\n{domains}\n[witness]\nproc = \"{proc}\"\n"));
        let folder = stage.lab().dir().join("machine");
        std::fs::create_dir_all(&folder).expect("the bench's folder is ours");
        let script = "mount --rbind /proc \"$1\" && mount -t proc proc /proc && shift && exec \"$@\"";
        let daemon = stage.command_as(0, CONTROL, &["-f"]);
        let mut inner = Command::new("sh");
        inner.args(["-c", script, "sh"]).arg(&folder).arg(daemon.get_program()).args(daemon.get_args()).env_clear();
        inner.envs(daemon.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let pod = Self(Process::start(&mut within(POD, &inner)));
        let is_up =
            || stage.pipe_dir().join("control").exists() && integration::lab::client::can_connect(stage.pipe_dir());
        watch::wait_for(stage.lab().dir(), stage.pipe_dir(), LIMIT, "the daemon", is_up);
        pod
    }

    fn wait_for(&self, stage: &Stage, what: &str) {
        stage.wait_for(what, || self.0.output().contains(what));
    }
}

/// Where the machine's `/proc` is for a daemon of this bench.
fn machines_proc(stage: &Stage) -> String {
    stage.lab().dir().join("machine").display().to_string()
}

/// The UID of a pod.
fn uid(number: u32) -> String {
    format!("11111111-0000-0000-0000-{number:012x}")
}

fn client_in(stage: &Stage, container: &Container) -> Program {
    let command = stage.command_as(geteuid().as_raw(), CLIENT, &[]);
    let entered = container.entered();
    let words: Vec<&str> = entered.iter().map(String::as_str).collect();
    let program = Program::started_as(within(&words, &command));
    program.expect("attached");
    program
}

#[test]
fn clients_without_a_pid_are_placed_and_named_by_the_machines_proc() {
    where_possible(&[POD], |stage| {
        let [Ok(one), Ok(two)] = [0xa1, 0xb2].map(|number| Container::make(&uid(number), number)) else {
            return Skipped("no right to make a cgroup".to_owned()).report();
        };
        let pod = Pod::start(stage, "by = \"cgroup\"", &machines_proc(stage));
        let mut clients = [client_in(stage, &one), client_in(stage, &two), client_in(stage, &one)];
        clients.iter_mut().for_each(Program::ping);
        assert_eq!(stage.ask("get_server_list\n").lines().count(), 2, "one for each pod: {}", pod.0.output());
        for (client, container) in clients.iter().zip([format!("{:064x}", 0xa1), format!("{:064x}", 0xb2)]) {
            let line = format!("process {} of the machine", client.pid());
            pod.wait_for(stage, &line);
            let output = pod.0.output();
            let told = output.lines().find(|told| told.contains(&line)).expect("it was waited for");
            assert!(told.contains(&container) && told.contains(CLIENT), "{told}");
        }
        let status = stage.ask("status\n");
        assert!(status.contains("Degraded") && status.contains("hostPID"), "{status}");
        clients.into_iter().for_each(Program::leave);
    });
}

#[test]
fn without_the_machines_proc_they_share_a_server_and_it_is_said_what_that_costs() {
    for (proc, why) in [("", "witness.proc is not set"), ("/dev", "no proc file system")] {
        where_possible(&[POD], |stage| {
            let [Ok(one), Ok(two)] = [0xc3, 0xd4].map(|number| Container::make(&uid(number), number)) else {
                return Skipped("no right to make a cgroup".to_owned()).report();
            };
            let pod = Pod::start(stage, "by = \"cgroup\"", proc);
            let mut clients = [client_in(stage, &one), client_in(stage, &two)];
            clients.iter_mut().for_each(Program::ping);
            assert_eq!(stage.ask("get_server_list\n").lines().count(), 1, "{proc}");
            pod.wait_for(stage, "Degraded: ");
            let output = pod.0.output();
            let told: Vec<&str> = output.lines().filter(|line| line.contains("Degraded: ")).collect();
            assert_eq!(told.len(), 1, "once: {output}");
            assert!(told[0].contains("placed by user alone") && told[0].contains(why), "{told:?}");
            clients.into_iter().for_each(Program::leave);
        });
    }
}

#[test]
fn clients_without_a_pid_are_told_apart_counted_and_shown() {
    where_possible(&[POD], |stage| {
        let [Ok(one), Ok(two)] = [0xe5, 0xf6].map(|number| Container::make(&uid(number), number)) else {
            return Skipped("no right to make a cgroup".to_owned()).report();
        };
        let pod = Pod::start(stage, "max_clients = 1", &machines_proc(stage));
        let mut clients = [client_in(stage, &one), client_in(stage, &two), client_in(stage, &one)];
        clients.iter_mut().for_each(Program::ping);
        let servers = || stage.ask("get_server_list\n").lines().count();
        assert_eq!(servers(), 3, "one for each: {}", pod.0.output());
        // As `status` has them, by the pids that they have on the machine.
        let shown = || -> Vec<String> {
            let status = stage.ask("status\n");
            let pids = status.lines().filter_map(|line| line.split_whitespace().next()?.strip_prefix('~'));
            pids.map(str::to_owned).collect()
        };
        let pids = |clients: &[Program]| -> Vec<String> { clients.iter().map(|it| it.pid().to_string()).collect() };
        let is_same = |mut some: Vec<String>, mut others: Vec<String>| {
            some.sort();
            others.sort();
            some == others
        };
        assert!(is_same(shown(), pids(&clients)), "{:?}: {}", pids(&clients), stage.ask("status\n"));
        let json = stage.ask("status --json\n");
        for pid in pids(&clients) {
            assert!(json.contains(&format!("\"seen_as\":{pid}")), "{pid}: {json}");
        }
        let top = stage.lab().run(&["top", "--once"], b"").stdout_text();
        assert!(pids(&clients).iter().all(|pid| top.contains(pid.as_str())), "{top}");
        // Who has ended makes room.
        let [first, second, third] = clients;
        first.leave();
        let mut left = vec![second, third];
        stage.wait_for("its end", || is_same(shown(), pids(&left)));
        left.push(client_in(stage, &two));
        left.iter_mut().for_each(Program::ping);
        assert_eq!(servers(), 3, "{}", pod.0.output());
        assert!(!pod.0.output().contains("max_clients counts none"), "{}", pod.0.output());
        left.into_iter().for_each(Program::leave);
    });
}

/// How many descriptors the daemon has open.
fn open_files(pod: &Pod) -> usize {
    // The daemon is what the wrapper that makes the namespace has started.
    let children = format!("/proc/{0}/task/{0}/children", pod.0.pid());
    let daemon = std::fs::read_to_string(children).expect("the wrapper runs");
    let folder = format!("/proc/{}/fd", daemon.trim());
    std::fs::read_dir(folder).expect("the daemon runs, and root may look").count()
}

#[test]
fn a_container_that_connects_hundreds_of_times_takes_nothing_from_others() {
    where_possible(&[POD], |stage| {
        let pod = Pod::start(stage, "by = \"uid\"", &machines_proc(stage));
        let mut first = Program::attached(stage, geteuid().as_raw());
        first.ping();
        let before = open_files(&pod);
        for _ in 0..300 {
            // It says that it is a client, and is gone before it is told anything.
            let connection = integration::lab::client::Connection::open(&stage.pipe_dir().join("control"));
            let connection = connection.expect("the daemon accepts");
            let _ = connection.greets(remps_proto::mps::handshake::Role::CLIENT);
        }
        let mut other = Program::attached(stage, geteuid().as_raw());
        other.ping();
        first.ping();
        other.leave();
        stage.wait_for("as few open files as before", || open_files(&pod) <= before + 2);
        first.leave();
    });
}
