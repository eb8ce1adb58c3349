//! Thin daemons (`--join`): the calls of a claim's daemon, answered by the one of the node.

use integration::lab::claim::Claim;
use integration::lab::client::Connection;
use integration::lab::commands;
use integration::lab::place::{where_possible, within};
use integration::lab::process::Process;
use integration::lab::program::Program;
use integration::lab::stage::{CLIENT, CONTROL, Stage};
use integration::lab::{LIMIT, lock_holder};
use nix::sys::signal::Signal::{SIGKILL, SIGTERM, SIGUSR1};
use nix::sys::signal::kill;
use nix::unistd::geteuid;
use remps_proto::join::{SOCKET_NAME, ToNode, ToThin, VERSION};
use remps_proto::mps::handshake::Role;
use std::fs::{self, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

/// PID and mount namespaces with a `/proc` of their own, as a container has them.
const CONTAINER: &[&str] = &["unshare", "--pid", "--fork", "--mount-proc"];

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
fn who_may_not_join_is_told_why() {
    Stage::run(|stage| {
        let claim = Claim::new(stage, "claim");
        // Nobody is there.
        let alone = claim.try_to_join(stage, &[]);
        assert_eq!((alone.code, alone.stdout_text().as_str()), (Some(1), ""));
        let expected = format!("no daemon can be joined at {}: ", stage.pipe_dir().display());
        assert!(alone.stderr_text().starts_with(&expected), "{}", alone.stderr_text());
        assert!(!claim.pipe.join("control_lock").exists(), "nothing stays behind");
        stage.start(&[]);
        let fails = |claim: &Claim, more: &[&str], why: &str| {
            let refused = claim.try_to_join(stage, more);
            assert_eq!((refused.code, refused.stdout_text().as_str()), (Some(1), ""), "{why}");
            assert!(refused.stderr_text().contains(why), "{}", refused.stderr_text());
        };
        fails(&claim, &["--join-name", "No-Name"], "1 to 64 lower-case letters");
        assert_eq!(stage.ask("server create mine\n"), "");
        fails(&claim, &["--join-name", "mine"], "nobody has joined as it");
        fails(&claim, &["--join-name", "uid_7"], "a user's own server");
        fails(&claim, &["--join-name", "control_join"], "the name of a file");
        // The name of one that lives, from elsewhere.
        let done = claim.try_to_join(stage, &["--join-name", "jobs"]);
        assert_eq!(done.code, Some(0), "{}", done.stderr_text());
        let other = Claim::new(stage, "other");
        fails(&other, &["--join-name", "jobs"], "another daemon has joined as jobs, and lives");
        kill(claim.pid(), SIGKILL).expect("it lives");
        claim.wait_gone(stage);
        // Its server is there to be taken up, also in another folder.
        stage.wait_for("the loss", || log_of_node(stage).contains("that has joined as jobs is gone"));
        assert_eq!(other.try_to_join(stage, &["--join-name", "jobs"]).code, Some(0));
        claim.waits(stage, "the old socket's end", || !claim.pipe.join("control").exists());
        other.client(stage).leave();
        // The options make no sense otherwise.
        for words in [["--join", "/tmp"], ["--join-name", "a"]] {
            assert_eq!(claim.run(stage, &words, "").code, Some(2), "{words:?}");
        }
    });
}

#[test]
fn another_user_can_neither_join_nor_rule_a_claim() {
    const USER: u32 = 1000;
    if !geteuid().is_root() {
        return eprintln!("Skipped(only root can be others)");
    }
    Stage::run(|stage| {
        stage.start(&[]);
        let claim = Claim::new(stage, "claim");
        claim.join(stage);
        let mut asks = claim.placed(stage.command_as(USER, CONTROL, &[]));
        let refused = stage.lab().finish(&mut asks, b"set_default_active_thread_percentage 5\n");
        assert_ne!(refused.stdout_text(), "5.0\n");
        assert_eq!(claim.ask(stage, "get_default_active_thread_percentage"), "100.0\n");
        let mut quits = claim.placed(stage.command_as(USER, CONTROL, &[]));
        let refused = stage.lab().finish(&mut quits, b"quit\n");
        assert!(!refused.stdout.is_empty(), "it is told that it may not");
        assert_eq!(claim.servers(stage), Vec::<String>::new(), "it lives");
        // His own client's process is all that he sees, and nobody else's claim.
        let his = Program::started_as(claim.placed(stage.command_as(USER, CLIENT, &[])));
        his.expect("attached");
        let folder = stage.lab().dir().join("his");
        fs::create_dir(&folder).expect("our folder");
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("our folder");
        let node = stage.pipe_dir().to_str().expect("a path of ours");
        let mut joins = stage.command_as(USER, CONTROL, &["--join", node, "-d"]);
        let pipe = folder.join("pipe");
        joins.env("CUDA_MPS_PIPE_DIRECTORY", &pipe).env("CUDA_MPS_LOG_DIRECTORY", &folder);
        let refused = stage.lab().finish(&mut joins, b"");
        assert_eq!(refused.code, Some(1));
        assert!(refused.stderr_text().contains("Permission denied"), "{}", refused.stderr_text());
        his.leave();
    });
}

#[test]
fn who_is_in_another_container_may_join_if_the_configuration_says_so_and_rules_there() {
    where_possible(&[CONTAINER], |stage| {
        let claim = Claim::new(stage, "claim");
        let node = stage.pipe_dir().to_str().expect("a path of ours").to_owned();
        let apart =
            |stage: &Stage| within(CONTAINER, &claim.placed(stage.command_as(0, CONTROL, &["-f", "--join", &node])));
        stage.start(&[]);
        let refused = stage.lab().finish(&mut apart(stage), b"");
        assert_eq!(refused.code, Some(1));
        assert!(refused.stderr_text().contains("[join] containers is false"), "{}", refused.stderr_text());
        assert_eq!(stage.ask("quit\n"), "");
        assert!(stage.take_daemon().ended_within(LIMIT));
        stage.config("[join]\ncontainers = true\n");
        stage.start(&[]);
        let thin = Process::start(&mut apart(stage));
        claim.waits(stage, "the joining", || thin.output().contains("Joined the daemon"));
        // Who is not in its container is user 0 of the machine or of a container of clients: not its owner.
        let set = "set_default_active_thread_percentage 42";
        assert_ne!(claim.run(stage, &[], set).stdout_text(), "42.0\n");
        assert_eq!(claim.ask(stage, "get_default_active_thread_percentage"), "100.0\n");
        let inside = ["nsenter", "--target", &claim.pid().to_string(), "--pid", "--mount"].map(str::to_owned);
        let inside: Vec<&str> = inside.iter().map(String::as_str).collect();
        let mut asks = within(&inside, &claim.placed(stage.command_as(0, CONTROL, &[])));
        assert_eq!(stage.lab().finish(&mut asks, set.as_bytes()).stdout_text(), "42.0\n");
        let mut client = claim.client(stage);
        client.ping();
        // The daemon that answers counts processes otherwise than the container of the thin one: a pid there is anybody's
        // here, and only whoever is named by his namespace is known.
        let stop = |words: &[&str]| {
            let stop = claim.placed(stage.command_as(0, CONTROL, &[&["stop-client"], words].concat()));
            stage.lab().finish(&mut within(&inside, &stop), b"")
        };
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "echo $$; read x"]);
        let bystander = Process::start_with_input(&mut within(&inside, &shell));
        claim.waits(stage, "its pid", || bystander.output().ends_with('\n'));
        let refused = stop(&[bystander.output().trim()]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr_text().contains("the daemon has other pids than this namespace"), "{refused:?}");
        let inner = Program::started_as(within(&inside, &claim.placed(stage.command_as(0, CLIENT, &[]))));
        inner.expect("attached");
        // That it is found is all: the server of this bench terminates nobody.
        let found = stop(&["--all-of", "self"]);
        assert!(found.stdout_text().contains(" (the daemon's pid): "), "{found:?}");
        assert!(!found.stderr_text().contains("other pids"), "{found:?}");
        inner.leave();
        assert_eq!(bystander.finish(LIMIT).expect("it ends with its input").signal, None, "nobody has ended it");
        client.ping();
        client.leave();
        let mut quits = within(&inside, &claim.placed(stage.command_as(0, CONTROL, &[])));
        // As the first process of its namespace it takes all others there along, who asks among them.
        drop(stage.lab().finish(&mut quits, b"quit"));
        assert!(thin.ended_within(LIMIT));
    });
}

#[test]
fn what_is_no_thin_daemon_is_told_so_and_keeps_nobody_from_joining() {
    Stage::run(|stage| {
        stage.start(&[]);
        let socket = stage.pipe_dir().join(SOCKET_NAME);
        let hello = |version: u32, name: &str, devices: &str| {
            let (name, devices, limits) = (name.to_owned(), devices.to_owned(), String::new());
            ToNode::Hello { version, name, devices, limits }.encode()
        };
        let (name, devices, limits) = ("jobs".to_owned(), String::new(), "threads=none".to_owned());
        let limited = ToNode::Hello { version: VERSION, name, devices, limits }.encode();
        // One that says nothing stays as long as it likes, and nobody waits for it.
        let silent: Vec<Connection> = (0..70).map(|_| Connection::open(&socket).expect("it listens")).collect();
        let file = fs::File::open("/dev/null").expect("it is there");
        let exposed = stage.lab().dir().join("exposed");
        fs::create_dir(&exposed).expect("our folder");
        fs::set_permissions(&exposed, Permissions::from_mode(0o777)).expect("our folder");
        let exposed = fs::File::open(&exposed).expect("our folder");
        let own = fs::File::open(stage.lab().dir()).expect("our folder");
        for (packet, descriptors, why) in [
            (hello(VERSION, "jobs", ""), vec![], "has not handed over a directory"),
            (hello(VERSION, "jobs", ""), vec![&own, &own], "has not handed over a directory"),
            (hello(VERSION, "jobs", ""), vec![&file], "is no directory"),
            (hello(VERSION, "jobs", ""), vec![&exposed], "other users can replace files"),
            (hello(VERSION + 1, "jobs", ""), vec![&own], "speaks version"),
            (hello(VERSION, "jobs", "0,1"), vec![&own], "is no GPU's UUID"),
            (hello(VERSION, "../jobs", ""), vec![&own], "lower-case letters"),
            (limited, vec![&own], "of limits is not understood"),
            (vec![1, 0], vec![&own], "is not understood"),
            (vec![9; 4000], vec![&own], "does not say who it is"),
            (ToNode::Leave.encode(), vec![&own], "does not say who it is"),
        ] {
            let peer = Connection::open(&socket).expect("it listens");
            let descriptors: Vec<_> = descriptors.iter().map(|file| file.as_fd()).collect();
            peer.send_with(&packet, &descriptors).expect("room");
            let answer = ToThin::decode(&peer.receive().expect("an answer").bytes);
            let Ok(ToThin::Refused(reason)) = answer else { panic!("{why}: {answer:?}") };
            assert!(reason.contains(why), "{reason}");
        }
        // One that has joined and hands over what is no command line, or breaks the rules.
        let place = stage.lab().dir().join("place");
        fs::create_dir(&place).expect("our folder");
        let peer = Connection::open(&socket).expect("it listens");
        peer.send_with(&hello(VERSION, "strange", ""), &[fs::File::open(&place).expect("our folder").as_fd()])
            .expect("room");
        let joined = ToThin::decode(&peer.receive().expect("an answer").bytes);
        assert_eq!(joined, Ok(ToThin::Joined { name: "strange".to_owned() }));
        let visitor = ToNode::Visitor { is_owner: true }.encode();
        peer.send_with(&visitor, &[file.as_fd()]).expect("room");
        peer.send(&visitor).expect("room");
        let (near, far) = std::os::unix::net::UnixStream::pair().expect("descriptors");
        peer.send_with(&visitor, &[near.as_fd()]).expect("room");
        peer.send(&[200, 1, 2]).expect("room");
        peer.send(&[2]).expect("room");
        stage.wait_for("its end", || log_of_node(stage).contains("that has joined as strange is gone"));
        drop((silent, far));
        let claim = Claim::new(stage, "claim");
        claim.join(stage);
        claim.client(stage).leave();
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
