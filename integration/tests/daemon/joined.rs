//! Thin daemons (`--join`): the calls of a claim's daemon, answered by the one of the node. Who may join is in
//! `admission`.

mod admission;

use integration::lab::claim::Claim;
use integration::lab::client::Connection;
use integration::lab::commands;
use integration::lab::process::Process;
use integration::lab::program::Program;
use integration::lab::stage::Stage;
use integration::lab::{LIMIT, lock_holder};
use nix::sys::signal::Signal::{SIGKILL, SIGTERM, SIGUSR1};
use nix::sys::signal::kill;
use nix::unistd::geteuid;
use remps_proto::mps::handshake::Role;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

fn log_of_node(stage: &Stage) -> String {
    stage.daemon().output()
}

#[test]
fn a_claims_daemon_has_the_files_the_log_and_the_commands_of_one_of_its_own() {
    Stage::run(|stage| {
        stage.start(&[]);
        let claim = Claim::new(stage, "claim");
        claim.join(stage);
        let socket = |name: &str| fs::metadata(claim.pipe.join(name)).expect("it is there");
        assert!(socket("control").file_type().is_socket() && socket("control_privileged").file_type().is_socket());
        assert_eq!(socket("control").mode() & 0o777, 0o666, "every user's clients come there");
        assert_eq!(socket("control_privileged").mode() & 0o777, 0o700);
        let pid = fs::read_to_string(claim.pipe.join("nvidia-cuda-mps-control.pid")).expect("it is there");
        assert_eq!(pid, claim.pid().to_string());
        let started = format!("Starting control daemon using socket {}/control", claim.pipe.display());
        assert!(claim.log().contains(&started), "what waits for the log finds what it knows: {}", claim.log());
        // The device plugin's calls, without a line end.
        assert_eq!(claim.ask(stage, "set_default_device_pinned_mem_limit 0 8192M"), "");
        assert_eq!(claim.ask(stage, "set_default_active_thread_percentage 10"), "10.0\n");
        assert_eq!(claim.ask(stage, "get_default_device_pinned_mem_limit 0"), "8G\n");
        assert_eq!(claim.ask(stage, "get_default_active_thread_percentage"), "10.0\n");
        // Nothing of that is said of the node, nor of anybody else.
        assert_eq!(stage.ask("get_default_active_thread_percentage\n"), "100.0\n");
        assert_eq!(stage.ask("get_default_device_pinned_mem_limit 0\n"), "");
        // A second daemon in the same folder is told as ever.
        let second = claim.try_to_join(stage, &[]);
        let text = "An instance of this daemon is already running\n";
        assert_eq!((second.code, second.stdout_text().as_str()), (Some(1), text));
        // `quit` ends it, and the node's daemon lives on.
        assert_eq!(claim.ask(stage, "quit"), "");
        assert_eq!(lock_holder(&claim.pipe), None, "whoever is answered finds it gone");
        assert_ne!(claim.run(stage, &[], "get_default_active_thread_percentage").code, Some(0));
        claim.waits(stage, "the socket's end", || !claim.pipe.join("control").exists());
        assert!(!claim.pipe.join("control_privileged").exists());
        assert_eq!(stage.ask("get_default_active_thread_percentage\n"), "100.0\n");
        // Another one in the same folder has forgotten the limits, as after every `quit`.
        claim.join(stage);
        assert_eq!(claim.ask(stage, "get_default_active_thread_percentage"), "100.0\n");
    });
}

#[test]
fn two_claims_and_the_node_have_servers_clients_and_limits_of_their_own() {
    Stage::run(|stage| {
        stage.start(&[]);
        let claims = [Claim::new(stage, "one"), Claim::new(stage, "two")];
        claims.iter().for_each(|claim| claim.join(stage));
        let [one, two] = &claims;
        one.ask(stage, "set_default_active_thread_percentage 40");
        let clients = [one.client(stage), two.client(stage)];
        let of_node = Program::attached(stage, geteuid().as_raw());
        let servers: Vec<String> = claims.iter().flat_map(|claim| claim.servers(stage)).collect();
        assert!(servers.len() == 2 && servers[0] != servers[1], "{servers:?}");
        assert_eq!(stage.ask("get_server_list\n").lines().count(), 3, "the node sees all");
        for (at, claim) in claims.iter().enumerate() {
            let (own, others) = (&servers[at], &servers[1 - at]);
            assert_eq!(claim.ask(stage, &format!("get_client_list {own}")), format!("{}\n", clients[at].pid()));
            // The neighbour's server is one that there is not, whatever is asked of it.
            let missing = claim.ask(stage, "get_client_list 1");
            let missing = missing.replace('1', others);
            assert_eq!(claim.ask(stage, &format!("get_client_list {others}")), missing);
            assert_eq!(claim.ask(stage, &format!("set_active_thread_percentage {others} 5")), missing);
            claim.ask(stage, &format!("shutdown_server {others} -f"));
            let other = clients[1 - at].pid();
            claim.ask(stage, &format!("terminate_client {others} {other}"));
            claim.ask(stage, &format!("terminate_client {own} {other}"));
            let shown = claim.ask(stage, "ps");
            assert!(shown.contains(&clients[at].pid().to_string()), "{shown}");
            for stranger in [other, of_node.pid()] {
                assert!(!shown.contains(&stranger.to_string()), "{shown}");
            }
        }
        let percentage =
            |claim: &Claim, server: &str| claim.ask(stage, &format!("get_active_thread_percentage {server}"));
        assert_eq!((percentage(one, &servers[0]), percentage(two, &servers[1])), ("40.0\n".into(), "100.0\n".into()));
        // What the node's operator alone is told and does.
        for line in ["server list", "server delete one", "events", "vault list", "metrics"] {
            assert_eq!(
                one.fails(stage, line),
                "This daemon has joined another one, which alone answers that\n",
                "{line}"
            );
        }
        // A quit takes one claim down when its client has left, and nothing else.
        let [mut first, mut second] = clients;
        first.ping();
        first.leave();
        assert_eq!(one.ask(stage, "quit -t 5"), "");
        claims[0].wait_gone(stage);
        second.ping();
        assert_eq!(two.servers(stage), [servers[1].clone()]);
        stage.wait_for("one claim's server less", || stage.servers().len() == 2);
        second.leave();
        of_node.leave();
    });
}

#[test]
fn a_thin_daemon_that_is_killed_harms_nobody_and_the_next_one_takes_its_server_up() {
    Stage::run(|stage| {
        stage.start(&[]);
        let claim = Claim::new(stage, "claim");
        claim.join(stage);
        claim.ask(stage, "set_default_active_thread_percentage 30");
        let mut client = claim.client(stage);
        let server = claim.servers(stage);
        let control = fs::metadata(claim.pipe.join("control")).expect("it is there").ino();
        kill(claim.pid(), SIGKILL).expect("it lives");
        claim.wait_gone(stage);
        assert_ne!(claim.run(stage, &[], "get_server_list").code, Some(0), "whoever probes it finds it gone");
        client.ping();
        // Newcomers are served on, by the same server.
        let mut newcomer = claim.client(stage);
        newcomer.ping();
        claim.join(stage);
        assert_eq!(claim.servers(stage), server);
        assert_eq!(claim.ask(stage, "get_default_active_thread_percentage"), "30.0\n");
        assert_eq!(
            fs::metadata(claim.pipe.join("control")).expect("it is there").ino(),
            control,
            "nobody was in between"
        );
        client.ping();
        client.leave();
        newcomer.leave();
    });
}

#[test]
fn a_daemon_of_the_node_that_is_killed_or_upgraded_is_joined_again() {
    Stage::run(|stage| {
        stage.start(&[]);
        let claim = Claim::new(stage, "claim");
        claim.join(stage);
        claim.ask(stage, "set_default_active_thread_percentage 30");
        let mut client = claim.client(stage);
        let server = claim.servers(stage);
        for (times, signal) in [(1, SIGKILL), (2, SIGUSR1)] {
            stage.daemon().signal(signal);
            assert!(stage.daemon().ended_within(LIMIT));
            claim.waits(stage, "the loss", || claim.log().matches("trying to join it again").count() == times);
            stage.start(&[]);
            claim.waits(stage, "another joining", || claim.log().matches(" again as joined_").count() == times);
            client.ping();
            assert_eq!(claim.servers(stage), server, "{signal}");
            assert_eq!(claim.ask(stage, "get_default_active_thread_percentage"), "30.0\n", "{signal}");
            let mut newcomer = claim.client(stage);
            newcomer.ping();
            newcomer.leave();
        }
        client.leave();
        // A signal to the thin daemon ends it, and its server goes with its last client.
        let mut last = claim.client(stage);
        kill(claim.pid(), SIGTERM).expect("it lives");
        claim.wait_gone(stage);
        claim.waits(stage, "the socket's end", || !claim.pipe.join("control").exists());
        last.ping();
        last.leave();
        stage.wait_for("the server's end", || stage.servers().is_empty());
    });
}

#[test]
fn a_claims_limits_are_there_again_after_an_orderly_end_of_the_nodes_daemon() {
    Stage::run(|stage| {
        stage.start(&[]);
        let claim = Claim::new(stage, "claim");
        claim.join(stage);
        claim.ask(stage, "set_default_active_thread_percentage 30");
        claim.ask(stage, "set_default_device_pinned_mem_limit 0 8192M");
        for times in 1..=2 {
            // As when a daemon set is rolled out.
            stage.daemon().signal(SIGTERM);
            assert!(stage.daemon().ended_within(LIMIT));
            claim.waits(stage, "the loss", || claim.log().matches("trying to join it again").count() == times);
            stage.start(&[]);
            claim.waits(stage, "another joining", || claim.log().matches(" again as joined_").count() == times);
            assert_eq!(claim.ask(stage, "get_default_active_thread_percentage"), "30.0\n");
            assert_eq!(claim.ask(stage, "get_default_device_pinned_mem_limit 0"), "8G\n");
            assert_eq!(stage.ask("get_default_active_thread_percentage\n"), "100.0\n", "the node's are its own");
            let client = claim.client(stage);
            let [server] = &claim.servers(stage)[..] else { panic!("{:?}", claim.servers(stage)) };
            let told = format!("get_active_thread_percentage {server}\nget_device_pinned_mem_limit {server} 0\n");
            assert_eq!(stage.ask(&told), "30.0\n8G\n", "a server that is started now has them");
            client.leave();
        }
        // Its own end is that of its limits.
        claim.ask(stage, "quit");
        claim.join(stage);
        assert_eq!(claim.ask(stage, "get_default_active_thread_percentage"), "100.0\n");
    });
}

#[test]
fn command_lines_that_never_leave_a_claim_keep_nobody_out_elsewhere() {
    const MOST: usize = 64;
    Stage::run(|stage| {
        stage.start(&[]);
        let claims = [Claim::new(stage, "one"), Claim::new(stage, "two")];
        claims.iter().for_each(|claim| claim.join(stage));
        let open = || Connection::greeted(&claims[0].pipe.join("control_privileged"), Role::UI).expect("it greets");
        let idle: Vec<Connection> = (0..MOST).map(|_| open()).collect();
        let is_answered = |session: &Connection| {
            commands::ask(session, "get_default_client_priority").is_ok_and(|answer| answer.ends_with(b"0"))
        };
        assert!(idle.iter().all(is_answered));
        assert!(!is_answered(&open()), "one too many");
        assert_eq!(claims[1].ask(stage, "get_default_client_priority"), "0\n");
        assert_eq!(stage.ask("get_default_client_priority\n"), "0\n");
        drop(idle);
        stage.wait_for("room again", || claims[0].run(stage, &[], "get_default_client_priority").code == Some(0));
    });
}

#[test]
fn a_thin_daemon_in_the_foreground_ends_with_the_nodes_word() {
    Stage::run(|stage| {
        stage.start(&[]);
        let claim = Claim::new(stage, "claim");
        let node = stage.pipe_dir().join("control");
        let node = node.to_str().expect("a path of ours");
        let mut command = claim.placed(stage.lab().command(&["-f", "--join", node, "--join-name=jobs"]));
        let thin = Process::start(&mut command);
        claim.waits(stage, "the joining", || thin.output().contains(" as jobs"));
        assert_eq!(claim.ask(stage, "get_default_client_priority").lines().count(), 1);
        let listed = stage.ask("server list --format=csv,noheader\n");
        assert!(listed.starts_with("jobs,"), "{listed}");
        assert_eq!(stage.ask("server delete jobs\n"), "");
        let ended = thin.finish(LIMIT).expect("it ends");
        assert_eq!(ended.code, Some(0), "{}", ended.stdout_text());
    });
}
