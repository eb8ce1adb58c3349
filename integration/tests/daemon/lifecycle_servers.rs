//! Servers that fail, die, drain and are replaced, while clients arrive: nobody is refused.

use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage};
use nix::sys::signal::{Signal, kill};

const ROOT: u32 = 0;

#[test]
fn ct_20_a_server_that_fails_to_start_is_tried_again_while_its_client_waits() {
    Stage::run(|stage| {
        let starts = stage.lab().dir().join("starts");
        stage.script(&format!(
            "MPS_SIM_STARTS={}\nMPS_SIM_EXIT_STATUS=3\nMPS_SIM_EXIT_FIRST=3\nMPS_SIM_STDERR=no GPU here\n",
            starts.display()
        ));
        stage.start(&[]);
        let mut client = Program::start(stage, ROOT);
        client.expect("attached");
        client.ping();
        assert_eq!(std::fs::read_to_string(&starts).expect("counted").lines().count(), 4);
        let log = stage.daemon().output();
        let tries: Vec<&str> = log.lines().filter(|line| line.contains("failed to start")).collect();
        assert_eq!(tries.len(), 3, "one clear message a try: {tries:?}");
        for (line, pause) in tries.iter().zip(["in 100 ms", "in 200 ms", "in 400 ms"]) {
            assert!(line.contains("it exited with status 3") && line.contains(pause), "{line}");
        }
        assert!(log.contains("no GPU here"), "what the server wrote to standard error");
    });
}

#[test]
fn ct_20_who_waits_for_a_server_that_cannot_be_started_is_shown() {
    Stage::run(|stage| {
        let server = stage.lab().dir().join("bin").join("nvidia-cuda-mps-server");
        let hidden = stage.lab().dir().join("hidden");
        std::fs::rename(&server, &hidden).expect("our folder");
        stage.start(&[]);
        assert_eq!(stage.ask("start_server -uid 0\n"), "");
        let client = Program::start(stage, ROOT);
        let waits = client.pid().to_string();
        stage.wait_for("who waits in ps", || stage.ask("ps\n").contains(&waits));
        assert_eq!(stage.ask("get_server_list\n"), "");
        assert!(stage.daemon().output().contains("no nvidia-cuda-mps-server in"));
        std::fs::rename(&hidden, &server).expect("our folder");
        client.expect("attached");
    });
}

#[test]
fn a_client_is_served_at_once_after_a_server_was_killed() {
    Stage::run(|stage| {
        stage.start(&[]);
        let mut other = Program::attached(stage, 1000);
        let others = stage.only(Part::Server);
        let lost = Program::attached(stage, ROOT);
        let server = *stage.servers().last().expect("two");
        for _ in 0..3 {
            let server = *stage.servers().last().expect("two");
            kill(server, Signal::SIGKILL).expect("it is ours");
            Program::visits(stage, ROOT);
        }
        assert!(!stage.servers().contains(&server));
        assert!(stage.servers().contains(&others));
        other.ping();
        drop(lost);
    });
}

#[test]
fn clients_that_arrive_while_the_server_starts_drains_or_is_replaced_are_all_served() {
    Stage::run(|stage| {
        stage.script("MPS_SIM_INIT_MS=300\n");
        stage.config("kill_timeout = 1\n");
        stage.start(&[]);
        // It starts.
        let starting: Vec<Program> = (0..4).map(|_| Program::start(stage, ROOT)).collect();
        starting.iter().for_each(|client| client.expect("attached"));
        // It drains.
        let server = stage.only(Part::Server);
        assert_eq!(stage.ask(&format!("shutdown_server {server}\n")), "");
        let draining: Vec<Program> = (0..4).map(|_| Program::start(stage, ROOT)).collect();
        draining.iter().for_each(|client| client.expect("attached"));
        starting.into_iter().for_each(Program::leave);
        stage.lab().wait_gone(server);
        // It is forced.
        let server = stage.only(Part::Server);
        assert_eq!(stage.ask(&format!("shutdown_server {server} -f\n")), "");
        let replaced: Vec<Program> = (0..4).map(|_| Program::start(stage, ROOT)).collect();
        replaced.iter().for_each(|client| client.expect("attached"));
        stage.lab().wait_gone(server);
        drop(draining);
        // It dies.
        let server = stage.only(Part::Server);
        kill(server, Signal::SIGKILL).expect("it is ours");
        let after: Vec<Program> = (0..4).map(|_| Program::start(stage, ROOT)).collect();
        after.into_iter().for_each(|mut client| {
            client.expect("attached");
            client.ping();
            client.leave();
        });
        drop(replaced);
    });
}
