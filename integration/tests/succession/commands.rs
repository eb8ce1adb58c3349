//! `kill -9` of the daemon while a command, a drain or its own end is under way.
//!
//! Running clients notice nothing, what was saved is kept, what was begun goes on or is forgotten, and nothing that the
//! dead daemon had asked confuses the next one.

use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage};
use integration::lab::sudden_death::{died, launch_armed, never_killed, nothing_leaks, settled};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

const ROOT: u32 = 0;

/// Commands that ask a server something, with the server's and the client's pid in them, and what they answer.
fn requests(server: Pid, client: Pid) -> Vec<(String, String)> {
    [
        (format!("get_server_status {server}\n"), "ACTIVE".to_owned()),
        (format!("get_client_list {server}\n"), client.to_string()),
        (format!("get_device_client_list {server}\n"), client.to_string()),
        (format!("ps -p {server}\n"), client.to_string()),
        (format!("get_active_thread_percentage {server}\n"), "100.0".to_owned()),
        (
            format!("set_device_pinned_mem_limit {server} 0 2G\nget_device_pinned_mem_limit {server} 0\n"),
            "2G".to_owned(),
        ),
        (format!("device_query {server}\n"), "NVIDIA".to_owned()),
    ]
    .into()
}

#[test]
fn a_request_that_is_under_way_confuses_no_successor() {
    for index in 0..7 {
        for point in ["asked", "answer-read"] {
            Stage::run(|stage| {
                launch_armed(stage, point);
                let mut client = Program::attached(stage, ROOT);
                let server = stage.only(Part::Server);
                let commands = requests(server, client.pid());
                let (command, _) = &commands[index];
                // Its daemon dies, so its status is that of a lost one.
                let _ = stage.lab().run(&[], command.as_bytes());
                died(stage, point);
                stage.start(&[]);
                client.ping();
                for (again, expected) in &commands {
                    let answer = stage.ask(again);
                    assert!(answer.contains(expected), "{point} in {command:?}, then {again:?}: {answer:?}");
                }
                assert_eq!(stage.servers(), [server]);
                client.does("context", "context");
            });
        }
    }
}

#[test]
fn commands_are_done_whole_or_not_at_all() {
    for (point, kept) in [("command-read", "100.0\n"), ("saved", "42.0\n"), ("answered", "42.0\n")] {
        Stage::run(|stage| {
            launch_armed(stage, point);
            let _ = stage.lab().run(&[], b"set_default_active_thread_percentage 42\n");
            died(stage, point);
            stage.start(&[]);
            assert_eq!(stage.ask("get_default_active_thread_percentage\n"), kept, "{point}");
        });
    }
}

#[test]
fn where_no_server_lives_the_next_daemon_has_what_its_own_environment_says() {
    const THREADS: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
    Stage::run(|stage| {
        let start = |stage: &mut Stage, environment: &[(&str, &str)]| {
            stage.launch(&[], environment);
            stage.wait_up();
            stage.ask(
                "get_default_active_thread_percentage\nget_default_device_pinned_mem_limit 0\n\
                 get_default_client_priority\n",
            )
        };
        let all = [(THREADS, "40"), ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G"), ("CUDA_MPS_CLIENT_PRIORITY", "1")];
        assert_eq!(start(stage, &all), "40.0\n2G\n1\n");
        stage.kill_daemon();
        assert_eq!(start(stage, &[(THREADS, "70")]), "70.0\n0\n");
        // What commands have said is there again, but where the environment says something.
        let _ = stage.ask("set_default_active_thread_percentage 30\nset_default_client_priority 1\n");
        stage.kill_daemon();
        assert_eq!(start(stage, &[(THREADS, "70")]), "70.0\n1\n");
        let told = format!("Servers start with what {THREADS} says, and not with what an earlier daemon had");
        assert!(stage.daemon().output().contains(&told), "{}", stage.daemon().output());
        // With a server that lives on everything goes on as it was.
        let mut client = Program::attached(stage, ROOT);
        let _ = stage.ask("set_default_active_thread_percentage 30\n");
        stage.kill_daemon();
        assert_eq!(start(stage, &[(THREADS, "60")]), "30.0\n1\n");
        client.ping();
        client.leave();
    });
}

#[test]
fn a_server_that_is_shut_down_is_replaced_wherever_the_daemon_dies() {
    let baseline = never_killed(&[ROOT]);
    for point in ["asked", "answer-read", "saved:3", "server-exit-seen", "server-exit-known"] {
        Stage::run(|stage| {
            launch_armed(stage, point);
            Program::attached(stage, ROOT).leave();
            let server = stage.only(Part::Server);
            let _ = stage.lab().run(&[], format!("shutdown_server {server}\n").as_bytes());
            died(stage, point);
            stage.start(&[]);
            let mut client = Program::attached(stage, ROOT);
            client.ping();
            settled(stage, 1);
            client.leave();
            nothing_leaks(stage, baseline, point);
        });
    }
}

#[test]
fn a_server_that_is_forced_is_replaced_wherever_the_daemon_dies() {
    for point in ["server-signalled", "server-exit-seen", "server-exit-known"] {
        Stage::run(|stage| {
            launch_armed(stage, point);
            Program::attached(stage, ROOT).leave();
            let server = stage.only(Part::Server);
            let _ = stage.lab().run(&[], format!("shutdown_server {server} -f\n").as_bytes());
            died(stage, point);
            stage.start(&[]);
            Program::visits(stage, ROOT);
            settled(stage, 1);
            assert_ne!(stage.servers(), [server]);
        });
    }
}

#[test]
fn a_drain_goes_on_under_the_next_daemon() {
    for point in ["asked", "answer-read"] {
        Stage::run(|stage| {
            launch_armed(stage, point);
            let mut old = Program::attached(stage, ROOT);
            let server = stage.only(Part::Server);
            let _ = stage.lab().run(&[], format!("shutdown_server {server}\n").as_bytes());
            died(stage, point);
            stage.start(&[]);
            // A newcomer gets a server of its own, and the old client stays where it is.
            let mut new = Program::attached(stage, ROOT);
            old.ping();
            old.does("context", "context");
            new.ping();
            assert_eq!(stage.servers().len(), 2, "{point}");
            old.leave();
            stage.lab().wait_gone(server);
            new.ping();
            settled(stage, 1);
        });
    }
}

#[test]
fn a_quit_that_is_under_way_dies_with_its_daemon() {
    for (point, signal) in
        [("quit-known", true), ("sessions-closed", true), ("sessions-closed", false), ("asked", false)]
    {
        Stage::run(|stage| {
            launch_armed(stage, point);
            let mut old = Program::attached(stage, ROOT);
            let server = stage.only(Part::Server);
            if signal {
                stage.daemon().signal(Signal::SIGTERM);
            } else {
                let _ = stage.lab().run(&[], b"quit\n");
            }
            died(stage, point);
            stage.start(&[]);
            let mut new = Program::attached(stage, ROOT);
            old.ping();
            new.ping();
            assert_eq!(stage.servers(), [server], "{point}");
        });
    }
}

#[test]
fn a_daemon_that_dies_at_its_very_end_leaves_nothing_in_the_way() {
    for point in ["server-exit-known", "files-removed", "holder-left"] {
        Stage::run(|stage| {
            launch_armed(stage, point);
            Program::attached(stage, ROOT).leave();
            stage.daemon().signal(Signal::SIGTERM);
            died(stage, point);
            stage.start(&[]);
            Program::visits(stage, ROOT);
            settled(stage, 1);
            assert_eq!(stage.pids(Part::Holder).len(), 1, "{point}");
            let _ = stage.ask("quit\n");
            stage.wait_for("everything gone", || stage.processes().is_empty());
        });
    }
}
