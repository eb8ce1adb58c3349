//! What the next daemon knows of clients without a pid.

use super::{client_in, configured, has_lost, living, number_of, uid};
use integration::lab::place::{Container, where_possible};
use integration::lab::pod::{POD, Pod, machines_proc};
use integration::lab::process::Process;
use integration::lab::program::Program;
use integration::lab::stage::{CONTROL, Part, Stage};
use integration::under_test::Skipped;
use nix::sys::signal::{Signal, kill};

/// Kills the daemon of this pod, does something while there is none, and starts the next one in the same place.
fn replaced(stage: &Stage, pod: &Pod, meanwhile: impl FnOnce()) -> Process {
    kill(stage.only(Part::Daemon), Signal::SIGKILL).expect("it runs");
    stage.wait_for("its end", || stage.pids(Part::Daemon).is_empty());
    meanwhile();
    let next = Process::start(&mut pod.inside(&stage.command_as(0, CONTROL, &["-f"])));
    stage.wait_for("the next daemon", || !pod.ask(stage.lab(), "get_server_list\n").is_empty());
    next
}

/// What each server lists.
fn lists(stage: &Stage) -> Vec<String> {
    let servers = stage.ask("get_server_list\n");
    servers.lines().map(|server| stage.ask(&format!("get_client_list {server}\n"))).collect()
}

#[test]
fn clients_without_a_pid_are_known_to_the_next_daemon_by_the_same_numbers() {
    where_possible(&[POD], |stage| {
        let [Ok(one), Ok(two)] = [0x3c, 0x4d].map(|number| Container::make(&uid(number), number)) else {
            return Skipped("no right to make a cgroup".to_owned()).report();
        };
        let domains = "by = \"cgroup\"\nmax_clients = 2";
        let pod = Pod::under_init(stage.lab(), &configured(stage, domains, &machines_proc(stage.lab())));
        let [mut first, mut second, mut third] =
            [client_in(stage, &one), client_in(stage, &one), client_in(stage, &two)];
        [&mut first, &mut second, &mut third].into_iter().for_each(Program::ping);
        let [of_first, of_third] = [&first, &third].map(|client| number_of(stage, client));
        assert_eq!(lists(stage).len(), 2, "{}", pod.output());
        // One that ends while nobody looks is gone, and makes room.
        let next = replaced(stage, &pod, || second.leave());
        let of_those = |stage: &Stage| [&first, &third].map(|client| number_of(stage, client));
        stage.wait_for("those that live", || living(stage).len() == 2);
        assert_eq!(of_those(stage), [of_first.clone(), of_third.clone()], "{}", next.output());
        // Each is where it was, also with its next context.
        for client in [&mut first, &mut third] {
            client.does("context", "context");
            client.ping();
        }
        assert_eq!(lists(stage), [format!("{of_first}\n"), format!("{of_third}\n")], "{}", next.output());
        // It is counted: one more has room beside it, and the next one has not.
        let mut newcomers = [client_in(stage, &one), client_in(stage, &one)];
        newcomers.iter_mut().for_each(Program::ping);
        assert_eq!(lists(stage).iter().map(|list| list.lines().count()).collect::<Vec<_>>(), [2, 1, 1]);
        newcomers.into_iter().for_each(Program::leave);
        stage.wait_for("their ends", || living(stage).len() == 2);
        // And is ended by its number, also after another daemon's end.
        let last = replaced(stage, &pod, || ());
        stage.wait_for("those that live", || living(stage).len() == 2);
        let servers = stage.ask("get_server_list\n");
        let server = servers.lines().nth(1).expect("both have one");
        let answer = pod.ask(stage.lab(), &format!("terminate_client {server} {of_third}\n"));
        assert_eq!(answer, "0\n", "{}", last.output());
        has_lost(third);
        first.ping();
        first.leave();
    });
}
