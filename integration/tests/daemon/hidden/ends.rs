//! Who ends a client without a pid, by which number, and that it is nobody else.

use super::{client_in, has_lost, living, number_of, pod_of, uid};
use integration::lab::LIMIT;
use integration::lab::place::{Container, PIDS, ask_within, where_possible, within};
use integration::lab::pod::POD;
use integration::lab::process::ended_within;
use integration::lab::program::Program;
use integration::lab::stage::{CLIENT, CONTROL};
use integration::under_test::Skipped;
use nix::unistd::geteuid;
use std::process::Command;

#[test]
fn a_client_without_a_pid_is_listed_and_ended_alone_and_never_for_another_one() {
    where_possible(&[POD], |stage| {
        let [Ok(one), Ok(two)] = [0x1a, 0x2b].map(|number| Container::make(&uid(number), number)) else {
            return Skipped("no right to make a cgroup".to_owned()).report();
        };
        let pod = pod_of(stage, "by = \"cgroup\"");
        let mut clients = [client_in(stage, &one), client_in(stage, &two)];
        clients.iter_mut().for_each(Program::ping);
        let [first, second] = clients.each_ref().map(|client| number_of(stage, client));
        let servers = stage.ask("get_server_list\n");
        let server_of = |number: &str| {
            let has = |server: &&str| stage.ask(&format!("get_client_list {server}\n")).lines().any(|it| it == number);
            servers.lines().find(has).unwrap_or_else(|| panic!("{number} in {servers}: {}", pod.output())).to_owned()
        };
        let [home, other] = [server_of(&first), server_of(&second)];
        assert_ne!(home, other);
        let table = stage.ask("ps\n");
        let row = |number: &str| {
            let row = table.lines().find(|line| line.split_whitespace().next() == Some(number));
            row.unwrap_or_else(|| panic!("{number}: {table}")).to_owned()
        };
        for (number, server) in [(&first, &home), (&second, &other)] {
            let words: Vec<String> = row(number).split_whitespace().map(str::to_owned).collect();
            assert_eq!(&words[2], server, "{table}");
            assert!(words[5].contains(CLIENT), "its program: {table}");
        }
        // Neither the number that servers have for all, nor a pid of the machine, nor one of another server.
        let pid = clients[0].pid();
        for (server, wrong) in [(&home, "0".to_owned()), (&home, pid.to_string()), (&home, second.clone())] {
            let answer = pod.ask(stage.lab(), &format!("terminate_client {server} {wrong}\n"));
            assert_eq!(answer, format!("Invalid process {wrong}!\n1\n"));
        }
        clients.iter_mut().for_each(Program::ping);
        assert_eq!(pod.ask(stage.lab(), &format!("terminate_client {home} {first}\n")), "0\n", "{}", pod.output());
        // These clients don't do what their server asks for, which is left without an answer: it is ended, as nobody else is there.
        pod.wait_for(stage.lab(), &format!("Client {first} is ended with its server"));
        let [ended, mut lives] = clients;
        has_lost(ended);
        lives.ping();
        // One more beside it on its server: which of the two is meant by pid 0 nobody can say.
        let mut beside = client_in(stage, &two);
        beside.ping();
        let answer = pod.ask(stage.lab(), &format!("terminate_client {other} {second}\n"));
        assert!(answer.starts_with(&format!("Client {second} has no pid here and can't be ended apart")), "{answer}");
        assert!(answer.ends_with("\n1\n"), "{answer}");
        [&mut lives, &mut beside].into_iter().for_each(Program::ping);
        beside.leave();
        // It is alone again.
        stage.wait_for("its end", || stage.ask(&format!("get_client_list {other}\n")) == format!("{second}\n"));
        assert_eq!(pod.ask(stage.lab(), &format!("client terminate {second}\n")), "0\n", "{}", pod.output());
        has_lost(lives);
    });
}

#[test]
fn root_of_a_container_ends_its_own_client_without_a_pid_and_nobody_elses() {
    where_possible(&[POD], |stage| {
        let [Ok(one), Ok(two)] = [0x9c, 0xad].map(|number| Container::make(&uid(number), number)) else {
            return Skipped("no right to make a cgroup".to_owned()).report();
        };
        let pod = pod_of(stage, "by = \"cgroup\"");
        let [mut first, mut second] = [client_in(stage, &one), client_in(stage, &two)];
        let numbers = [&first, &second].map(|client| number_of(stage, client));
        let servers = stage.ask("get_server_list\n");
        let within_one = |line: &str| {
            let entered = one.entered();
            let words: Vec<&str> = entered.iter().map(String::as_str).collect();
            ask_within(stage, &words, line)
        };
        let lines: Vec<String> = servers
            .lines()
            .zip(&numbers)
            .map(|(server, number)| format!("terminate_client {server} {number}\n"))
            .collect();
        let refused = within_one(&lines[1]);
        assert!(refused.contains("Insufficient privileges") && refused.ends_with("\n800\n"), "{refused}");
        let server = servers.lines().nth(1).expect("there are two");
        assert!(within_one(&format!("shutdown_server {server} -f\n")).contains("Insufficient privileges"));
        [&mut first, &mut second].into_iter().for_each(Program::ping);
        assert_eq!(within_one(&lines[0]), "0\n", "{}", pod.output());
        has_lost(first);
        second.ping();
        second.leave();
    });
}

#[test]
fn a_hook_in_a_container_ends_its_client_where_neither_is_seen_by_the_daemon() {
    where_possible(&[POD, PIDS], |stage| {
        let [Ok(one), Ok(two)] = [0xcf, 0xd0].map(|number| Container::make(&uid(number), number)) else {
            return Skipped("no right to make a cgroup".to_owned()).report();
        };
        let pod = pod_of(stage, "by = \"cgroup\"");
        // Its first process is the client, as in a container: it has pid 1 there, as has the other one's.
        let in_container = |container: &Container, place: &[&str], command: &Command| {
            let entered = container.entered();
            let words: Vec<&str> = entered.iter().map(String::as_str).chain(place.iter().copied()).collect();
            within(&words, command)
        };
        let client = stage.command_as(geteuid().as_raw(), CLIENT, &[]);
        let started = |container| {
            let program = Program::started_as(in_container(container, &[PIDS, &["--kill-child"]].concat(), &client));
            program.expect("attached");
            program
        };
        let mut first = started(&one);
        let [(number, machine)]: [_; 1] = living(stage).try_into().expect("there is one");
        let mut second = started(&two);
        let hook = stage.command_as(geteuid().as_raw(), CONTROL, &["stop-client", "--all-of", "self"]);
        let mut hook = in_container(&one, &["nsenter", "--target", &machine, "--pid"], &hook);
        let done = stage.lab().finish(&mut hook, b"");
        assert_eq!(done.code, Some(0), "{done:?} {}", pod.output());
        let told = done.stdout_text();
        assert!(told.contains(&number) && told.contains("terminated at server"), "{told}");
        assert_eq!(told.lines().count(), 1, "the other container's is another namespace's: {told}");
        first.begins("ping");
        assert!(ended_within(first.pid(), LIMIT), "{}", pod.output());
        second.ping();
        second.leave();
    });
}
