//! Clients without a pid for the daemon: it is in a PID namespace of its own, as in a pod without `hostPID`.
//!
//! Nobody outside may tell such a daemon to quit; it and all that it has started end with the bench.

mod constrained;
mod ends;
mod succession;

use integration::lab::LIMIT;
use integration::lab::client::Connection;
use integration::lab::place::{Container, where_possible, within};
use integration::lab::pod::{POD, Pod, machines_proc};
use integration::lab::program::Program;
use integration::lab::stage::{CLIENT, CONTROL, Part, Stage, descriptors};
use integration::under_test::Skipped;
use nix::unistd::geteuid;
use remps_proto::mps::handshake::{DESCRIPTOR, Role};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// The daemon in such a place, with this in its table of domains and this for `witness.proc`.
fn configured(stage: &Stage, domains: &str, proc: &str) -> Command {
    stage.config(&format!("[domains]\n{domains}\n[witness]\nproc = \"{proc}\"\n"));
    stage.command_as(0, CONTROL, &["-f"])
}

fn pod_of(stage: &Stage, domains: &str) -> Pod {
    Pod::start(stage.lab(), &configured(stage, domains, &machines_proc(stage.lab())))
}

/// The UID of a pod.
fn uid(number: u32) -> String {
    format!("11111111-0000-0000-0000-{number:012x}")
}

/// A client that is about to be in a container.
fn entering(stage: &Stage, container: &Container) -> Command {
    let command = stage.command_as(geteuid().as_raw(), CLIENT, &[]);
    let entered = container.entered();
    let words: Vec<&str> = entered.iter().map(String::as_str).collect();
    within(&words, &command)
}

fn client_in(stage: &Stage, container: &Container) -> Program {
    let program = Program::started_as(entering(stage, container));
    program.expect("attached");
    program
}

#[test]
fn clients_without_a_pid_are_placed_and_named_by_the_machines_proc() {
    where_possible(&[POD], |stage| {
        let [Ok(one), Ok(two)] = [0xa1, 0xb2].map(|number| Container::make(&uid(number), number)) else {
            return Skipped("no right to make a cgroup".to_owned()).report();
        };
        let pod = pod_of(stage, "by = \"cgroup\"");
        let mut clients = [client_in(stage, &one), client_in(stage, &two), client_in(stage, &one)];
        clients.iter_mut().for_each(Program::ping);
        assert_eq!(stage.ask("get_server_list\n").lines().count(), 2, "one for each pod: {}", pod.output());
        for (client, container) in clients.iter().zip([format!("{:064x}", 0xa1), format!("{:064x}", 0xb2)]) {
            let line = format!("process {} of the machine", client.pid());
            pod.wait_for(stage.lab(), &line);
            let output = pod.output();
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
            let pod = Pod::start(stage.lab(), &configured(stage, "by = \"cgroup\"", proc));
            let mut clients = [client_in(stage, &one), client_in(stage, &two)];
            clients.iter_mut().for_each(Program::ping);
            assert_eq!(stage.ask("get_server_list\n").lines().count(), 1, "{proc}");
            pod.wait_for(stage.lab(), "Degraded: ");
            let output = pod.output();
            let told: Vec<&str> = output.lines().filter(|line| line.contains("Degraded: ")).collect();
            assert_eq!(told.len(), 1, "once: {output}");
            assert!(told[0].contains("placed by user alone") && told[0].contains(why), "{told:?}");
            clients.into_iter().for_each(Program::leave);
        });
    }
}

/// The living clients as `status` shows them: the number in place of their pid, and their pid on the machine.
fn living(stage: &Stage) -> Vec<(String, String)> {
    living_in(&stage.ask("status\n"))
}

fn living_in(status: &str) -> Vec<(String, String)> {
    let rows = status.lines().filter(|line| !line.contains(" gone "));
    let shown = rows.filter_map(|line| line.split_whitespace().next()?.split_once('~'));
    shown.map(|(number, machine)| (number.to_owned(), machine.to_owned())).collect()
}

/// The number that stands for the pid of a client.
fn number_of(stage: &Stage, client: &Program) -> String {
    let machine = client.pid().to_string();
    let found = living(stage).into_iter().find(|(_, pid)| *pid == machine);
    found.unwrap_or_else(|| panic!("{machine}: {}", stage.ask("status\n"))).0
}

/// A client whose server has ended says so and ends.
fn has_lost(mut client: Program) {
    client.begins("ping");
    assert!(integration::lab::process::ended_within(client.pid(), LIMIT), "client {} lives on", client.pid());
}

#[test]
fn clients_without_a_pid_are_told_apart_counted_and_shown() {
    where_possible(&[POD], |stage| {
        let [Ok(one), Ok(two)] = [0xe5, 0xf6].map(|number| Container::make(&uid(number), number)) else {
            return Skipped("no right to make a cgroup".to_owned()).report();
        };
        let pod = pod_of(stage, "max_clients = 1");
        let mut clients = [client_in(stage, &one), client_in(stage, &two), client_in(stage, &one)];
        clients.iter_mut().for_each(Program::ping);
        let servers = || stage.ask("get_server_list\n").lines().count();
        assert_eq!(servers(), 3, "one for each: {}", pod.output());
        // As `status` has the living: by a number, and the pids that they have on the machine.
        let shown = || -> Vec<String> { living(stage).into_iter().map(|(_, machine)| machine).collect() };
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
        assert!(living(stage).iter().all(|(number, _)| top.contains(number.as_str())), "{top}");
        // Who has ended makes room.
        let [first, second, third] = clients;
        first.leave();
        let mut left = vec![second, third];
        stage.wait_for("its end", || is_same(shown(), pids(&left)));
        left.push(client_in(stage, &two));
        left.iter_mut().for_each(Program::ping);
        assert_eq!(servers(), 3, "{}", pod.output());
        assert!(!pod.output().contains("max_clients counts none"), "{}", pod.output());
        left.into_iter().for_each(Program::leave);
    });
}

/// How many descriptors the daemon has open.
fn open_files(pod: &Pod) -> usize {
    let folder = format!("/proc/{}/fd", pod.first());
    std::fs::read_dir(folder).expect("the daemon runs, and root may look").count()
}

#[test]
fn a_container_that_connects_hundreds_of_times_takes_nothing_from_others() {
    where_possible(&[POD], |stage| {
        let pod = pod_of(stage, "by = \"uid\"");
        let mut first = Program::attached(stage, geteuid().as_raw());
        first.ping();
        let before = open_files(&pod);
        for _ in 0..300 {
            // It says that it is a client, and is gone before it is told anything.
            let connection = Connection::open(&stage.pipe_dir().join("control"));
            let connection = connection.expect("the daemon accepts");
            let _ = connection.greets(Role::CLIENT);
        }
        let mut other = Program::attached(stage, geteuid().as_raw());
        other.ping();
        first.ping();
        other.leave();
        stage.wait_for("as few open files as before", || open_files(&pod) <= before + 2);
        first.leave();
    });
}

#[test]
fn clients_without_a_pid_share_limits_and_one_more_is_refused_until_one_leaves() {
    where_possible(&[POD], |stage| {
        let [Ok(one), Ok(two)] = [0x7a, 0x8b].map(|number| Container::make(&uid(number), number)) else {
            return Skipped("no right to make a cgroup".to_owned()).report();
        };
        let pod = pod_of(stage, "by = \"cgroup\"\nshared_by = 2");
        let mut clients = vec![client_in(stage, &one), client_in(stage, &one), client_in(stage, &two)];
        // A process has as many contexts as it likes.
        clients[0].does("context", "context");
        clients.iter_mut().for_each(Program::ping);
        let refused = Program::started_as(entering(stage, &one));
        assert!(!refused.is_served(), "{}", pod.output());
        pod.wait_for(stage.lab(), "limits are shared by 2 clients (shared_by), and as many are there");
        clients.swap_remove(0).leave();
        stage.wait_for("its end", || living(stage).len() == 2);
        clients.push(client_in(stage, &one));
        clients.iter_mut().for_each(Program::ping);
        clients.into_iter().for_each(Program::leave);
    });
}

#[test]
fn who_uses_a_connection_that_another_process_has_made_is_counted_as_himself() {
    where_possible(&[POD], |stage| {
        let pod = pod_of(stage, "shared_by = 1");
        let control = stage.pipe_dir().join("control");
        let lent = || {
            let connection = Connection::of_one_that_has_ended(&control).expect("the daemon accepts");
            connection.greets(Role::CLIENT).expect("it greets")
        };
        let first = lent();
        assert_eq!(first.receive().expect("it is served").bytes, DESCRIPTOR, "{}", pod.output());
        let own = std::process::id();
        assert!(stage.ask("status --json\n").contains(&format!("\"seen_as\":{own}")), "{}", pod.output());
        // Made by yet another process, and this one's again.
        let second = lent();
        assert_eq!(second.receive().expect("it is served").bytes, DESCRIPTOR, "{}", pod.output());
        assert!(!Program::start(stage, geteuid().as_raw()).is_served(), "there is one part: {}", pod.output());
    });
}

#[test]
fn clients_without_a_pid_that_come_and_go_leave_nothing_with_daemon_and_holder() {
    where_possible(&[POD], |stage| {
        let pod = pod_of(stage, "by = \"uid\"");
        Program::visits(stage, geteuid().as_raw());
        stage.wait_for("its end", || living(stage).is_empty());
        let holder = || descriptors(stage.only(Part::Holder)).expect("it runs");
        let before = (open_files(&pod), holder());
        for _ in 0..60 {
            Program::visits(stage, geteuid().as_raw());
        }
        let are_as_before = || open_files(&pod) <= before.0 + 2 && holder() <= before.1 + 2;
        stage.wait_for("as few open files as before", are_as_before);
        assert!(living(stage).is_empty());
    });
}

#[test]
fn questions_about_a_client_without_a_pid_are_answered_by_its_number() {
    where_possible(&[POD], |stage| {
        let Ok(one) = Container::make(&uid(0xbe), 0xbe) else {
            return Skipped("no right to make a cgroup".to_owned()).report();
        };
        let pod = pod_of(stage, "by = \"cgroup\"");
        let mut client = client_in(stage, &one);
        client.does("context", "context");
        let (number, machine) = (number_of(stage, &client), client.pid().to_string());
        let container = format!("{:064x}", 0xbe);
        for line in ["get_client_state", "client get"] {
            for output in ["", " -o wide", " -o json"] {
                let line = match line {
                    "client get" if output.is_empty() => format!("client get {number} cmd\n"),
                    "client get" => continue,
                    _ => format!("{line} {number}{output}\n"),
                };
                let answer = pod.ask(stage.lab(), &line);
                assert!(answer.contains(CLIENT), "{line}: {answer}");
            }
        }
        let state = pod.ask(stage.lab(), &format!("get_client_state {number} --json\n"));
        assert!(state.contains(&container) && state.contains(&format!("\"seen_as\":{machine}")), "{state}");
        for line in ["get_channel_list\n".to_owned(), format!("get_channel_list {number} --json\n")] {
            let answer = pod.ask(stage.lab(), &line);
            assert!(answer.contains(&number), "{line}: {answer}");
        }
        let own = std::fs::metadata("/proc/self/ns/pid").expect("it is ours").ino();
        assert_eq!(pod.ask(stage.lab(), &format!("client get {number} linux-ns\n")), format!("{own}\n"));
        // No process has such a pid, so nobody is hit by who takes it for one.
        let pid = nix::unistd::Pid::from_raw(number.parse().expect("a number"));
        assert_eq!(nix::sys::signal::kill(pid, None), Err(nix::errno::Errno::ESRCH));
        client.leave();
        pod.wait_for(stage.lab(), &number);
        let events = || pod.ask(stage.lab(), "events --json\n");
        let is_told = || events().lines().any(|line| line.contains("client-ended") && line.contains(&number));
        stage.wait_for("its end in the journal", is_told);
    });
}
