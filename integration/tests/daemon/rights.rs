//! The owner's rights: not everybody who has root's number has them.

use integration::lab::client::Connection;
use integration::lab::commands;
use integration::lab::place::{Container, PIDS, USERS, ask_beside, ask_within, where_possible, within};
use integration::lab::program::Program;
use integration::lab::stage::{CLIENT, CONTROL, Part, Stage};
use integration::lab::sudden_death::{died, launch_armed};
use integration::under_test::Skipped;
use remps_proto::mps::handshake::Role;
use serde_json::Value;

const ROOT: u32 = 0;
const SET_DEFAULT: &str = "set_default_active_thread_percentage 42";

fn is_refused(answer: &str) -> bool {
    answer.to_lowercase().contains("privilege")
}

/// Whether an answer has this pid: as a word, or in JSON as a number that is called so. A small one stands in many other numbers.
fn names(answer: &str, pid: &str) -> bool {
    fn has(value: &Value, key: &str, pid: &str) -> bool {
        match value {
            Value::Number(number) => key.contains("pid") && number.to_string() == pid,
            Value::String(text) => text.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == pid),
            Value::Array(values) => values.iter().any(|value| has(value, key, pid)),
            Value::Object(members) => members.iter().any(|(key, value)| has(value, key, pid)),
            Value::Null | Value::Bool(_) => false,
        }
    }
    let of_lines = || answer.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<Value>, _>>();
    match serde_json::from_str::<Value>(answer).map(|value| vec![value]).or_else(|_| of_lines()) {
        Ok(values) => values.iter().any(|value| has(value, "", pid)),
        Err(_) => answer.split_whitespace().any(|word| word == pid),
    }
}

/// What a session on one of the sockets is answered.
fn asked_by(session: &Connection, line: &str) -> String {
    String::from_utf8_lossy(&commands::ask(session, line).expect("an answer")).trim_start_matches('\0').to_owned()
}

fn session(stage: &Stage, socket: &str) -> Connection {
    Connection::greeted(&stage.pipe_dir().join(socket), Role::UI).expect("greeted")
}

fn may_ask_and_nothing_else(place: &[&str]) {
    where_possible(&[place], |stage| {
        stage.start(&[]);
        let mut client = Program::attached(stage, ROOT);
        let server = stage.only(Part::Server);
        for change in [
            "quit".to_owned(),
            "quit -t 1".to_owned(),
            SET_DEFAULT.to_owned(),
            "set_default_device_pinned_mem_limit 0 1G".to_owned(),
            "set_default_client_priority 1".to_owned(),
            "start_server -uid 1000".to_owned(),
            format!("set_active_thread_percentage {server} 50"),
            format!("set_device_pinned_mem_limit {server} 0 1G"),
            format!("terminate_client {server} {}", client.pid()),
            format!("shutdown_server {server}"),
            format!("shutdown_server {server} -f"),
        ] {
            let answer = ask_within(stage, place, &format!("{change}\n"));
            assert!(is_refused(&answer), "{change}: {answer:?}");
        }
        // What everybody may ask.
        assert_eq!(ask_within(stage, place, "get_default_active_thread_percentage\n"), "100.0\n");
        assert_eq!(ask_within(stage, place, "get_server_list\n"), format!("{server}\n"));
        assert!(ask_within(stage, place, "ps\n").contains(&client.pid().to_string()));
        client.ping();
        assert_eq!(stage.servers(), [server]);
        let said = "is not the owner here: it is in a";
        stage.wait_for("the reason in the log", || stage.daemon().output().contains(said));
        // The machine's root has them.
        assert_eq!(stage.ask(&format!("{SET_DEFAULT}\n")), "42.0\n");
        client.leave();
        assert_eq!(stage.ask("quit\n"), "");
        assert!(stage.take_daemon().ended_within(integration::lab::LIMIT));
    });
}

#[test]
fn root_of_another_user_namespace_may_ask_and_nothing_else() {
    may_ask_and_nothing_else(USERS);
}

#[test]
fn root_of_a_container_without_a_user_namespace_may_ask_and_nothing_else() {
    may_ask_and_nothing_else(PIDS);
}

#[test]
fn root_of_a_container_that_shares_the_daemons_processes_may_ask_and_nothing_else() {
    match Container::make("2fc932ce-fdcc-454b-97bd-aadfdeb4c340", 1) {
        Ok(container) => may_ask_and_nothing_else(&container.entered().each_ref().map(String::as_str)),
        Err(skipped) => skipped.report(),
    }
}

#[test]
fn a_container_sees_no_others_faults_or_clients_of_other_users() {
    where_possible(&[PIDS], |stage| {
        stage.start(&[]);
        let client = Program::attached(stage, 1000);
        let shown = |text: String| names(&text, &client.pid().to_string());
        stage.wait_for("the owner's picture", || shown(stage.ask("status --json\n")));
        assert!(!shown(ask_within(stage, PIDS, "status --json\n")), "root's number in a container");
    });
}

#[test]
fn everybody_is_told_the_pids_of_all_clients_and_nothing_else_of_them() {
    const STRANGER: u32 = 65_534;
    Stage::run(|stage| {
        if !nix::unistd::geteuid().is_root() {
            return Skipped("only root can become another user".to_owned()).report();
        }
        stage.start(&[]);
        let client = Program::attached(stage, ROOT);
        let (server, pid) = (stage.only(Part::Server), client.pid().to_string());
        let asked = |line: &str| stage.ask_as(STRANGER, &format!("{line}\n"));
        assert_eq!(asked("get_server_list"), format!("{server}\n"));
        assert_eq!(asked(&format!("get_client_list {server}")), format!("{pid}\n"));
        assert!(asked("get_device_client_list").contains(&pid));
        for line in ["ps", "status", "status --json", "events", "get_fault_list --json"] {
            let said = asked(line);
            assert!(!names(&said, &pid), "{line}: {pid}: {said}");
        }
        stage.wait_for("its own user's picture", || names(&stage.ask("status --json\n"), &pid));
        assert!(stage.ask("ps\n").contains(&pid), "its own user's");
        client.leave();
    });
}

#[test]
fn a_container_ends_its_own_client_and_no_neighbour() {
    where_possible(&[PIDS], |stage| {
        stage.start(&[]);
        let mut neighbour = Program::attached(stage, ROOT);
        let own = Program::started_as(within(PIDS, &stage.command_as(ROOT, CLIENT, &[])));
        own.expect("attached");
        let server = stage.only(Part::Server);
        let clients = stage.ask(&format!("get_client_list {server}\n"));
        let own_pid = clients.lines().find(|pid| **pid != neighbour.pid().to_string()).expect("the container's client");
        let own_pid = nix::unistd::Pid::from_raw(own_pid.parse().expect("a pid"));
        let terminate = |pid| ask_beside(stage, own_pid, &format!("terminate_client {server} {pid}\n"));
        assert!(is_refused(&terminate(neighbour.pid())));
        assert!(is_refused(&ask_beside(stage, own_pid, &format!("shutdown_server {server}\n"))), "it serves both");
        assert!(is_refused(&ask_within(stage, PIDS, &format!("terminate_client {server} {own_pid}\n"))), "a third one");
        // Where a client is becomes known beside its first context.
        stage.wait_for("its own client's end", || !is_refused(&terminate(own_pid)));
        neighbour.ping();
        assert_eq!(stage.servers(), [server]);
    });
}

#[test]
fn the_owners_rights_go_with_the_privileged_socket() {
    Stage::run(|stage| {
        if !nix::unistd::geteuid().is_root() {
            return Skipped("the daemon is root's".to_owned()).report();
        }
        stage.start(&[]);
        let (open, privileged) = (session(stage, "control"), session(stage, "control_privileged"));
        assert!(is_refused(&asked_by(&open, SET_DEFAULT)));
        assert!(is_refused(&asked_by(&open, "quit")));
        assert_eq!(asked_by(&open, "get_default_active_thread_percentage"), "100.0");
        assert_eq!(asked_by(&privileged, SET_DEFAULT), "42.0");
    });
}

#[test]
fn a_connection_keeps_the_socket_that_it_came_by_under_the_next_daemon() {
    for (socket, is_owner) in [("control_privileged", true), ("control", false)] {
        Stage::run(|stage| {
            launch_armed(stage, "role-seen");
            let waiting = session(stage, socket);
            died(stage, "role-seen");
            stage.start(&[]);
            let answer = asked_by(&waiting, SET_DEFAULT);
            assert_eq!((answer == "42.0", is_refused(&answer)), (is_owner, !is_owner), "{socket}: {answer:?}");
        });
    }
}

#[test]
fn a_connection_of_somebody_who_has_ended_owns_nothing() {
    Stage::run(|stage| {
        stage.start(&[]);
        let path = stage.pipe_dir().join("control_privileged");
        let left = Connection::of_one_that_has_ended(&path).expect("connected");
        let left = left.greets(Role::UI).expect("greeted");
        assert!(is_refused(&asked_by(&left, SET_DEFAULT)));
        assert_eq!(stage.ask("get_default_active_thread_percentage\n"), "100.0\n");
    });
}

#[test]
fn an_ordinary_users_daemon_obeys_him_and_root_and_nobody_in_a_container() {
    const USER: u32 = 1000;
    where_possible(&[USERS, PIDS], |stage| {
        for folder in [stage.lab().dir().to_owned(), stage.pipe_dir().to_owned(), stage.lab().log_dir().to_owned()] {
            let _ = std::fs::create_dir(&folder);
            std::os::unix::fs::chown(&folder, Some(USER), Some(USER)).expect("root may");
        }
        stage.launch_as(USER, &["-f"]);
        stage.wait_for("the socket", || stage.pipe_dir().join("control_privileged").exists());
        for place in [USERS, PIDS] {
            assert!(is_refused(&ask_within(stage, place, "quit\n")), "{place:?}");
        }
        assert_eq!(stage.ask_as(USER, &format!("{SET_DEFAULT}\n")), "42.0\n", "its own user");
        assert!(is_refused(&stage.ask_as(USER + 1, "quit\n")));
        assert_eq!(stage.ask("quit\n"), "", "root");
        assert!(stage.take_daemon().ended_within(integration::lab::LIMIT));
    });
}

#[test]
fn status_says_what_right_the_daemon_lacks_and_what_that_costs() {
    const WITHOUT: &[&str] = &["setpriv", "--bounding-set", "-sys_ptrace"];
    const TOLD: &str = "The daemon has no CAP_SYS_PTRACE: clients of other users are not looked at: ";
    where_possible(&[WITHOUT], |stage| {
        let started = stage.lab().finish(&mut within(WITHOUT, &stage.command_as(0, CONTROL, &["-d"])), b"");
        assert_eq!(started.code, Some(0), "{started:?}");
        let status = stage.ask_as(1000, "status --wide\n");
        assert!(status.lines().any(|line| line.starts_with(TOLD)), "whoever asks is told: {status}");
        let status: Value = serde_json::from_str(&stage.ask("status --json\n")).expect("one object");
        let rights = &status["daemon"]["rights"];
        assert_eq!(rights["root"], true, "{rights}");
        let lacks = rights["lacks"].as_array().expect("a list");
        assert_eq!(lacks[0]["right"], "CAP_SYS_PTRACE", "{rights}");
        assert!(TOLD.contains(&lacks[0]["costs"].as_str().expect("text")[..40]), "{rights}");
        assert!(rights["has"].as_array().expect("a list").contains(&"CAP_KILL".into()), "{rights}");
        assert_eq!(stage.ask("quit\n"), "");
    });
}
